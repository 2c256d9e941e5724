// Exports the op samples (tests/ops/samples.h) and the random programs (tests/ops/programs.h) as
// StableHLO artifacts.
//
// A sample in Manual code becomes a program on whole arrays that runs the op in a
// manual_computation. If an operand or a result varies over mesh axes, the array in the program has
// an additional first dim, and the shards are the slices along this dim.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/program.h"
#include "tests/ops/samples.h"

namespace tessera::ir::stablehlo {

struct ExportedSample {
  std::string family;
  const samples::Sample* sample = nullptr;
  // For random programs: how many units in the last place XLA may be off in each result.
  std::vector<double> ulps_of_xla;
  FunctionRef function;     // entry of the exported program
  std::vector<Array> args;  // arguments of the entry
  absl::StatusOr<std::string> artifact;
};
// Calls `f` for every sample and every random program.
void ForEachExport(const std::function<void(const ExportedSample&)>& f);
// Returns the results that the entry must have, made from the results of the sample's op on every
// shard.
std::vector<Array> ResultsOfEntry(const samples::Sample& s, const std::vector<Shards>& results);

}  // namespace tessera::ir::stablehlo
