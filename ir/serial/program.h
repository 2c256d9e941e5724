// Converts programs, meshes, shardings and arrays to their wire form and back.
//
// Writing cannot fail. Reading trusts nothing: ir::Limits bounds every field before memory is taken
// for it. Functions are rebuilt through ir::Builder, so that every type is inferred again and every
// op is checked. Stateless; thread-safe.
#pragma once
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ir/array.h"
#include "ir/mesh.h"
#include "ir/program.h"
#include "ir/verify.h"
#include "tessera/v1/program.pb.h"

namespace tessera::ir::serial {

v1::Program ToProto(const Program& program);
v1::Mesh ToProto(const Mesh& mesh);
v1::PartitionSpec ToProto(const PartitionSpec& spec);
v1::Literal ToProto(const Array& array);

// Errors: MALFORMED_PROGRAM, UNKNOWN_OP, LIMIT_EXCEEDED, or the error of an op that is not valid.
absl::StatusOr<Program> FromProto(const v1::Program& proto, const Limits& limits = {});
// Errors: VALUE_ERROR or LIMIT_EXCEEDED.
absl::StatusOr<Mesh> FromProto(const v1::Mesh& proto, const Limits& limits = {});
absl::StatusOr<PartitionSpec> FromProto(const v1::PartitionSpec& proto, const Limits& limits = {});
// `bytes_max` bounds the literal. The literal's data must have the size that dtype and shape imply.
absl::StatusOr<Array> FromProto(const v1::Literal& proto, int64_t bytes_max,
                                const Limits& limits = {});

// DTypeFromName finds a dtype by its name. CheckDims checks that `dims` can be the dims of an array
// of this dtype: they are non-negative, there are at most limits.rank of them, and the number of
// bytes is below 2^62.
absl::StatusOr<DType> DTypeFromName(const std::string& name);
absl::Status CheckDims(absl::Span<const int64_t> dims, DType dtype, const Limits& limits = {});

}  // namespace tessera::ir::serial
