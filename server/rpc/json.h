// Converts arrays to JSON values and back, for small arrays and for display. Stateless and
// thread-safe.
#pragma once
#include "absl/status/statusor.h"
#include "google/protobuf/struct.pb.h"
#include "ir/array.h"
#include "ir/type.h"

namespace tessera::server::rpc {

// Convert between nested lists, row-major, and an array.  Numbers are JSON numbers, and bools are
// true and false.  NaN and infinities are "NaN", "Infinity" and "-Infinity".  64-bit integers that
// a double cannot hold are decimal strings.  The error for an invalid value is VALUE_ERROR and
// names the value's indices.  Complex dtypes are NOT_IMPLEMENTED.  An array that would become more
// than 2^22 JSON values is LIMIT_EXCEEDED.
absl::StatusOr<ir::Array> ArrayFromJson(const google::protobuf::Value& value, ir::DType dtype,
                                        const ir::Dims& shape);
absl::StatusOr<google::protobuf::Value> JsonFromArray(const ir::Array& array);

// Check that arrays of the dtype, and of the type's size, have a JSON form.
absl::Status CheckJsonDType(ir::DType dtype);
absl::Status CheckJsonSize(const ir::Type& type);

}  // namespace tessera::server::rpc
