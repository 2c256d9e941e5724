// Little programs at the edges of what StableHLO says as we do: encodings of constants,
// comparisons, indices without bounds, regions within each other, code on shards.
#pragma once
#include <string>
#include <vector>

#include "ir/array.h"
#include "ir/program.h"

namespace tessera::ir::stablehlo {

struct EdgeProgram {
  std::string name;
  Program program;
  std::vector<Array> args;
  // Why XLA gives something else, or does not run it; "": the same bits.
  std::string not_xla = {};
};
const std::vector<EdgeProgram>& EdgePrograms();

}  // namespace tessera::ir::stablehlo
