// The commands of an executor: programs, launches, transfers, writes, reads and deletions.
// executor.cc passes each command of the current stream and epoch to CarryOut. The commands check
// that the coordinator never asks for something impossible.
#include <algorithm>
#include <utility>

#include "absl/strings/str_join.h"
#include "base/status.h"
#include "tests/sim/executor.h"

namespace tessera::sim {
namespace {

constexpr absl::Duration kCollectiveTimeout = absl::Seconds(30);
// The time after which a silent connection to a peer is given up.
constexpr absl::Duration kKeepalive = absl::Seconds(10);
constexpr absl::Duration kTryAgain = absl::Milliseconds(5);

// Returns the command as text for the transcript.
std::string CommandText(const api::Command& command) {
  const auto ids = [](const std::vector<uint64_t>& list) { return absl::StrJoin(list, ","); };
  if (const auto* c = std::get_if<api::Launch>(&command))
    return absl::StrCat("launch ", c->launch, " (", ids(c->args), ") -> (", ids(c->results), ")");
  if (const auto* c = std::get_if<api::Transfer>(&command))
    return absl::StrCat("transfer ", c->launch, " (", c->shards.at(0).pieces.at(0).source, ") -> (",
                        c->result, ")");
  if (const auto* c = std::get_if<api::LoadProgram>(&command))
    return absl::StrCat("program ", c->executable);
  if (const auto* c = std::get_if<api::SaveShards>(&command))
    return absl::StrCat("save ", c->launch, " to ", c->path, ", part ", c->part, " of ", c->parts);
  if (const auto* c = std::get_if<api::LoadShards>(&command))
    return absl::StrCat("load ", c->launch, " from ", c->path);
  if (const auto* c = std::get_if<api::DeleteBuffers>(&command))
    return absl::StrCat("delete ", ids(c->arrays));
  if (const auto* c = std::get_if<api::CancelLaunch>(&command))
    return absl::StrCat("cancel ", c->launch, ": ", std::string(c->why.message()));
  return "";
}

absl::Status PeerFailedError(const std::string& what) {
  return MakeError(ErrorKind::kPeerFailed, what);
}

}  // namespace

// Carries out one command. Launches, transfers and deletions wait in the queue of their devices, so
// that a deletion comes after the launches before it. Other commands take effect at once.
void Executor::CarryOut(const api::Command& command) {
  if (const std::string text = CommandText(command); !text.empty())
    world_->Log(name_, " gets ", text);
  std::visit(
      [&](const auto& c) {
        using C = std::decay_t<decltype(c)>;
        if constexpr (requires { On(c); }) {
          On(c);
        } else if constexpr (std::is_same_v<C, api::CancelLaunch>) {
          Cancel(c.launch, c.why);
        } else if constexpr (std::is_same_v<C, api::DeleteBuffers>) {
          for (int32_t device = 0; device < devices_; ++device)
            memory_.queue.push_back({c, 1u << device});
          Advance();
        } else if constexpr (std::is_same_v<C, api::UnloadPrograms>) {
          for (uint64_t id : c.executables) memory_.programs.erase(id);
        } else if constexpr (std::is_same_v<C, api::CloseCommunicator>) {
          memory_.generations.erase(c.generation);
          for (const auto& [launch, running] : std::map<uint64_t, RunningLaunch>(memory_.running))
            if (running.generation == c.generation)
              LeaveGang(launch, PeerFailedError("the communicator was closed"));
        } else if constexpr (std::is_same_v<C, api::AcknowledgeReports>) {
          Acknowledge(c.through);
        }
      },
      command);
}

void Executor::On(const api::LoadProgram& c) {
  Program program;
  for (const ir::ValueId v : c.program.entry->results) program.sources.push_back(v);
  for (const auto& [mesh_device, device] : c.LocalDevices()) program.devices.push_back(device);
  memory_.programs[c.executable] = std::move(program);
  Later(world_->random().Within(absl::Milliseconds(1), absl::Milliseconds(300)),
        [this, id = c.executable] {
          if (const auto it = memory_.programs.find(id); it != memory_.programs.end())
            it->second.loaded = true;
          world_->Log(name_, " has program ", id);
          Report(api::ProgramLoaded{id, absl::OkStatus(), 64});
        });
}

void Executor::On(const api::ConfigureCommunicator& c) {
  memory_.generations[c.generation] = c.members;
  Later(absl::Milliseconds(1), [this, generation = c.generation] {
    Report(api::CommunicatorReady{generation, absl::OkStatus()});
  });
}

void Executor::Expect(uint64_t array, int32_t device) {
  if (memory_.deleted.count({array, device}) == 0) memory_.buffers.try_emplace({array, device});
}

void Executor::CheckSequence(uint64_t sequence) {
  if (sequence == 0) return;  // The launch was sent in an earlier life, and its place is not known.
  if (sequence <= memory_.last_sequence)
    world_->Violate(name_, " got sequence ", sequence, " after ", memory_.last_sequence);
  memory_.last_sequence = sequence;
}

void Executor::On(const api::Launch& c) {
  CheckSequence(c.sequence);
  memory_.unreported[c.launch] = {c.sequence, c.generation};
  const auto program = memory_.programs.find(c.executable);
  if (program == memory_.programs.end())
    return world_->Violate("launch ", c.launch, " names executable ", c.executable, ", which ",
                           name_, " does not have");
  for (uint64_t result : c.results)
    for (int32_t device : program->second.devices) Expect(result, device);
  QueuedCommand queued{c, 0, program->second};
  for (int32_t device : program->second.devices) queued.devices |= 1u << device;
  if (const auto it = memory_.generations.find(c.generation); it != memory_.generations.end())
    queued.members = it->second;
  memory_.queue.push_back(std::move(queued));
  Advance();
}

void Executor::On(const api::Transfer& c) {
  CheckSequence(c.sequence);
  memory_.unreported[c.launch] = {c.sequence, 0};
  QueuedCommand queued{c};
  for (const auto& shard : c.shards) {
    Expect(c.result, shard.device);
    queued.devices |= 1u << shard.device;
  }
  memory_.queue.push_back(std::move(queued));
  Advance();
}

void Executor::On(const api::WriteBuffer& c) {
  const Key key{c.array, c.device};
  if (memory_.deleted.count(key) > 0 || PendingDeletions().count(key) > 0)
    return Report(api::BufferWritten{c.array, c.device,
                                     MakeError(ErrorKind::kArrayDeleted, "deleted meanwhile")});
  // A repeated write changes nothing.
  if (memory_.buffers.count(key) == 0) Resolve(key, {Buffer::kReady, c.value.At(0), {}});
  Report(api::BufferWritten{c.array, c.device, absl::OkStatus()});
}

void Executor::On(const api::ReadBuffer& c) {
  const Key key{c.array, c.device};
  if (memory_.deleted.count(key) > 0)
    return Answer({memory_.stream, c.request}, MakeError(ErrorKind::kArrayDeleted, "deleted"));
  const auto it = memory_.buffers.find(key);
  if (it == memory_.buffers.end())
    return Answer({memory_.stream, c.request}, MakeError(ErrorKind::kArrayNotFound, "not here"));
  memory_.readers[key].push_back({memory_.stream, c.request});
  if (it->second.state != Buffer::kExpected) Resolve(key, it->second);
}

void Executor::Resolve(const Key& key, Buffer buffer) {
  if (const auto readers = memory_.readers.extract(key)) {
    ir::Array value(ir::DType::kF32, {1});
    value.Set(0, buffer.value);
    for (const PendingRead& reader : readers.mapped()) {
      if (buffer.state == Buffer::kFailed) {
        Answer(reader, buffer.error);
      } else {
        Answer(reader, value);
      }
    }
  }
  if (const auto retained = memory_.retained.extract(key))
    for (const std::shared_ptr<Buffer>& each : retained.mapped()) *each = buffer;
  memory_.buffers[key] = std::move(buffer);
}

void Executor::Advance() {
  while (BeginNext()) continue;
}

bool Executor::BeginNext() {
  uint32_t busy = 0;
  for (const auto& [launch, running] : memory_.running) busy |= running.devices;
  for (size_t i = 0; i < memory_.queue.size() && busy != AllDevices(); ++i) {
    const uint32_t devices = memory_.queue[i].devices;
    if ((devices & busy) == 0) {
      const QueuedCommand next = std::move(memory_.queue[i]);
      memory_.queue.erase(memory_.queue.begin() + static_cast<std::ptrdiff_t>(i));
      BeginQueued(next);
      return true;
    }
    busy |= devices;
  }
  return false;
}

void Executor::BeginQueued(const QueuedCommand& next) {
  if (const auto* launch = std::get_if<api::Launch>(&next.command)) {
    world_->Log(name_, " begins ", launch->launch);
    memory_.running[launch->launch] = {next.devices, launch->generation};
    Begin(*launch, next);
  } else if (const auto* transfer = std::get_if<api::Transfer>(&next.command)) {
    world_->Log(name_, " begins ", transfer->launch);
    RunningLaunch& running = memory_.running[transfer->launch] = {next.devices};
    for (const auto& shard : transfer->shards)
      running.results[{transfer->result, shard.device}] = {};
    Begin(*transfer, world_->now());
  } else if (const auto* deletion = std::get_if<api::DeleteBuffers>(&next.command)) {
    for (int32_t device = 0; device < devices_; ++device)
      if (next.devices == 1u << device)
        for (uint64_t array : deletion->arrays) Delete(array, device);
  }
}

void Executor::Delete(uint64_t array, int32_t device) {
  Resolve({array, device}, {Buffer::kFailed, 0, MakeError(ErrorKind::kArrayDeleted, "deleted")});
  memory_.buffers.erase({array, device});
  memory_.deleted.emplace(Key{array, device}, memory_.epoch);
}

// Begins a launch whose turn has come. A missing argument is a violation, unless the operation has
// ended for the coordinator, which then only cancels the launch. From here on, donated arguments
// are gone. The results are computed from the arguments at once, but appear only when the run ends.
void Executor::Begin(const api::Launch& launch, const QueuedCommand& queued) {
  const Program& program = queued.program;
  for (size_t r = 0; r < launch.results.size(); ++r)
    for (int32_t device : program.devices)
      memory_.running.at(launch.launch).results[{launch.results[r], device}] = {};
  if (memory_.cancelled.count(launch.launch) > 0)
    return End(launch.launch, MakeError(ErrorKind::kCancelled, "cancelled in the queue"), true);
  std::map<Key, Buffer> results;
  for (int32_t device : program.devices) {
    for (uint64_t arg : launch.args) {
      const auto it = memory_.buffers.find({arg, device});
      if (it == memory_.buffers.end() && !fleet_->is_live(launch.launch))
        return End(launch.launch, MakeError(ErrorKind::kArrayDeleted, "it has ended"), true);
      if (it == memory_.buffers.end())
        return world_->Violate("launch ", launch.launch, " reads array ", arg, ", which ", name_,
                               " does not have",
                               memory_.deleted.count({arg, device}) ? ": deleted" : "");
      if (it->second.state == Buffer::kFailed)
        return End(launch.launch, it->second.error, /*inputs_kept=*/true);
      if (it->second.state == Buffer::kExpected)
        return world_->Violate("launch ", launch.launch, " reads array ", arg, " on ", name_,
                               " before it is made");
    }
    for (size_t r = 0; r < launch.results.size(); ++r)
      results[{launch.results[r], device}] =
          memory_.buffers.at({launch.args[program.sources[r]], device});
  }
  fleet_->checker->OnLaunchBegin(launch.launch, name_, incarnation_);
  for (size_t i = 0; i < launch.donate.size(); ++i)
    if (launch.donate[i])
      for (int32_t device : program.devices) {
        memory_.buffers.erase({launch.args[i], device});
        memory_.deleted.emplace(Key{launch.args[i], device}, memory_.epoch);
      }
  memory_.running.at(launch.launch).results = results;
  if (launch.generation != 0) return BeginGang(launch, queued.members);
  Run(launch, std::move(results));
}

// Lets this member wait for the other members of its gang. The last member that comes starts the
// run of all members. If a member is missing, the gang fails: soon if the process of that member is
// gone, otherwise after the timeout of collectives.
void Executor::BeginGang(const api::Launch& launch, const Members& generation) {
  if (generation.empty())
    return End(launch.launch, PeerFailedError("the communicator is closed"), false);
  if (memory_.failed_generations.count(launch.generation) > 0)
    return End(launch.launch, PeerFailedError("the communicator has failed"), false);
  Fleet::Gang& here = fleet_->rendezvous[launch.launch];
  if (here.members.empty()) here.sequence = launch.sequence;
  if (here.sequence != launch.sequence)
    world_->Violate("members of launch ", launch.launch, " have sequences ", here.sequence, " and ",
                    launch.sequence);
  here.members.push_back(this);
  memory_.running.at(launch.launch).launch = launch;
  for (const auto& member : generation) {
    const auto peer =
        fleet_->by_endpoint.find(absl::StrCat(member.executor, "#", member.incarnation));
    if (peer != fleet_->by_endpoint.end()) continue;
    return Later(world_->random().Within(absl::Milliseconds(1), absl::Milliseconds(300)),
                 [this, id = launch.launch, name = member.executor] {
                   LeaveGang(id, PeerFailedError(absl::StrCat(name, " is gone")));
                 });
  }
  if (here.members.size() < generation.size()) {
    return Later(kCollectiveTimeout, [this, id = launch.launch] {
      if (Runs(id) && fleet_->rendezvous.count(id) > 0)
        LeaveGang(id, MakeError(ErrorKind::kCollectiveTimeout, "a peer did not come"));
    });
  }
  RunGang(launch.launch);
}

void Executor::RunGang(uint64_t launch) {
  const auto it = fleet_->rendezvous.find(launch);
  if (it == fleet_->rendezvous.end()) return;
  absl::Time cut = absl::InfinitePast();
  for (const Executor* one : it->second.members)
    for (const Executor* other : it->second.members)
      cut = std::max(cut, fleet_->CutUntil(one->worker_, other->worker_));
  if (world_->now() < cut) {
    // Lost bytes are sent again, unless one side has given up the connection.
    if (world_->random().OneIn(2))
      return Later(cut - world_->now(), [this, launch] { RunGang(launch); });
    return Later(world_->random().Within(absl::ZeroDuration(), kKeepalive), [this, launch] {
      LeaveGang(launch, PeerFailedError("its connection to a peer broke"));
    });
  }
  // From now on, no member waits for another one.
  const std::vector<Executor*> members = std::exchange(it->second.members, {});
  fleet_->rendezvous.erase(it);
  for (Executor* member : members) {
    const RunningLaunch& running = member->memory_.running.at(launch);
    member->Run(running.launch, running.results);
  }
}

void Executor::LeaveGang(uint64_t launch, const absl::Status& why) {
  const auto it = fleet_->rendezvous.find(launch);
  if (it == fleet_->rendezvous.end()) return;
  const std::vector<Executor*> members = std::exchange(it->second.members, {});
  fleet_->rendezvous.erase(it);
  for (Executor* member : members) {
    if (!member->alive_) continue;
    member->Later(world_->random().Within(absl::Milliseconds(1), absl::Milliseconds(200)),
                  [member, launch, why] {
                    if (member->Runs(launch)) member->End(launch, why, false);
                  });
  }
}

void Executor::Run(const api::Launch& launch, std::map<Key, Buffer> results) {
  const absl::Duration time =
      world_->random().OneIn(50)
          ? world_->random().Within(absl::Milliseconds(100), absl::Seconds(4))
          : world_->random().Within(absl::Microseconds(50), absl::Milliseconds(20));
  Later(time, [this, launch, results = std::move(results), time] {
    if (memory_.running.erase(launch.launch) == 0) return;  // it was cancelled
    for (const auto& [key, buffer] : results)
      if (memory_.deleted.count(key) == 0) Resolve(key, buffer);
    api::LaunchDone done{launch.launch, time, {}};
    for (const auto& [result, device] : launch.inline_results) {
      ir::Array value(ir::DType::kF32, {1});
      value.Set(0, results.at({launch.results.at(result), device}).value);
      done.inline_results.push_back({launch.results.at(result), device, value});
    }
    Report(std::move(done));
    Advance();
  });
}

// Tries to read all pieces of a transfer, here or from peers, and tries again later while one of
// them is not ready or not reachable. A piece that a peer has deleted is a violation, because the
// coordinator must keep it until the transfer has ended. The exceptions are operations that have
// ended and deletions of an earlier life.
void Executor::Begin(const api::Transfer& transfer, absl::Time began_at) {
  if (!Runs(transfer.launch)) return;
  if (memory_.cancelled.count(transfer.launch) > 0)
    return End(transfer.launch, MakeError(ErrorKind::kCancelled, "cancelled"), true);
  if (world_->now() > began_at + transfer.timeout)
    return End(transfer.launch, MakeError(ErrorKind::kDeadlineExceeded, "too slow"), true);
  double value = 0;
  for (const auto& shard : transfer.shards) {
    for (const auto& piece : shard.pieces) {
      Executor* source = this;
      if (!piece.local) {
        const auto peer = fleet_->by_endpoint.find(piece.endpoint);
        if (peer == fleet_->by_endpoint.end())
          return End(transfer.launch, PeerFailedError(piece.endpoint + " is gone"), true);
        source = peer->second;
        if (world_->now() < fleet_->CutUntil(worker_, source->worker_)) {
          if (world_->now() > began_at + kKeepalive)
            return End(transfer.launch, PeerFailedError(piece.endpoint + " does not answer"), true);
          return Later(kTryAgain, [this, transfer, began_at] { Begin(transfer, began_at); });
        }
      }
      const Key key{piece.source, piece.source_device};
      const auto deleted = source->memory_.deleted.find(key);
      if (deleted != source->memory_.deleted.end() && !fleet_->is_live(transfer.launch))
        return End(transfer.launch, PeerFailedError("it has ended"), true);
      // If the deletion was not on the disk, a new life of the coordinator does not know of it.
      // That life learns of the deletion from the peer's inventory, or from this failure.
      if (deleted != source->memory_.deleted.end() && deleted->second < memory_.epoch)
        return End(transfer.launch, PeerFailedError("it was deleted before the restart"), true);
      if (deleted != source->memory_.deleted.end())
        return world_->Violate("transfer ", transfer.launch, " on ", name_, " reads array ",
                               piece.source, ", which ", source->name(), " has deleted already");
      const auto it = source->memory_.buffers.find(key);
      if (it != source->memory_.buffers.end() && it->second.state == Buffer::kFailed)
        return End(transfer.launch, it->second.error, true);
      if (it == source->memory_.buffers.end() || it->second.state == Buffer::kExpected)
        return Later(kTryAgain, [this, transfer, began_at] { Begin(transfer, began_at); });
      value = it->second.value;
    }
  }
  Copy(transfer, value);
}

void Executor::Copy(const api::Transfer& transfer, double value) {
  Later(world_->random().Within(absl::Microseconds(100), absl::Milliseconds(30)),
        [this, transfer, value] {
          if (memory_.running.erase(transfer.launch) == 0) return;
          for (const auto& shard : transfer.shards)
            if (memory_.deleted.count({transfer.result, shard.device}) == 0)
              Resolve({transfer.result, shard.device}, {Buffer::kReady, value, {}});
          fleet_->checker->OnLaunchBegin(transfer.launch, name_, incarnation_);
          Report(api::LaunchDone{transfer.launch, absl::Milliseconds(1), {}});
          Advance();
        });
}

void Executor::End(uint64_t launch, const absl::Status& status, bool inputs_kept) {
  if (const auto running = memory_.running.extract(launch)) {
    // The members of the gang may have left it at different points.
    if (const uint64_t generation = running.mapped().generation; generation != 0 && !inputs_kept)
      memory_.failed_generations.insert(generation);
    for (const auto& [key, buffer] : running.mapped().results)
      if (memory_.deleted.count(key) == 0) Resolve(key, {Buffer::kFailed, 0, status});
  }
  if (const auto it = fleet_->rendezvous.find(launch); it != fleet_->rendezvous.end())
    std::erase(it->second.members, this);
  Report(api::LaunchFailed{launch, status, inputs_kept});
  Later(absl::ZeroDuration(), [this] { Advance(); });
}

void Executor::Cancel(uint64_t launch, const absl::Status& why) {
  if (!Runs(launch)) {
    memory_.cancelled.insert(launch);
    return;
  }
  memory_.told.emplace(launch, world_->now());
  Later(world_->random().Within(absl::Microseconds(100), absl::Milliseconds(50)),
        [this, launch, why] {
          if (Runs(launch)) End(launch, why, false);
        });
}

}  // namespace tessera::sim
