// Makes the host's calls for execute.cc: MakeCallsBeforeRun those before a run, MakeCallsAfterRun
// those after it. Both read the operands from the service and call the host function by its name.
#include "client/pjrt/make_calls.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status.h"
#include "client/pjrt/buffer.h"
#include "client/pjrt/host_callbacks.h"
#include "client/pjrt/status.h"
#include "client/trace/prints.h"
#include "client/trace/trace.h"
#include "ir/debug_print.h"

namespace tessera::pjrt {
namespace {

absl::StatusOr<std::vector<ir::Array>> ReadAll(const Client& client,
                                               absl::Span<const tessera::Array> arrays) {
  std::vector<ir::Array> values;
  for (const tessera::Array& array : arrays) {
    TESSERA_RETURN_IF_ERROR(AwaitRun(client, array));
    TESSERA_ASSIGN_OR_RETURN(
        values.emplace_back(),
        client.session->service().Get(internal::AsConcrete(array)->id, internal::kMaxWaitPerCall));
  }
  return values;
}

std::vector<ir::Array> ZerosOf(const std::vector<ir::Type>& types) {
  std::vector<ir::Array> out;
  for (const ir::Type& type : types) out.emplace_back(type.dtype, type.shape);
  return out;
}

// Returns whether all elements are NaN or, in an integer array, zero. A program that cannot wait
// for a call uses these values in place of the call's results.
bool IsPlaceholder(const ir::Array& a) {
  const bool nan = ir::IsInexact(a.dtype());
  for (int64_t i = 0; i < a.num_elements(); ++i) {
    if (nan ? !std::isnan(a.At(i)) : a.At(i) != 0) return false;
  }
  return true;
}

// Makes the calls of a run that has ended: the reference evaluator runs the part of the program
// that has effects, and `call` gets each effect in order. Where a nested call returns something,
// the program went on with placeholders (IsPlaceholder). If a nested call returns anything else, or
// if the operands of some calls are not known, the results of the run are wrong, and the function
// returns an error.
absl::Status MakeCalls(const CompiledProgram& compiled, const std::vector<tessera::Array>& arrays) {
  TESSERA_ASSIGN_OR_RETURN(std::vector<ir::Array> values, ReadAll(*compiled.client, arrays));
  absl::Status status;  // the error of the first call that fails
  const auto call = [&](const std::string& id, absl::Span<const ir::Array> operands) {
    if (!status.ok()) return;
    if (id == ir::kIterationsLeftOut) {
      std::puts(absl::StrReplaceAll(ToAbsl(ir::kIterationsLeftOut),
                                    {{"{}", absl::StrCat(operands[0].IntAt(0))}})
                    .c_str());
      std::fflush(stdout);
      if (compiled.nested_calls_in_unbounded_loop)
        status = MakeError(ErrorKind::kNotImplemented,
                           "a callback that returns a value was called in a loop that made more "
                           "than 1,000 turns, and their number was not known in advance: the "
                           "arguments of some of the calls are not known");
      return;
    }
    std::vector<ir::Array> results;
    const ir::stablehlo::HostCall* const nested = FindCall(compiled.nested_calls, id);
    if (nested != nullptr) results = ZerosOf(nested->results);
    status = CallHost(id, operands, absl::MakeSpan(results));
    if (status.ok() && !std::all_of(results.begin(), results.end(), IsPlaceholder))
      status = MakeError(
          ErrorKind::kNotImplemented,
          "a callback in a loop, a branch or a shard_map returned a value that the program needed "
          "in order to go on; call it outside of loops, branches and shard_map");
  };
  TESSERA_RETURN_IF_ERROR(internal::RunPrints(*compiled.sent.prints, std::move(values), call));
  return status;
}

}  // namespace

absl::StatusOr<std::vector<tessera::Array>> MakeCallsBeforeRun(
    const CompiledProgram& compiled, absl::Span<const tessera::Array> args) {
  Client& client = *compiled.client;
  std::vector<tessera::Array> arrays(args.begin(), args.end());
  for (const CallBeforeRun& call : compiled.calls_before_run) {
    std::vector<tessera::Array> call_args;
    for (size_t i = 0; i < arrays.size(); ++i)
      if (call.takes[i]) call_args.push_back(arrays[i]);
    // A part whose operands depend on constants only has no arguments; it runs on the program's
    // devices all the same.
    const std::vector<tessera::Array> operands =
        client.session->Run(*call.executable, call_args, {}, Site{});
    TESSERA_ASSIGN_OR_RETURN(const std::vector<ir::Array> values, ReadAll(client, operands));
    std::vector<ir::Array> results = ZerosOf(call.results);
    TESSERA_RETURN_IF_ERROR(CallHost(call.name, values, absl::MakeSpan(results)));
    for (const ir::Array& result : results) {
      const api::Placement& placement = compiled.executable->reply.in[arrays.size()].placement;
      arrays.push_back(client.session->Put(result, Mesh{placement.mesh, placement.devices},
                                           placement.spec, Site{}));
    }
  }
  return std::vector<tessera::Array>(arrays.begin() + static_cast<ptrdiff_t>(args.size()),
                                     arrays.end());
}

void MakeCallsAfterRun(std::shared_ptr<const CompiledProgram> compiled,
                       std::vector<tessera::Array> arrays, std::shared_ptr<Outcome> outcome) {
  CallQueue& queue = compiled->client->call_queue;
  auto settler = std::make_shared<Settler>(std::move(outcome));
  queue.Push([compiled = std::move(compiled), arrays = std::move(arrays),
              settler = std::move(settler)]() mutable {
    const absl::Status status = CatchExceptions([&] { return MakeCalls(*compiled, arrays); });
    // Release the program and the arrays before the outcome is settled. After that the framework's
    // process may be ending, and must not be called any more.
    compiled.reset();
    arrays.clear();
    settler->Settle(status);
  });
}

}  // namespace tessera::pjrt
