// Programs, meshes, shardings and arrays to their wire form and back.
//
// Writing cannot fail.  Reading trusts nothing: every field is bounded by ir::Limits before memory
// is taken for it, and functions are rebuilt through ir::Builder, so that every type is inferred
// again and every op checked.  Stateless; thread-safe.
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

// MALFORMED_PROGRAM, UNKNOWN_OP, LIMIT_EXCEEDED, or the error of the op that does not check.
absl::StatusOr<Program> FromProto(const v1::Program& proto, const Limits& limits = {});
// VALUE_ERROR or LIMIT_EXCEEDED.
absl::StatusOr<Mesh> FromProto(const v1::Mesh& proto, const Limits& limits = {});
absl::StatusOr<PartitionSpec> FromProto(const v1::PartitionSpec& proto, const Limits& limits = {});
// `bytes_max` bounds the literal; its data must be as long as dtype and shape say.
absl::StatusOr<Array> FromProto(const v1::Literal& proto, int64_t bytes_max,
                                const Limits& limits = {});

// A dtype by name; and a check that these can be the dims of an array of it: non-negative, at most
// limits.rank of them, with a number of bytes below 2^62.
absl::StatusOr<DType> DTypeFromName(const std::string& name);
absl::Status CheckDims(absl::Span<const int64_t> dims, DType dtype, const Limits& limits = {});

}  // namespace tessera::ir::serial
