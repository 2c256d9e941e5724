// The op samples, and the random programs, as StableHLO artifacts.
//
// A sample that stands on the shards of a mesh is called in a manual_computation: what varies over
// mesh axes has a first dim more, along which its shards lie.
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
  // Of the random programs: how many units in the last place XLA may be off in each result.
  std::vector<double> ulps_of_xla;
  FunctionRef function;     // the entry
  std::vector<Array> args;  // of the entry
  absl::StatusOr<std::string> artifact;
};
// Calls `f` for every row.
void ForEachExport(const std::function<void(const ExportedSample&)>& f);
// The results of the entry from those of the sample's op on every shard.
std::vector<Array> ResultsOfEntry(const samples::Sample& s, const std::vector<Shards>& results);

}  // namespace tessera::ir::stablehlo
