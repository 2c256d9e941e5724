// Converts arrays to JSON values and back, for small arrays and for display. Stateless and
// thread-safe.
#pragma once
#include "absl/status/statusor.h"
#include "google/protobuf/struct.pb.h"
#include "ir/array.h"
#include "ir/type.h"

namespace tessera::server::rpc {

// These functions convert between an array and nested JSON lists, the outermost list for dim 0.
// Numbers are JSON numbers, and bools are true and false. NaN and infinities are "NaN", "Infinity"
// and "-Infinity". 64-bit integers that a double cannot hold exactly are decimal strings. The error
// for an invalid value is VALUE_ERROR and names the value's indices. Complex dtypes are
// NOT_IMPLEMENTED. For an array that would become more than 2^22 JSON values, JsonFromArray returns
// LIMIT_EXCEEDED.
absl::StatusOr<ir::Array> ArrayFromJson(const google::protobuf::Value& value, ir::DType dtype,
                                        const ir::Dims& shape);
absl::StatusOr<google::protobuf::Value> JsonFromArray(const ir::Array& array);

// Check that JsonFromArray accepts arrays of this dtype, or of the size of this type.
absl::Status CheckJsonDType(ir::DType dtype);
absl::Status CheckJsonSize(const ir::Type& type);

}  // namespace tessera::server::rpc
