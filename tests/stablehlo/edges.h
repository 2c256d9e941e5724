// Small programs for edge cases of the export to StableHLO: encodings of constants, comparisons,
// indices out of bounds, nested regions, and code on shards.
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
  // The reason why XLA gives another result or does not run the program; empty if it gives the same
  // bits.
  std::string not_xla = {};
};
const std::vector<EdgeProgram>& EdgePrograms();

}  // namespace tessera::ir::stablehlo
