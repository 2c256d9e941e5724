// Runs an executable: the framework calls LoadedExecutable_Execute with a buffer per argument and
// device. If the buffers of one argument are the shards of one array with the placement that the
// program wants, that array is the argument; if not, an array is assembled from the buffers.
//
// The call itself only checks its arguments and makes the buffers of the results. The rest is a job
// in the client's queue of runs (runs.h), so that the framework need not wait.
#include <algorithm>
#include <tuple>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "client/pjrt/buffer.h"
#include "client/pjrt/executable.h"
#include "client/pjrt/live_runs.h"
#include "client/pjrt/make_calls.h"
#include "client/pjrt/status.h"
#include "client/trace/trace.h"
#include "ir/api/placement.h"
#include "ir/strided.h"

namespace tessera::pjrt {
namespace {

// The shards of one argument, by partition.
using ArgumentShards = absl::Span<const CellShard>;

std::string ArgumentName(const CompiledProgram& compiled, size_t i) {
  return absl::StrCat(compiled.executable->name, ": argument ", i);
}

// Returns the index of the summand that the shard `ordinal` holds, if the array is a pending sum.
int64_t SummandIndexOf(const api::Placement& placement, int64_t ordinal) {
  return placement.mesh.IndexAlong(ordinal, placement.spec.unreduced);
}

// Returns whether the array has the shards that the boundary wants, on the same devices.
bool FitsBoundary(const tessera::Array& array, const Boundary& boundary) {
  if (array.dtype() != boundary.spec.dtype || array.shape() != boundary.spec.shape) return false;
  const api::Placement& have = array.placement();
  const api::Placement& want = boundary.placement();
  if (&have == &want || have == want) return true;
  if (have.devices != want.devices) return false;
  if (api::LocalShape(have, array.shape()) != boundary.local_shape) return false;
  for (size_t i = 0; i < have.devices.size(); ++i) {
    const auto ordinal = static_cast<int64_t>(i);
    if (api::ShardStarts(have, array.shape(), ordinal) !=
            api::ShardStarts(want, array.shape(), ordinal) ||
        SummandIndexOf(have, ordinal) != SummandIndexOf(want, ordinal))
      return false;
  }
  return true;
}

// Returns the array that has these shards where the boundary wants them. Returns an invalid array
// if there is no such array.
tessera::Array ArrayWithShards(ArgumentShards shards, const Boundary& boundary) {
  const auto arrays_of = [&](size_t k) {
    return shards[k].cell->ArraysWithShard(boundary.ordinals[k], boundary.IsZero(k),
                                           shards[k].ordinal, shards[k].zero);
  };
  auto [own, assembled] = arrays_of(0);
  for (size_t k = 1; k < shards.size() && (own.valid() || assembled.valid()); ++k) {
    const auto [other_own, other_assembled] = arrays_of(k);
    if (other_own.state() != own.state()) own = {};
    if (other_assembled.state() != assembled.state()) assembled = {};
  }
  if (own.valid() && FitsBoundary(own, boundary)) return own;
  return assembled.valid() && FitsBoundary(assembled, boundary) ? assembled : tessera::Array();
}

absl::StatusOr<ir::Array> ReadBytes(const CompiledProgram& compiled, const Contents& contents,
                                    const Boundary& boundary) {
  if (contents.bytes) return *contents.bytes;
  return ReadShard(*compiled.client, contents, boundary.spec.dtype, boundary.local_shape);
}

// Assembles argument `i` from its shards, and returns the array. Uses the cheapest way that
// applies: reshard an array on the devices, or put the bytes from this process.
absl::StatusOr<tessera::Array> Assemble(const CompiledProgram& compiled, ArgumentShards shards,
                                        size_t i) {
  const Boundary& boundary = compiled.in[i];
  std::vector<Contents> contents;
  for (const CellShard& shard : shards) {
    // Pass the error on unchanged: if every run added its own context, a long chain would produce
    // an endless message.
    TESSERA_ASSIGN_OR_RETURN(Contents found, shard.contents());
    contents.push_back(std::move(found));
  }
  const api::Placement& placement = boundary.placement();
  if (api::IsPendingSum(placement) || !boundary.sum_axes.empty()) {
    return MakeError(
        ErrorKind::kNotImplemented,
        absl::StrCat(
            ArgumentName(compiled, i),
            ": an array whose shards are terms of a sum cannot be made from several buffers"));
  }
  const api::Placement& to = boundary.spec.placement;
  const Mesh mesh{to.mesh, to.devices};
  Session& session = *compiled.client->session;
  tessera::Array array;
  LiveRunRef needed;  // the run that the array is made from on the devices
  if (boundary.local_shape != boundary.spec.shape) {
    ir::Array whole(boundary.spec.dtype, boundary.spec.shape);
    const std::vector<int> distinct = api::OrdinalsOfDistinctShards(placement, boundary.spec.shape);
    for (size_t k = 0; k < shards.size(); ++k) {
      const int ordinal = boundary.ordinals[k];
      if (!std::binary_search(distinct.begin(), distinct.end(), ordinal)) continue;
      TESSERA_ASSIGN_OR_RETURN(const ir::Array shard, ReadBytes(compiled, contents[k], boundary));
      ir::WriteBlock(&whole, api::ShardStarts(placement, boundary.spec.shape, ordinal), shard);
    }
    array = session.Put(whole, mesh, to.spec, Site{});
  } else if (!contents[0].bytes &&
             ReshardMovesShard(contents[0], boundary.local_shape, placement.devices)) {
    array = session.Reshard(contents[0].array, mesh, to.spec, Site{});
    needed = shards[0].cell->run();
  } else {
    TESSERA_ASSIGN_OR_RETURN(const ir::Array whole, ReadBytes(compiled, contents[0], boundary));
    array = session.Put(whole, mesh, to.spec, Site{});
  }
  for (size_t k = 0; !boundary.other_placement && k < shards.size(); ++k)
    shards[k].cell->NoteAssembled(array, boundary.ordinals[k], needed);
  return array;
}

// One call of an executable: its arguments, and the cells that its results go to.
struct PendingCall {
  std::shared_ptr<const CompiledProgram> compiled;
  // The shards of the arguments: the shards of the first argument on each device, then the shards
  // of the next argument, and so on.
  absl::InlinedVector<CellShard, 4> args = {};
  LiveRunRef run = {};  // the run of the call; set before anything is requested
  // By argument, whether it is donated. Empty if no argument is donated.
  std::vector<bool> donated = {};
  // The cells, by result. The cell of a token is null. Other cells may be null until the run has
  // been requested.
  absl::InlinedVector<std::shared_ptr<ArrayCell>, 2> results = {};
  // The outcome of the run, and the outcome of the call for the framework. They differ if the
  // program calls the host: the call is complete when the calls of the host have ended.
  std::shared_ptr<Outcome> run_outcome = {}, outcome = {};
};

// Fails if a buffer that is donated is also another argument of the call.
absl::Status CheckDonations(const PendingCall& call, size_t num_devices) {
  if (std::find(call.donated.begin(), call.donated.end(), true) == call.donated.end())
    return absl::OkStatus();
  // The buffers on the first device, sorted by their contents, with the number of the argument.
  std::vector<std::tuple<const ArrayCell*, int, size_t>> shards;
  for (size_t i = 0; i < call.donated.size(); ++i) {
    const CellShard& shard = call.args[i * num_devices];
    if (shard.cell) shards.emplace_back(shard.cell.get(), shard.ordinal, i);
  }
  std::sort(shards.begin(), shards.end());
  for (size_t n = 1; n < shards.size(); ++n) {
    const auto& [cell, ordinal, i] = shards[n - 1];
    const auto& [other_cell, other_ordinal, j] = shards[n];
    if (cell != other_cell || ordinal != other_ordinal || !(call.donated[i] || call.donated[j]))
      continue;
    return MakeError(
        ErrorKind::kValueError,
        absl::StrCat(call.compiled->executable->name, ": arguments ", i, " and ", j,
                     " are the same buffer, which is donated; donate an array once and "
                     "use it once"));
  }
  return absl::OkStatus();
}

// Checks the arguments and collects their contents in `call`. Deletes the buffers that are donated,
// as the framework must not use them any more.
absl::Status CollectArguments(const CompiledProgram& compiled, LoadedExecutable_Execute_Args* args,
                              PendingCall* call) {
  const size_t num_devices = args->num_devices;
  if (compiled.donates) call->donated = compiled.donated;
  for (size_t i = 0; i < args->options->num_non_donatable_input_indices; ++i) {
    const int64_t kept = args->options->non_donatable_input_indices[i];
    if (kept >= 0 && static_cast<size_t>(kept) < call->donated.size()) call->donated[kept] = false;
  }
  call->args.reserve(args->num_args * num_devices);
  for (size_t i = 0; i < args->num_args; ++i) {
    const Boundary& boundary = compiled.in[i];
    for (size_t k = 0; k < num_devices; ++k) {
      const Buffer& buffer = *args->argument_lists[k][i];
      if (!boundary.is_token &&
          (buffer.dtype != boundary.spec.dtype || buffer.dims != boundary.local_shape)) {
        return MakeError(
            ErrorKind::kTypeError,
            absl::StrCat(ArgumentName(compiled, i), ": the program takes ",
                         ir::MakeType(boundary.spec.dtype, boundary.local_shape).ToString(),
                         " on each device, and was given ",
                         ir::MakeType(buffer.dtype, buffer.dims).ToString(), " on device ",
                         compiled.devices[k]->id));
      }
      absl::StatusOr<CellShard> shard = boundary.is_token ? CellShard() : buffer.shard();
      if (!shard.ok()) return Annotate(shard.status(), ArgumentName(compiled, i));
      call->args.push_back(*std::move(shard));
    }
  }
  TESSERA_RETURN_IF_ERROR(CheckDonations(*call, num_devices));
  for (size_t i = 0; i < call->donated.size(); ++i) {
    for (size_t k = 0; call->donated[i] && k < num_devices; ++k)
      args->argument_lists[k][i]->Delete();
  }
  call->results.resize(compiled.out.size());
  return absl::OkStatus();
}

// Makes the buffers of the results.
void MakeResultBuffers(const PendingCall& call, LoadedExecutable_Execute_Args* args) {
  const CompiledProgram& compiled = *call.compiled;
  for (size_t i = 0; i < compiled.out.size(); ++i) {
    const Boundary& boundary = compiled.out[i];
    for (size_t k = 0; k < args->num_devices; ++k) {
      Buffer*& buffer = args->output_lists[k][i];
      if (boundary.is_token) {
        buffer = new Buffer(compiled.devices[k], ir::DType::kBool, {},
                            {std::make_shared<ArrayCell>(ir::Array(ir::DType::kBool, {}))},
                            call.outcome);
        buffer->is_token = true;
      } else {
        buffer = new Buffer(compiled.devices[k], boundary.spec.dtype, boundary.local_shape,
                            {call.results[i], boundary.ordinals[k], boundary.IsZero(k)},
                            call.run_outcome);
      }
    }
  }
  for (size_t k = 0; args->device_complete_events != nullptr && k < args->num_devices; ++k)
    args->device_complete_events[k] = new Event{call.outcome};
}

// Adds the run of the call to the live runs of the client. A run that calls the host is never
// cancelled because its results were dropped, since its calls are wanted.
void AddLiveRun(PendingCall& call) {
  const CompiledProgram& compiled = *call.compiled;
  std::vector<LiveRunRef> makers;
  // The shards of an argument, and the results of a run, are often neighbours.
  const auto add_maker = [&makers](LiveRunRef run) {
    if (run != nullptr && (makers.empty() || makers.back() != run))
      makers.push_back(std::move(run));
  };
  const ArrayCell* last = nullptr;
  for (const CellShard& shard : call.args) {
    if (shard.cell == nullptr || shard.cell.get() == last) continue;
    last = shard.cell.get();
    add_maker(last->run());
    add_maker(last->assembled_run());
  }
  call.run = compiled.client->live_runs->Add(std::move(makers));
  if (compiled.sent.prints || !compiled.calls_before_run.empty()) call.run->Detach();
}

// Makes the cells of the results that have none.
void MakeMissingCells(PendingCall& call) {
  for (size_t i = 0; i < call.results.size(); ++i)
    if (!call.results[i] && !call.compiled->out[i].is_token)
      call.results[i] = std::make_shared<ArrayCell>(call.run);
}

// Requests the run, and fills the cells of the results. Sets `first_result` to an array that the
// run makes; the array is ready when the run ends. An argument is first looked up as an existing
// array, and assembled only if there is none. Calls of the host whose results are arguments are
// made here, before the run.
absl::Status TryRequestRun(PendingCall& call, tessera::Array* first_result) {
  const CompiledProgram& compiled = *call.compiled;
  Client& client = *compiled.client;
  const size_t num_devices = compiled.devices.size();
  absl::InlinedVector<tessera::Array, 4> arrays;
  std::vector<bool> donate;
  arrays.reserve(compiled.in.size());
  for (size_t i = 0; i < compiled.in.size(); ++i) {
    if (compiled.in[i].is_token) continue;
    const ArgumentShards shards(&call.args[i * num_devices], num_devices);
    tessera::Array whole = ArrayWithShards(shards, compiled.in[i]);
    if (!whole.valid()) {
      TESSERA_ASSIGN_OR_RETURN(whole, Assemble(compiled, shards, i));
    } else if (const api::Placement& to = compiled.in[i].spec.placement;
               compiled.in[i].other_placement) {
      whole = client.session->Reshard(whole, Mesh{to.mesh, to.devices}, to.spec, Site{});
    }
    arrays.push_back(std::move(whole));
    if (!call.donated.empty()) donate.push_back(call.donated[i]);
  }
  // Drop the cells before the run is sent, so that donated arrays that nobody else holds are
  // released with it.
  call.args.clear();
  if (!compiled.calls_before_run.empty()) {
    TESSERA_ASSIGN_OR_RETURN(const std::vector<tessera::Array> host_results,
                             MakeCallsBeforeRun(compiled, arrays));
    arrays.insert(arrays.end(), host_results.begin(), host_results.end());
    if (!donate.empty()) donate.resize(arrays.size());
  }
  std::vector<tessera::Array> results =
      client.session->Run(*compiled.executable, arrays, std::move(donate), Site{});
  // All results of a run are ready at the same time, so the first one stands for all.
  if (!results.empty()) *first_result = results.front();
  call.run->NoteAccepted(results.empty() ? 0 : internal::AsConcrete(results.front())->operation);
  if (compiled.sent.prints) {
    const auto first_printed = results.end() - compiled.sent.num_printed;
    const std::vector<tessera::Array> record(first_printed, results.end());
    results.erase(first_printed, results.end());
    // A run that drops calls fails, so its results must not be used before that is known. The check
    // is made here and not on the thread for calls, because a call may itself request such a run.
    TESSERA_RETURN_IF_ERROR(CheckNoCallDropped(compiled, record));
    MakeCallsAfterRun(call.compiled, record, call.run, call.outcome);
    // If a nested call returned something that the program needed, the results are wrong. That is
    // known only once all calls have been made, so wait for them.
    if (!compiled.nested_calls.empty()) TESSERA_RETURN_IF_ERROR(call.outcome->Await());
  }
  auto result = results.begin();
  for (size_t i = 0; i < call.results.size(); ++i) {
    std::shared_ptr<ArrayCell>& cell = call.results[i];
    if (compiled.out[i].is_token) continue;
    if (cell) {
      cell->Fill(std::move(*result++));
    } else {
      cell = std::make_shared<ArrayCell>(std::move(*result++), call.run);
    }
  }
  return absl::OkStatus();
}

struct RequestedRun {
  absl::Status status;
  tessera::Array first_result;  // an array that the run makes; invalid if it makes none
};
// Like TryRequestRun, but stores an error in the result cells, so that it is reported where a
// result is first used.
RequestedRun RequestRun(PendingCall& call) {
  RequestedRun out;
  if (call.compiled->client->closing.load()) {
    out.status = absl::CancelledError("the client has been closed");
  } else if (call.run->IsCancelled()) {
    out.status = MakeError(ErrorKind::kCancelled,
                           absl::StrCat(call.compiled->executable->name,
                                        " was cancelled before it was sent to the coordinator"));
  } else {
    out.status = CatchExceptions([&] { return TryRequestRun(call, &out.first_result); });
  }
  if (!out.status.ok()) {
    call.run->NoteEnded();
    MakeMissingCells(call);
  }
  for (size_t i = 0; !out.status.ok() && i < call.results.size(); ++i)
    if (call.results[i]) call.results[i]->Fail(out.status);
  return out;
}

// Requests the run on this thread, and makes the outcomes of the call.
void RequestRunNow(PendingCall& call) {
  Client& client = *call.compiled->client;
  if (call.compiled->sent.prints) call.outcome = std::make_shared<Outcome>();
  const RequestedRun requested = RequestRun(call);
  if (requested.status.ok() && requested.first_result.valid()) {
    call.run_outcome = OutcomeOfRun(client, requested.first_result);
  } else {
    call.run_outcome = std::make_shared<Outcome>(requested.status);
  }
  call.run->SetOutcome(call.run_outcome);
  if (!call.outcome) call.outcome = call.run_outcome;
  // If the run was requested and calls the host, MakeCallsAfterRun settles the outcome of the call.
  if (!requested.status.ok()) call.outcome->Settle(requested.status);
}

// Requests the run as a job of the queue. Unlike in RequestRunNow, the outcomes already exist,
// because buffers refer to them. Returns the part of the job that settles the end of the run.
RunQueue::FollowUp RequestQueuedRun(PendingCall call) {
  return [requested = RequestRun(call), client = call.compiled->client,
          run_outcome = std::move(call.run_outcome)] {
    if (requested.status.ok() && requested.first_result.valid()) {
      SettleAtEndOfRun(*client, requested.first_result, run_outcome);
    } else {
      run_outcome->Settle(requested.status);
    }
  };
}

}  // namespace

// Checks the call, makes the buffers of its results, and requests the run either at once or as a
// job of the queue. In the second case the buffers exist before the run: they get empty cells,
// which the job fills. So an error that the job finds cannot be returned here; it is reported where
// a result is first used.
Error* LoadedExecutable_Execute(LoadedExecutable_Execute_Args* args) {
  return Guarded([args]() -> absl::Status {
    const CompiledProgram& compiled = *args->executable->compiled;
    if (args->executable->deleted.load()) {
      return MakeError(ErrorKind::kProgramNotFound,
                       absl::StrCat(compiled.executable->name, ": the executable was deleted"));
    }
    if (args->num_devices != compiled.devices.size() || args->num_args != compiled.in.size()) {
      return MakeError(
          ErrorKind::kTypeError,
          absl::StrCat(compiled.executable->name, ": takes ", compiled.in.size(), " arguments on ",
                       compiled.devices.size(), " devices, and was given ", args->num_args, " on ",
                       args->num_devices));
    }
    PendingCall call{args->executable->compiled};
    TESSERA_RETURN_IF_ERROR(CollectArguments(compiled, args, &call));
    AddLiveRun(call);
    Client& client = *compiled.client;
    // On an embedded cluster requesting a run costs no more than handing it to another thread. A
    // program that calls the host is run here because the calls' results are waited for, and
    // because a callback may request runs itself.
    if (client.embedded || compiled.sent.prints || !compiled.calls_before_run.empty()) {
      if (!client.embedded) client.run_queue.DoWaitingJobs();
      RequestRunNow(call);
      MakeResultBuffers(call, args);
      return absl::OkStatus();
    }
    call.run_outcome = call.outcome = std::make_shared<Outcome>();
    call.run->SetOutcome(call.run_outcome);
    MakeMissingCells(call);
    MakeResultBuffers(call, args);
    client.run_queue.Push(
        [call = std::move(call)]() mutable { return RequestQueuedRun(std::move(call)); });
    return absl::OkStatus();
  });
}

}  // namespace tessera::pjrt
