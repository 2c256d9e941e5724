// Prints the values that debug_print marks in a program. The printing part is split off from the
// traced program before the program is sent. It prints from the program's results. Used by the SDK
// only.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/array.h"
#include "ir/program.h"

namespace tessera::internal {

// A traced program in the form in which it is sent. It has no effects; its last results are the
// values that the split-off effects read.
struct SentProgram {
  ir::Program program;
  ir::FunctionRef prints;  // takes these results, and has the effects; null if there are none
  int num_printed = 0;
};
SentProgram SplitPrints(const ir::Program& program, const Site& site);

// Evaluates `prints` on the values that it reads. Calls `print` with each format and its values.
absl::Status RunPrints(
    const ir::Function& prints, std::vector<ir::Array> values,
    std::function<void(const std::string& format, absl::Span<const ir::Array> values)> print);

// Removes the last results of a run and prints them. Waits for them, and throws the run's error.
void PrintResults(const ir::Function& prints, int num_printed, std::vector<Array>* results,
                  const Site& site);

}  // namespace tessera::internal
