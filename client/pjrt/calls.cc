// Finds the calls of the host in a program, and splits off the parts of the program that compute
// operands of calls. Compilation (executable.cc) does this once for each program.
#include "client/pjrt/calls.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/pjrt/client.h"
#include "ir/transform/transform.h"

namespace tessera::pjrt {
namespace {

// Returns the program with only the results whose indices are `results`, and without the ops that
// these results do not need. Sets `kept` to whether each param is left.
ir::Program WithResults(const ir::Program& program, const std::vector<size_t>& results,
                        bool keep_params, std::vector<bool>* kept) {
  ir::Function f = *program.entry;
  ir::Program out = program;
  f.results.clear();
  out.out_shardings.clear();
  out.out_names.clear();
  for (const size_t r : results) {
    f.results.push_back(program.entry->results[r]);
    if (!program.out_shardings.empty()) out.out_shardings.push_back(program.out_shardings[r]);
    if (!program.out_names.empty()) out.out_names.push_back(program.out_names[r]);
  }
  out.entry = ir::Dce(f, keep_params, kept);
  if (keep_params) return out;
  const auto remove_dropped = [&](auto& of_params) {
    size_t n = 0;
    for (size_t i = 0; i < of_params.size(); ++i)
      if ((*kept)[i]) of_params[n++] = of_params[i];
    of_params.resize(n);
  };
  remove_dropped(out.in_shardings);
  remove_dropped(out.in_names);
  return out;
}

}  // namespace

// The importer has put the operands of all calls behind the ordinary results of the program. For
// each call, the program with these operands as its only results is compiled as a small program of
// its own. The whole program then computes these values again, so that its run need not be
// interrupted.
absl::StatusOr<std::vector<CallBeforeRun>> SplitCalls(
    Client& client, const std::vector<ir::stablehlo::HostCall>& calls,
    const std::vector<int64_t>& devices, int num_printed, ir::Program* program) {
  std::vector<CallBeforeRun> out;
  if (calls.empty()) return out;
  const size_t num_results = program->entry->results.size();
  size_t first_operand = num_results - num_printed;
  for (const ir::stablehlo::HostCall& call : calls) first_operand -= call.num_operands;
  size_t next = first_operand;
  for (const ir::stablehlo::HostCall& call : calls) {
    std::vector<size_t> operands(call.num_operands);
    std::iota(operands.begin(), operands.end(), next);
    next += operands.size();
    CallBeforeRun before{call.name, call.results, nullptr, {}};
    const ir::Program part = WithResults(*program, operands, /*keep_params=*/false, &before.takes);
    before.executable =
        client.session->Compile(part, devices, absl::StrCat(program->entry->name, " callback"),
                                /*explain=*/false, Site{});
    out.push_back(std::move(before));
  }
  std::vector<size_t> rest;
  for (size_t r = 0; r < num_results; ++r)
    if (r < first_operand || r >= next) rest.push_back(r);
  *program = WithResults(*program, rest, /*keep_params=*/true, nullptr);
  return out;
}

const ir::stablehlo::HostCall* FindCall(const std::vector<ir::stablehlo::HostCall>& calls,
                                        const std::string& name) {
  const auto found =
      std::find_if(calls.begin(), calls.end(),
                   [&](const ir::stablehlo::HostCall& call) { return call.name == name; });
  return found == calls.end() ? nullptr : &*found;
}

}  // namespace tessera::pjrt
