// The op samples, and the random programs, as StableHLO artifacts.
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
  FunctionRef function;
  absl::StatusOr<std::string> artifact;
};
// Calls `f` for every row.
void ForEachExport(const std::function<void(const ExportedSample&)>& f);

}  // namespace tessera::ir::stablehlo
