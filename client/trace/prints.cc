// Splits the prints off a traced program before it is sent, and prints from the results of its
// runs. The tracer, sessions and jit call it. Reference: docs/decisions/0026.
#include "client/trace/prints.h"

#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/error.h"
#include "client/trace/print_format.h"
#include "ir/eval/eval.h"
#include "ir/transform/transform.h"

namespace tessera::internal {

SentProgram SplitPrints(const ir::Program& program, const Site& site) {
  SentProgram out{program, nullptr, 0};
  if (!program.entry->has_effects) return out;
  const ir::FunctionRef runs = OrThrow(ir::DropRules(program.entry), site);
  const ir::PartialEvalResult split =
      OrThrow(ir::PartialEval(*runs, std::vector<bool>(runs->num_params, true), {},
                              {.split_loops = true, .hold_effects = true}),
              site);
  out.program.entry = split.known;
  out.prints = split.unknown;
  out.num_printed = split.num_residuals;
  for (int i = 0; i < split.num_residuals; ++i) {
    if (!program.out_shardings.empty()) out.program.out_shardings.emplace_back();
    if (!program.out_names.empty())
      out.program.out_names.push_back(absl::StrCat("printed[", i, "]"));
  }
  return out;
}

absl::Status RunPrints(
    const ir::Function& prints, std::vector<ir::Array> values,
    std::function<void(const std::string& format, absl::Span<const ir::Array> values)> print) {
  ir::EvalOptions options;
  options.print = std::move(print);
  return ir::Evaluator(options).Run(prints, std::move(values)).status();
}

void PrintResults(const ir::Function& prints, int num_printed, std::vector<Array>* results,
                  const Site& site) {
  std::vector<ir::Array> values;
  const size_t first = results->size() - num_printed;
  for (size_t i = first; i < results->size(); ++i) values.push_back((*results)[i].value(site));
  results->resize(first);
  ThrowIfError(RunPrints(prints, std::move(values), PrintLine), site);
  std::fflush(stdout);
}

}  // namespace tessera::internal
