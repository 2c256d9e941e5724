// Makes the host's calls for execute.cc: MakeCallsBeforeRun those before a run, MakeCallsAfterRun
// those after it. Both read the operands from the service and call the host function by its name.
#include "client/pjrt/make_calls.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>

#include "base/status.h"
#include "client/pjrt/buffer.h"
#include "client/pjrt/host_callbacks.h"
#include "client/pjrt/live_runs.h"
#include "client/pjrt/status.h"
#include "client/trace/prints.h"
#include "client/trace/trace.h"
#include "ir/transform/effect_record.h"

namespace tessera::pjrt {
namespace {

// Reads an array once its run has ended.
absl::StatusOr<ir::Array> ReadArray(const Client& client, const tessera::Array& array) {
  TESSERA_RETURN_IF_ERROR(AwaitRun(client, array));
  return client.session->service().Get(internal::AsConcrete(array)->id, internal::kMaxWaitPerCall);
}

absl::StatusOr<std::vector<ir::Array>> ReadAll(const Client& client,
                                               absl::Span<const tessera::Array> arrays) {
  std::vector<ir::Array> values;
  for (const tessera::Array& array : arrays) {
    TESSERA_ASSIGN_OR_RETURN(values.emplace_back(), ReadArray(client, array));
  }
  return values;
}

// Returns the replay of the calls of a run that returned the record `arrays`, which must outlive
// it.
ir::EffectReplay ReplayOf(const CompiledProgram& compiled,
                          absl::Span<const tessera::Array> arrays) {
  return ir::EffectReplay(*compiled.sent.prints, [client = compiled.client, arrays](int i) {
    return ReadArray(*client, arrays[i]);
  });
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

// Makes the calls of a run that has ended, in order. Where a nested call returns something, the
// program went on with placeholders (IsPlaceholder). If a nested call returns anything else, the
// results of the run are wrong, and the function returns an error.
absl::Status MakeCalls(const CompiledProgram& compiled, const std::vector<tessera::Array>& arrays) {
  absl::Status status;  // the error of the first call that fails
  const auto call = [&](const std::string& id, absl::Span<const ir::Array> operands) {
    if (!status.ok()) return;
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
  TESSERA_RETURN_IF_ERROR(ReplayOf(compiled, arrays).Run(call));
  return status;
}

}  // namespace

// Runs, for each call, the part of the program that computes the operands, reads them, and calls
// the host. The live run of such a part lets Ctrl-C cancel it while its results are read.
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
    const LiveRunRef run = client.live_runs->Add({});
    run->Detach();
    run->NoteAccepted(operands.empty() ? 0 : internal::AsConcrete(operands.front())->operation);
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

absl::Status CheckNoCallDropped(const CompiledProgram& compiled,
                                absl::Span<const tessera::Array> arrays) {
  if (!compiled.sent.prints->MayDrop()) return absl::OkStatus();
  return ReplayOf(compiled, arrays).CheckNothingDropped();
}

void MakeCallsAfterRun(std::shared_ptr<const CompiledProgram> compiled,
                       std::vector<tessera::Array> arrays, LiveRunRef run,
                       std::shared_ptr<Outcome> outcome) {
  CallQueue& queue = compiled->client->call_queue;
  auto settler = std::make_shared<Settler>(std::move(outcome));
  queue.Push([compiled = std::move(compiled), arrays = std::move(arrays), run = std::move(run),
              settler = std::move(settler)]() mutable {
    const absl::Status status = CatchExceptions([&] { return MakeCalls(*compiled, arrays); });
    // Release the program and the arrays before the outcome is settled. After that the framework's
    // process may be ending, and must not be called any more.
    compiled.reset();
    arrays.clear();
    run.reset();
    settler->Settle(status);
  });
}

}  // namespace tessera::pjrt
