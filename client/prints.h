// What a traced program prints: split off before it is sent, and printed from its results. Used by
// the SDK only.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/trace.h"

namespace tessera::internal {

// A traced program as it is sent: without effects, and with what they read as its last results.
struct SentProgram {
  ir::Program program;
  ir::FunctionRef prints;  // takes these results, and has the effects; null: there are none
  int num_printed = 0;
};
SentProgram SplitPrints(const ir::Program& program, const Site& site);

// Runs what prints, on the values that it reads; `print` gets each format and what it shows.
absl::Status RunPrints(
    const ir::Function& prints, std::vector<ir::Array> values,
    std::function<void(const std::string& format, absl::Span<const ir::Array> values)> print);

// Takes the last results of a run, and prints. Waits for them; throws what the run failed with.
void PrintResults(const ir::Function& prints, int num_printed, std::vector<Array>* results,
                  const Site& site);

}  // namespace tessera::internal
