// Arrays as JSON values: for small arrays and for display. Stateless; thread-safe.
#pragma once
#include "absl/status/statusor.h"
#include "google/protobuf/struct.pb.h"
#include "ir/array.h"
#include "ir/type.h"

namespace tessera::server::rpc {

// Convert between nested lists, row-major, and an array.  Numbers are JSON numbers, bools true and
// false; NaN and infinities are "NaN", "Infinity" and "-Infinity", and 64-bit integers that a
// double cannot hold are decimal strings.  VALUE_ERROR has the indices of the invalid value.  f16,
// f8 and complex dtypes are NOT_IMPLEMENTED, lists of more than 2^22 values LIMIT_EXCEEDED.
absl::StatusOr<ir::Array> ArrayFromJson(const google::protobuf::Value& value, ir::DType dtype,
                                        const ir::Dims& shape);
absl::StatusOr<google::protobuf::Value> JsonFromArray(const ir::Array& array);

// Whether arrays of the dtype, or of the size, have a JSON form.
absl::Status CheckJsonDType(ir::DType dtype);
absl::Status CheckJsonSize(const ir::Type& type);

}  // namespace tessera::server::rpc
