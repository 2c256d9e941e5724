// Runs. Arguments come as the buffers of each device: those that are the shards of one array, where
// the program wants them, are that array; others become one.
//
// The call itself checks what makes no sense, and makes the buffers of the results; the rest is a
// job of the client's queue of runs.
#include <algorithm>
#include <tuple>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "client/pjrt/buffer.h"
#include "client/pjrt/executable.h"
#include "client/pjrt/status.h"
#include "client/trace.h"
#include "ir/api/placement.h"

namespace tessera::pjrt {
namespace {

// What the buffers of one argument hold, by partition.
using Row = absl::Span<const Held>;

std::string What(const Compiled& compiled, size_t i) {
  return absl::StrCat(compiled.executable->name, ": argument ", i);
}

// Which term of a sum the shard is.
int64_t TermOf(const api::Placement& placement, int64_t ordinal) {
  return placement.mesh.IndexAlong(ordinal, placement.spec.unreduced);
}

// Whether the shards of the array are those of the boundary, on the same devices.
bool FitsBoundary(const tessera::Array& array, const Boundary& boundary) {
  if (array.dtype() != boundary.spec.dtype || array.shape() != boundary.spec.shape) return false;
  const api::Placement& have = array.placement();
  const api::Placement& want = boundary.placement();
  if (&have == &want || have == want) return true;
  if (have.devices != want.devices) return false;
  if (api::LocalShape(have, array.shape()) != boundary.local) return false;
  for (size_t i = 0; i < have.devices.size(); ++i) {
    const auto ordinal = static_cast<int64_t>(i);
    if (api::ShardStarts(have, array.shape(), ordinal) !=
            api::ShardStarts(want, array.shape(), ordinal) ||
        TermOf(have, ordinal) != TermOf(want, ordinal))
      return false;
  }
  return true;
}

// The array whose shards they are; invalid if they are not those of one.
tessera::Array WholeOf(Row row, const Boundary& boundary) {
  const auto arrays_of = [&](size_t k) {
    return row[k].cell->ArraysWith(boundary.ordinals[k], boundary.IsZero(k), row[k].ordinal,
                                   row[k].zero);
  };
  auto [own, made] = arrays_of(0);
  for (size_t k = 1; k < row.size() && (own.valid() || made.valid()); ++k) {
    const auto [other_own, other_made] = arrays_of(k);
    if (other_own.state() != own.state()) own = {};
    if (other_made.state() != made.state()) made = {};
  }
  if (own.valid() && FitsBoundary(own, boundary)) return own;
  return made.valid() && FitsBoundary(made, boundary) ? made : tessera::Array();
}

absl::StatusOr<ir::Array> BytesOf(const Compiled& compiled, const Contents& contents,
                                  const Boundary& boundary) {
  if (contents.bytes) return *contents.bytes;
  return ReadShard(*compiled.client, contents, boundary.spec.dtype, boundary.local);
}

// Makes the array that they are the shards of.
absl::StatusOr<tessera::Array> Assemble(const Compiled& compiled, Row row, size_t i) {
  const Boundary& boundary = compiled.in[i];
  std::vector<Contents> contents;
  for (const Held& held : row) {
    // An error is as it is: of a long chain of runs, each would add its word.
    TESSERA_ASSIGN_OR_RETURN(Contents found, held.contents());
    contents.push_back(std::move(found));
  }
  const api::Placement& placement = boundary.placement();
  if (api::HoldsTerms(placement) || !boundary.sum.empty()) {
    return MakeError(ErrorKind::kNotImplemented,
                     absl::StrCat(What(compiled, i),
                                  ": terms of a sum that nobody has added up, "
                                  "from several buffers"));
  }
  const api::Placement& to = boundary.spec.placement;
  const Mesh mesh{to.mesh, to.devices};
  Session& session = *compiled.client->session;
  tessera::Array array;
  if (boundary.local != boundary.spec.shape) {
    ir::Array whole(boundary.spec.dtype, boundary.spec.shape);
    const std::vector<int> distinct = api::OrdinalsOfDistinctShards(placement, boundary.spec.shape);
    for (size_t k = 0; k < row.size(); ++k) {
      const int ordinal = boundary.ordinals[k];
      if (!std::binary_search(distinct.begin(), distinct.end(), ordinal)) continue;
      TESSERA_ASSIGN_OR_RETURN(const ir::Array shard, BytesOf(compiled, contents[k], boundary));
      ir::WriteBlock(&whole, api::ShardStarts(placement, boundary.spec.shape, ordinal), shard);
    }
    array = session.Put(whole, mesh, to.spec, Site{});
  } else if (!contents[0].bytes && IsMoved(contents[0], boundary.local, placement.devices)) {
    array = session.Reshard(contents[0].array, mesh, to.spec, Site{});
  } else {
    TESSERA_ASSIGN_OR_RETURN(const ir::Array whole, BytesOf(compiled, contents[0], boundary));
    array = session.Put(whole, mesh, to.spec, Site{});
  }
  for (size_t k = 0; !boundary.elsewhere && k < row.size(); ++k)
    row[k].cell->Sent(array, boundary.ordinals[k]);
  return array;
}

// A call: what it is given, and where its results go.
struct Call {
  std::shared_ptr<const Compiled> compiled;
  // Those of the first argument on all devices, then the next one's.
  absl::InlinedVector<Held, 4> args = {};
  std::vector<bool> takes = {};  // by argument; empty: none
  // By result; null for a token, and until the run has been asked for.
  absl::InlinedVector<std::shared_ptr<Cell>, 2> results = {};
  // Of the run, and of what ends the call for the framework: when the program calls the host, the
  // end of that.
  std::shared_ptr<Outcome> end = {}, complete = {};
};

// What is donated is no other argument, too.
absl::Status CheckDonations(const Call& call, size_t num_devices) {
  if (std::find(call.takes.begin(), call.takes.end(), true) == call.takes.end())
    return absl::OkStatus();
  // Of the first device, by what they hold.
  std::vector<std::tuple<const Cell*, int, size_t>> held;
  for (size_t i = 0; i < call.takes.size(); ++i) {
    const Held& of = call.args[i * num_devices];
    if (of.cell) held.emplace_back(of.cell.get(), of.ordinal, i);
  }
  std::sort(held.begin(), held.end());
  for (size_t n = 1; n < held.size(); ++n) {
    const auto& [cell, ordinal, i] = held[n - 1];
    const auto& [other_cell, other_ordinal, j] = held[n];
    if (cell != other_cell || ordinal != other_ordinal || !(call.takes[i] || call.takes[j]))
      continue;
    return MakeError(
        ErrorKind::kValueError,
        absl::StrCat(call.compiled->executable->name, ": arguments ", i, " and ", j,
                     " are the same buffer, which is donated; donate an array once and "
                     "use it once"));
  }
  return absl::OkStatus();
}

// Checks the arguments, and takes those that are donated.
absl::Status Take(const Compiled& compiled, LoadedExecutable_Execute_Args* args, Call* call) {
  const size_t num_devices = args->num_devices;
  if (compiled.donates) call->takes = compiled.donated;
  for (size_t i = 0; i < args->options->num_non_donatable_input_indices; ++i) {
    const int64_t kept = args->options->non_donatable_input_indices[i];
    if (kept >= 0 && static_cast<size_t>(kept) < call->takes.size()) call->takes[kept] = false;
  }
  call->args.reserve(args->num_args * num_devices);
  for (size_t i = 0; i < args->num_args; ++i) {
    const Boundary& boundary = compiled.in[i];
    for (size_t k = 0; k < num_devices; ++k) {
      const Buffer& buffer = *args->argument_lists[k][i];
      if (!boundary.token &&
          (buffer.dtype != boundary.spec.dtype || buffer.dims != boundary.local)) {
        return MakeError(ErrorKind::kTypeError,
                         absl::StrCat(What(compiled, i), ": the program takes ",
                                      ir::MakeType(boundary.spec.dtype, boundary.local).ToString(),
                                      " on each device, and was given ",
                                      ir::MakeType(buffer.dtype, buffer.dims).ToString(),
                                      " on device ", compiled.devices[k]->id));
      }
      absl::StatusOr<Held> held = boundary.token ? Held() : buffer.held();
      if (!held.ok()) return Annotate(held.status(), What(compiled, i));
      call->args.push_back(*std::move(held));
    }
  }
  TESSERA_RETURN_IF_ERROR(CheckDonations(*call, num_devices));
  for (size_t i = 0; i < call->takes.size(); ++i) {
    for (size_t k = 0; call->takes[i] && k < num_devices; ++k) args->argument_lists[k][i]->Delete();
  }
  call->results.resize(compiled.out.size());
  return absl::OkStatus();
}

// Makes the buffers of the results.
void GiveResults(const Call& call, LoadedExecutable_Execute_Args* args) {
  const Compiled& compiled = *call.compiled;
  for (size_t i = 0; i < compiled.out.size(); ++i) {
    const Boundary& boundary = compiled.out[i];
    for (size_t k = 0; k < args->num_devices; ++k) {
      Buffer*& buffer = args->output_lists[k][i];
      if (boundary.token) {
        buffer =
            new Buffer(compiled.devices[k], ir::DType::kBool, {},
                       {std::make_shared<Cell>(ir::Array(ir::DType::kBool, {}))}, call.complete);
        buffer->token = true;
      } else {
        buffer = new Buffer(compiled.devices[k], boundary.spec.dtype, boundary.local,
                            {call.results[i], boundary.ordinals[k], boundary.IsZero(k)}, call.end);
      }
    }
  }
  for (size_t k = 0; args->device_complete_events != nullptr && k < args->num_devices; ++k)
    args->device_complete_events[k] = new Event{call.complete};
}

// Makes the cells of the results that have none.
void MakeCells(Call& call) {
  for (size_t i = 0; i < call.results.size(); ++i)
    if (!call.results[i] && !call.compiled->out[i].token)
      call.results[i] = std::make_shared<Cell>();
}

// Asks for the run, and fills the cells of the results. `first`: an array that the run makes.
absl::Status TryAskFor(Call& call, tessera::Array* first) {
  const Compiled& compiled = *call.compiled;
  Client& client = *compiled.client;
  const size_t num_devices = compiled.devices.size();
  absl::InlinedVector<tessera::Array, 4> arrays;
  std::vector<bool> donate;
  arrays.reserve(compiled.in.size());
  for (size_t i = 0; i < compiled.in.size(); ++i) {
    if (compiled.in[i].token) continue;
    const Row row(&call.args[i * num_devices], num_devices);
    tessera::Array whole = WholeOf(row, compiled.in[i]);
    if (!whole.valid()) {
      TESSERA_ASSIGN_OR_RETURN(whole, Assemble(compiled, row, i));
    } else if (const api::Placement& to = compiled.in[i].spec.placement; compiled.in[i].elsewhere) {
      whole = client.session->Reshard(whole, Mesh{to.mesh, to.devices}, to.spec, Site{});
    }
    arrays.push_back(std::move(whole));
    if (!call.takes.empty()) donate.push_back(call.takes[i]);
  }
  // What was taken, and nobody else has, goes with the run.
  call.args.clear();
  if (!compiled.asked.empty()) {
    TESSERA_ASSIGN_OR_RETURN(const std::vector<tessera::Array> answers, Ask(compiled, arrays));
    arrays.insert(arrays.end(), answers.begin(), answers.end());
    if (!donate.empty()) donate.resize(arrays.size());
  }
  std::vector<tessera::Array> results =
      client.session->Run(*compiled.executable, arrays, std::move(donate), Site{});
  // All of the run's results are there at once.
  if (!results.empty()) *first = results.front();
  if (compiled.sent.prints) {
    const auto first_read = results.end() - compiled.sent.num_printed;
    client.calls.Make(call.compiled, {first_read, results.end()}, call.complete);
    results.erase(first_read, results.end());
    // The results are not those of the program if one of these calls had to be waited for.
    if (!compiled.late.empty()) TESSERA_RETURN_IF_ERROR(call.complete->Await());
  }
  auto result = results.begin();
  for (size_t i = 0; i < call.results.size(); ++i) {
    std::shared_ptr<Cell>& cell = call.results[i];
    if (compiled.out[i].token) continue;
    if (cell) {
      cell->Fill(std::move(*result++));
    } else {
      cell = std::make_shared<Cell>(std::move(*result++));
    }
  }
  return absl::OkStatus();
}

struct Asked {
  absl::Status status;
  tessera::Array first;  // invalid if the run makes none
};
// The same. What goes wrong is told where a result is used, as of a run that fails.
Asked AskFor(Call& call) {
  Asked out;
  out.status = call.compiled->client->closing.load()
                   ? absl::CancelledError("the client has been closed")
                   : Caught([&] { return TryAskFor(call, &out.first); });
  if (!out.status.ok()) MakeCells(call);
  for (size_t i = 0; !out.status.ok() && i < call.results.size(); ++i)
    if (call.results[i]) call.results[i]->Fail(out.status);
  return out;
}

// Asks for the run on this thread.
void Run(Call& call) {
  Client& client = *call.compiled->client;
  if (call.compiled->sent.prints) call.complete = std::make_shared<Outcome>();
  const Asked asked = AskFor(call);
  if (asked.status.ok() && asked.first.valid()) {
    call.end = EndOfRun(client, asked.first);
  } else {
    call.end = std::make_shared<Outcome>(asked.status);
  }
  if (!call.complete) call.complete = call.end;
  // That of calls that are being made is theirs.
  if (!asked.status.ok()) call.complete->Settle(asked.status);
}

// The same as a job of the queue, whose outcomes are known before.
RunQueue::After RunLater(Call call) {
  return [asked = AskFor(call), client = call.compiled->client, end = std::move(call.end)] {
    if (asked.status.ok() && asked.first.valid()) {
      SettleAtEnd(*client, asked.first, end);
    } else {
      end->Settle(asked.status);
    }
  };
}

}  // namespace

Error* LoadedExecutable_Execute(LoadedExecutable_Execute_Args* args) {
  return Guarded([args]() -> absl::Status {
    const Compiled& compiled = *args->executable->compiled;
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
    Call call{args->executable->compiled};
    TESSERA_RETURN_IF_ERROR(Take(compiled, args, &call));
    Client& client = *compiled.client;
    // On an embedded cluster to ask for a run costs no more than to hand it over; and of a program
    // that calls the host the answers are waited for, and callbacks may ask for runs themselves.
    if (client.embedded || compiled.sent.prints || !compiled.asked.empty()) {
      if (!client.embedded) client.runs.Finish();
      Run(call);
      GiveResults(call, args);
      return absl::OkStatus();
    }
    call.end = call.complete = std::make_shared<Outcome>();
    MakeCells(call);
    GiveResults(call, args);
    client.runs.Push([call = std::move(call)]() mutable { return RunLater(std::move(call)); });
    return absl::OkStatus();
  });
}

}  // namespace tessera::pjrt
