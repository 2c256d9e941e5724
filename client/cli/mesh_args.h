// What --mesh, --spec and --device say, and which block of an array a device holds.
//
// Pure functions. Errors are of the command line.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/mesh.h"
#include "ir/type.h"

namespace tessera::cli {

// "2x2" (axes x, y, z ... unless `like` has as many, whose names and types are taken),
// "data=2,model=2"; nullopt for the name of a mesh that the cluster knows.
absl::StatusOr<std::optional<ir::Mesh>> ParseMesh(const std::string& text,
                                                  const ir::Mesh& like = {});
// "P('data', None, ('x','y'))" as programs write it, or short: "data,-,x+y".
absl::StatusOr<ir::PartitionSpec> ParseSpec(const std::string& text);
// "0,2,4-7".
absl::StatusOr<std::vector<int64_t>> ParseInts(const std::string& text);
// "12", or the printed form "operations/12", also with what stands before it.
absl::StatusOr<uint64_t> ParseId(const std::string& text, const std::string& collection);

// The program text with the sizes of `mesh` in its mesh line, which is added if there is none.
absl::StatusOr<std::string> WithMesh(const std::string& program, const std::string& mesh);

// Half-open ranges of the dims, one per dim of `shape`, that mesh device `ordinal` holds.
struct Range {
  int64_t begin = 0, end = 0;
  bool whole = true;
};
std::vector<Range> BlockOf(const ir::Mesh& mesh, const ir::PartitionSpec& spec,
                           const ir::Dims& shape, int64_t ordinal);
// "[0:4, :]".
std::string BlockText(const std::vector<Range>& block);

}  // namespace tessera::cli
