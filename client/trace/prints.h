// Prints the values that debug_print marks in a program. The traced program is sent without its
// prints, and returns a record of them as further results. Used by the SDK only.
#pragma once
#include <memory>
#include <vector>

#include "client/array.h"
#include "ir/program.h"
#include "ir/transform/effect_record.h"

namespace tessera::internal {

// A traced program in the form in which it is sent. It has no effects; its last results are the
// record of what the effects are.
struct SentProgram {
  ir::Program program;
  std::shared_ptr<const ir::RecordedEffects> prints;  // null if the program had no effects
  int num_printed = 0;                                // number of results that are the record
};
SentProgram SplitPrints(const ir::Program& program, const Site& site);

// Removes the record, the last results of a run, and prints what it says. Waits for the run, and
// throws its error. Throws CALLBACKS_DROPPED, and prints nothing, if the run printed more than the
// record holds.
void PrintResults(const ir::RecordedEffects& prints, std::vector<Array>* results, const Site& site);

}  // namespace tessera::internal
