// Takes the prints out of a traced program before it is sent, and prints from the record that its
// runs return. The tracer, sessions and jit call it. References: docs/decisions/0026, 0042.
#include "client/trace/prints.h"

#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/error.h"
#include "client/trace/print_format.h"
#include "ir/transform/record_effects.h"
#include "ir/transform/transform.h"

namespace tessera::internal {

SentProgram SplitPrints(const ir::Program& program, const Site& site) {
  SentProgram out{program, nullptr, 0};
  if (!program.entry->has_effects) return out;
  const ir::FunctionRef runs = OrThrow(ir::DropRules(program.entry), site);
  ir::FunctionWithRecord recorded = OrThrow(ir::RecordEffects(*runs), site);
  out.program.entry = std::move(recorded.function);
  out.num_printed = recorded.effects.num_results;
  out.prints = std::make_shared<const ir::RecordedEffects>(std::move(recorded.effects));
  for (int i = 0; i < out.num_printed; ++i) {
    if (!program.out_shardings.empty()) out.program.out_shardings.emplace_back();
    if (!program.out_names.empty())
      out.program.out_names.push_back(absl::StrCat("printed[", i, "]"));
  }
  return out;
}

// Reads only those results of the record that are needed: the operands of a callback that was not
// called stay where they are.
void PrintResults(const ir::RecordedEffects& prints, std::vector<Array>* results,
                  const Site& site) {
  const size_t first = results->size() - prints.num_results;
  ir::EffectReplay replay(prints, [&](int i) { return (*results)[first + i].value(site); });
  ThrowIfError(replay.Run(PrintLine), site);
  std::fflush(stdout);
  results->resize(first);
}

}  // namespace tessera::internal
