// Runs. Arguments come as the buffers of each device: those that are the shards of one array, where
// the program wants them, are that array; others become one.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "client/pjrt/buffer.h"
#include "client/pjrt/executable.h"
#include "client/pjrt/status.h"
#include "client/trace.h"
#include "ir/api/placement.h"

namespace tessera::pjrt {
namespace {

// The buffers of one argument, by partition.
using Row = std::vector<Buffer*>;

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
  const api::Placement& want = boundary.spec.placement;
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

// The array whose shards the buffers are; invalid if they are not those of one.
tessera::Array WholeOf(const Row& row, const Boundary& boundary) {
  const auto array_of = [&](size_t k) {
    return row[k]->ArrayIfShard(boundary.ordinals[k], boundary.IsZero(k));
  };
  tessera::Array first = array_of(0);
  if (!first.valid()) return {};
  for (size_t k = 1; k < row.size(); ++k) {
    if (array_of(k).state() != first.state()) return {};
  }
  return FitsBoundary(first, boundary) ? first : tessera::Array();
}

// Puts the array that the buffers are the shards of.
absl::StatusOr<tessera::Array> Assemble(const Compiled& compiled, const Row& row, size_t i) {
  const Boundary& boundary = compiled.in[i];
  std::vector<Contents> contents;
  for (const Buffer* buffer : row) {
    // As it is: of a long chain of runs, each would add its word.
    TESSERA_RETURN_IF_ERROR(buffer->ready->status());
    absl::StatusOr<Contents> found = buffer->contents();
    if (!found.ok()) return Annotate(found.status(), What(compiled, i));
    contents.push_back(*std::move(found));
  }
  const api::Placement& placement = boundary.spec.placement;
  if (api::HoldsTerms(placement) || !boundary.sum.empty()) {
    return MakeError(ErrorKind::kNotImplemented,
                     "an argument of terms that nobody has added up, from several buffers");
  }
  ir::Array whole;
  if (boundary.local == boundary.spec.shape) {  // each has all of it
    if (contents[0].bytes) {
      whole = *contents[0].bytes;
    } else {
      TESSERA_ASSIGN_OR_RETURN(whole, ReadShard(*compiled.client, contents[0], *row[0]));
    }
  } else {
    whole = ir::Array(boundary.spec.dtype, boundary.spec.shape);
    const std::vector<int> distinct = api::OrdinalsOfDistinctShards(placement, boundary.spec.shape);
    for (size_t k = 0; k < row.size(); ++k) {
      const int ordinal = boundary.ordinals[k];
      if (!std::binary_search(distinct.begin(), distinct.end(), ordinal)) continue;
      ir::Array shard;
      if (contents[k].bytes) {
        shard = *contents[k].bytes;
      } else {
        TESSERA_ASSIGN_OR_RETURN(shard, ReadShard(*compiled.client, contents[k], *row[k]));
      }
      ir::WriteBlock(&whole, api::ShardStarts(placement, boundary.spec.shape, ordinal), shard);
    }
  }
  const tessera::Array array = compiled.client->session->Put(
      whole, Mesh{placement.mesh, placement.devices}, placement.spec, Site{});
  for (size_t k = 0; k < row.size(); ++k) row[k]->Sent(array, boundary.ordinals[k]);
  return array;
}

absl::StatusOr<tessera::Array> Argument(const Compiled& compiled, const Row& row, size_t i) {
  const Boundary& boundary = compiled.in[i];
  for (size_t k = 0; k < row.size(); ++k) {
    if (row[k]->dtype == boundary.spec.dtype && row[k]->dims == boundary.local) continue;
    return MakeError(ErrorKind::kTypeError,
                     absl::StrCat(What(compiled, i), ": the program takes ",
                                  ir::MakeType(boundary.spec.dtype, boundary.local).ToString(),
                                  " on each device, and was given ",
                                  ir::MakeType(row[k]->dtype, row[k]->dims).ToString(),
                                  " on device ", compiled.devices[k]->id));
  }
  if (tessera::Array whole = WholeOf(row, boundary); whole.valid()) return whole;
  return Assemble(compiled, row, i);
}

// What the program is given.
struct Given {
  std::vector<tessera::Array> arrays;
  std::vector<bool> donate;  // by array; empty: none
  std::vector<bool> takes;   // the same by argument
};

absl::Status Gather(const Compiled& compiled, LoadedExecutable_Execute_Args* args, Given* out) {
  if (compiled.donates) out->takes = compiled.donated;
  for (size_t i = 0; i < args->options->num_non_donatable_input_indices; ++i) {
    const int64_t kept = args->options->non_donatable_input_indices[i];
    if (kept >= 0 && static_cast<size_t>(kept) < out->takes.size()) out->takes[kept] = false;
  }
  out->arrays.reserve(args->num_args);
  Row row(args->num_devices);
  for (size_t i = 0; i < args->num_args; ++i) {
    if (compiled.in[i].token) continue;
    for (size_t k = 0; k < row.size(); ++k) row[k] = args->argument_lists[k][i];
    TESSERA_ASSIGN_OR_RETURN(tessera::Array array, Argument(compiled, row, i));
    out->arrays.push_back(std::move(array));
    if (!out->takes.empty()) out->donate.push_back(out->takes[i]);
  }
  return absl::OkStatus();
}

// Runs the program, and fills in what the call gives.
absl::Status Run(const Compiled& compiled, Given given, LoadedExecutable_Execute_Args* args) {
  Client& client = *compiled.client;
  TESSERA_ASSIGN_OR_RETURN(std::vector<tessera::Array> answers, Ask(compiled, given.arrays));
  given.arrays.insert(given.arrays.end(), answers.begin(), answers.end());
  if (!given.donate.empty()) given.donate.resize(given.arrays.size());
  std::vector<tessera::Array> results =
      client.session->Run(*compiled.executable, given.arrays, given.donate, Site{});
  const size_t num_devices = args->num_devices;
  for (size_t i = 0; i < given.takes.size(); ++i) {
    for (size_t k = 0; given.takes[i] && k < num_devices; ++k) args->argument_lists[k][i]->Delete();
  }
  // All of the run's results are there at once.
  const std::shared_ptr<Outcome> end =
      results.empty() ? Settled() : EndOfRun(client, results.front());
  // A run has ended for the framework when its calls have been made.
  std::shared_ptr<Outcome> complete = end;
  if (compiled.sent.prints) {
    const auto first_read = results.end() - compiled.sent.num_printed;
    complete = client.calls.Make(args->executable->compiled, {first_read, results.end()});
    results.erase(first_read, results.end());
    // The results are not those of the program if one of these calls had to be waited for.
    if (!compiled.late.empty()) TESSERA_RETURN_IF_ERROR(complete->Await());
  }
  auto result = results.begin();
  for (size_t i = 0; i < compiled.out.size(); ++i) {
    const Boundary& boundary = compiled.out[i];
    for (size_t k = 0; k < num_devices; ++k) {
      Buffer*& buffer = args->output_lists[k][i];
      if (boundary.token) {
        buffer = new Buffer(compiled.devices[k], ir::DType::kBool, {},
                            {ir::Array(ir::DType::kBool, {}), {}, 0}, complete);
        buffer->token = true;
      } else {
        buffer = new Buffer(compiled.devices[k], boundary.spec.dtype, boundary.local,
                            {std::nullopt, *result, boundary.ordinals[k], boundary.IsZero(k)}, end);
      }
    }
    if (!boundary.token) ++result;
  }
  for (size_t k = 0; args->device_complete_events != nullptr && k < num_devices; ++k)
    args->device_complete_events[k] = new Event{complete};
  return absl::OkStatus();
}

// Gives results that have failed.
void FillFailed(const Compiled& compiled, const absl::Status& why,
                LoadedExecutable_Execute_Args* args) {
  const auto failed = std::make_shared<Outcome>(why);
  for (size_t k = 0; k < compiled.devices.size(); ++k) {
    for (size_t i = 0; i < compiled.out.size(); ++i) {
      const Boundary& boundary = compiled.out[i];
      Buffer*& buffer = args->output_lists[k][i];
      buffer = boundary.token ? new Buffer(compiled.devices[k], ir::DType::kBool, {}, {}, failed)
                              : new Buffer(compiled.devices[k], boundary.spec.dtype, boundary.local,
                                           {}, failed);
      buffer->token = boundary.token;
    }
    if (args->device_complete_events != nullptr)
      args->device_complete_events[k] = new Event{failed};
  }
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
    Given given;
    absl::Status status = Caught([&] { return Gather(compiled, args, &given); });
    const ErrorKind kind = status.ok() ? ErrorKind::kInternal : KindOf(status);
    if (kind == ErrorKind::kTypeError || kind == ErrorKind::kArrayDeleted)
      return status;  // the call makes no sense
    // What goes wrong otherwise is told where a result is used, as of a run that fails.
    if (status.ok()) status = Caught([&] { return Run(compiled, std::move(given), args); });
    if (!status.ok()) FillFailed(compiled, status, args);
    return absl::OkStatus();
  });
}

}  // namespace tessera::pjrt
