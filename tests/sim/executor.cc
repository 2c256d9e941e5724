#include <algorithm>
#include <utility>

#include "absl/strings/str_join.h"
#include "base/status.h"
#include "tests/sim/worker.h"

namespace tessera::sim {
namespace {

constexpr absl::Duration kCollectiveTimeout = absl::Seconds(30);

// For the transcript.
std::string Text(const api::Command& command) {
  const auto ids = [](const std::vector<uint64_t>& list) { return absl::StrJoin(list, ","); };
  if (const auto* c = std::get_if<api::Launch>(&command))
    return absl::StrCat("launch ", c->launch, " (", ids(c->args), ") -> (", ids(c->results), ")");
  if (const auto* c = std::get_if<api::Transfer>(&command))
    return absl::StrCat("transfer ", c->launch, " (", c->shards.at(0).pieces.at(0).source, ") -> (",
                        c->result, ")");
  if (const auto* c = std::get_if<api::DeleteBuffers>(&command))
    return absl::StrCat("delete ", ids(c->arrays));
  if (const auto* c = std::get_if<api::CancelLaunch>(&command))
    return absl::StrCat("cancel ", c->launch, ": ", std::string(c->why.message()));
  return "";
}

absl::Status PeerFailed(const std::string& what) { return MakeError(ErrorKind::kPeerFailed, what); }

}  // namespace

std::string Executor::Name() const { return absl::StrCat(worker_->name(), "/", index_); }

api::ExecutorInfo Executor::Info() const {
  api::ExecutorInfo info;
  info.index = index_;
  info.incarnation = incarnation_;
  info.device_kind = "cpu";
  info.num_devices = devices_;
  info.data_endpoint = info.peer_data_endpoint = info.peer_endpoint =
      absl::StrCat(Name(), "#", incarnation_);
  return info;
}

absl::Duration Executor::silence() const {
  return world_->now() < frozen_until_ ? world_->now() - frozen_since_ : absl::ZeroDuration();
}

void Executor::Start(uint64_t incarnation) {
  alive_ = true;
  incarnation_ = incarnation;
  fleet_->by_endpoint[Info().peer_data_endpoint] = this;
}

void Executor::Die() {
  if (!alive_) return;
  alive_ = false;
  fleet_->by_endpoint.erase(Info().peer_data_endpoint);
  frozen_until_ = absl::InfinitePast();
  const uint64_t running = std::exchange(running_, 0);
  buffers_.clear();
  deleted_.clear();
  readers_.clear();
  programs_.clear();
  generations_.clear();
  queue_.clear();
  running_results_.clear();
  cancelled_.clear();
  last_sequence_ = 0;
  if (running != 0) LeaveGang(running, PeerFailed(absl::StrCat(Name(), " is gone")));
}

void Executor::FreezeFor(absl::Duration time) {
  if (!alive_ || world_->now() < frozen_until_) return;
  frozen_since_ = world_->now();
  frozen_until_ = world_->now() + time;
}

void Executor::Later(absl::Duration delay, std::function<void()> then) {
  world_->After(delay, [this, incarnation = incarnation_, then = std::move(then)] {
    if (!alive_ || incarnation_ != incarnation) return;
    if (world_->now() >= frozen_until_) return then();
    Later(frozen_until_ - world_->now(), then);
  });
}

void Executor::Report(api::ReportBody body) {
  worker_->Report(index_, incarnation_, std::move(body));
}

void Executor::Deliver(const api::Command& command) {
  if (const std::string text = Text(command); !text.empty()) world_->Log(Name(), " gets ", text);
  // Frozen: what it is sent waits in its socket, in order.
  if (world_->now() < frozen_until_)
    return Later(frozen_until_ - world_->now(), [this, command] { Deliver(command); });
  std::visit(
      [&](const auto& c) {
        using C = std::decay_t<decltype(c)>;
        if constexpr (requires { On(c); }) {
          On(c);
        } else if constexpr (std::is_same_v<C, api::CancelLaunch>) {
          Cancel(c.launch, c.why);
        } else if constexpr (std::is_same_v<C, api::DeleteBuffers>) {
          queue_.emplace_back(c);
          Advance();
        } else if constexpr (std::is_same_v<C, api::UnloadPrograms>) {
          for (uint64_t id : c.executables) programs_.erase(id);
        } else if constexpr (std::is_same_v<C, api::CloseCommunicator>) {
          generations_.erase(c.generation);
        }
      },
      command);
}

void Executor::On(const api::LoadProgram& c) {
  Program program;
  for (const ir::ValueId v : c.program.entry->results) program.sources.push_back(v);
  for (const auto& [mesh_device, device] : c.Local()) program.devices.push_back(device);
  programs_[c.executable] = std::move(program);
  Later(world_->random().Within(absl::Milliseconds(1), absl::Milliseconds(300)),
        [this, id = c.executable] {
          Report(api::ProgramLoaded{id, absl::OkStatus(), 64});
        });
}

void Executor::On(const api::ConfigureCommunicator& c) {
  generations_[c.generation] = c.members;
  Later(absl::Milliseconds(1), [this, generation = c.generation] {
    Report(api::CommunicatorReady{generation, absl::OkStatus()});
  });
}

void Executor::Expect(uint64_t array, int32_t device) {
  if (deleted_.count({array, device}) == 0) buffers_.try_emplace({array, device});
}

void Executor::On(const api::Launch& c) {
  if (c.sequence <= last_sequence_)
    world_->Violate(Name(), " got sequence ", c.sequence, " after ", last_sequence_);
  last_sequence_ = c.sequence;
  const auto program = programs_.find(c.executable);
  if (program == programs_.end())
    return world_->Violate("launch ", c.launch, " names executable ", c.executable, ", which ",
                           Name(), " does not have");
  for (uint64_t result : c.results)
    for (int32_t device : program->second.devices) Expect(result, device);
  queue_.emplace_back(c);
  Advance();
}

void Executor::On(const api::Transfer& c) {
  if (c.sequence <= last_sequence_)
    world_->Violate(Name(), " got sequence ", c.sequence, " after ", last_sequence_);
  last_sequence_ = c.sequence;
  for (const auto& shard : c.shards) Expect(c.result, shard.device);
  queue_.emplace_back(c);
  Advance();
}

void Executor::On(const api::WriteBuffer& c) {
  const Key key{c.array, c.device};
  if (deleted_.count(key) > 0)
    return Report(api::BufferWritten{c.array, c.device,
                                     MakeError(ErrorKind::kArrayDeleted, "deleted meanwhile")});
  Resolve(key, {Buffer::kReady, c.value.At(0), {}});
  Report(api::BufferWritten{c.array, c.device, absl::OkStatus()});
}

void Executor::On(const api::ReadBuffer& c) {
  const Key key{c.array, c.device};
  if (deleted_.count(key) > 0)
    return Report(api::BufferRead{c.request, MakeError(ErrorKind::kArrayDeleted, "deleted")});
  readers_[key].push_back(c.request);
  if (const auto it = buffers_.find(key);
      it != buffers_.end() && it->second.state != Buffer::kExpected)
    Resolve(key, it->second);
}

void Executor::Resolve(const Key& key, Buffer buffer) {
  for (uint64_t request : std::exchange(readers_[key], {})) {
    if (buffer.state == Buffer::kFailed) {
      Report(api::BufferRead{request, buffer.error});
    } else {
      ir::Array value(ir::DType::kF32, {1});
      value.Set(0, buffer.value);
      Report(api::BufferRead{request, value});
    }
  }
  buffers_[key] = std::move(buffer);
}

void Executor::Advance() {
  while (alive_ && running_ == 0 && !queue_.empty()) {
    const api::Command command = std::move(queue_.front());
    queue_.pop_front();
    if (const auto* launch = std::get_if<api::Launch>(&command)) {
      running_ = launch->launch;
      Begin(*launch);
    } else if (const auto* transfer = std::get_if<api::Transfer>(&command)) {
      running_ = transfer->launch;
      for (const auto& shard : transfer->shards)
        running_results_[{transfer->result, shard.device}] = {};
      Begin(*transfer, world_->now() + transfer->timeout);
    } else if (const auto* deletion = std::get_if<api::DeleteBuffers>(&command)) {
      for (uint64_t array : deletion->arrays)
        for (int32_t device = 0; device < devices_; ++device) {
          Resolve({array, device},
                  {Buffer::kFailed, 0, MakeError(ErrorKind::kArrayDeleted, "deleted")});
          buffers_.erase({array, device});
          deleted_.insert({array, device});
        }
    }
  }
}

void Executor::Begin(const api::Launch& launch) {
  const Program& program = programs_.at(launch.executable);
  for (size_t r = 0; r < launch.results.size(); ++r)
    for (int32_t device : program.devices) running_results_[{launch.results[r], device}] = {};
  if (cancelled_.count(launch.launch) > 0)
    return End(launch.launch, MakeError(ErrorKind::kCancelled, "cancelled in the queue"), true);
  std::map<Key, Buffer> results;
  for (int32_t device : program.devices) {
    for (uint64_t arg : launch.args) {
      const auto it = buffers_.find({arg, device});
      if (it == buffers_.end())
        return world_->Violate("launch ", launch.launch, " reads array ", arg, ", which ", Name(),
                               " does not have", deleted_.count({arg, device}) ? ": deleted" : "");
      if (it->second.state == Buffer::kFailed)
        return End(launch.launch, it->second.error, /*inputs_kept=*/true);
      if (it->second.state == Buffer::kExpected)
        return world_->Violate("launch ", launch.launch, " reads array ", arg, " on ", Name(),
                               " before it is made");
    }
    for (size_t r = 0; r < launch.results.size(); ++r)
      results[{launch.results[r], device}] = buffers_.at({launch.args[program.sources[r]], device});
  }
  for (size_t i = 0; i < launch.donate.size(); ++i)
    if (launch.donate[i])
      for (int32_t device : program.devices) {
        buffers_.erase({launch.args[i], device});
        deleted_.insert({launch.args[i], device});
      }
  running_results_ = std::move(results);
  if (launch.generation != 0) return BeginGang(launch);
  Run(launch, running_results_);
}

void Executor::BeginGang(const api::Launch& launch) {
  const auto generation = generations_.find(launch.generation);
  if (generation == generations_.end())
    return End(launch.launch, PeerFailed("the communicator is closed"), false);
  std::vector<Executor*>& here = fleet_->rendezvous[launch.launch];
  here.push_back(this);
  for (const auto& member : generation->second) {
    const auto peer =
        fleet_->by_endpoint.find(absl::StrCat(member.executor, "#", member.incarnation));
    if (peer != fleet_->by_endpoint.end()) continue;
    return Later(world_->random().Within(absl::Milliseconds(1), absl::Milliseconds(300)),
                 [this, id = launch.launch, name = member.executor] {
                   LeaveGang(id, PeerFailed(absl::StrCat(name, " is gone")));
                 });
  }
  if (here.size() < generation->second.size()) {
    return Later(kCollectiveTimeout, [this, id = launch.launch] {
      if (running_ == id && fleet_->rendezvous.count(id) > 0)
        LeaveGang(id, MakeError(ErrorKind::kCollectiveTimeout, "a peer did not come"));
    });
  }
  // All are here: they run, and no one of them waits for another any more.
  const std::vector<Executor*> members = std::exchange(here, {});
  fleet_->rendezvous.erase(launch.launch);
  for (Executor* member : members) member->Run(launch, member->running_results_);
}

void Executor::LeaveGang(uint64_t launch, const absl::Status& why) {
  const auto it = fleet_->rendezvous.find(launch);
  if (it == fleet_->rendezvous.end()) return;
  const std::vector<Executor*> members = std::exchange(it->second, {});
  fleet_->rendezvous.erase(it);
  for (Executor* member : members) {
    if (!member->alive_) continue;
    member->Later(world_->random().Within(absl::Milliseconds(1), absl::Milliseconds(200)),
                  [member, launch, why] {
                    if (member->running_ == launch) member->End(launch, why, false);
                  });
  }
}

void Executor::Run(const api::Launch& launch, std::map<Key, Buffer> results) {
  const absl::Duration time =
      world_->random().OneIn(50)
          ? world_->random().Within(absl::Milliseconds(100), absl::Seconds(4))
          : world_->random().Within(absl::Microseconds(50), absl::Milliseconds(20));
  Later(time, [this, launch, results = std::move(results), time] {
    if (running_ != launch.launch) return;  // it was cancelled
    running_ = 0;
    running_results_.clear();
    for (const auto& [key, buffer] : results)
      if (deleted_.count(key) == 0) Resolve(key, buffer);
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

void Executor::Begin(const api::Transfer& transfer, absl::Time until) {
  if (running_ != transfer.launch) return;
  if (cancelled_.count(transfer.launch) > 0)
    return End(transfer.launch, MakeError(ErrorKind::kCancelled, "cancelled"), true);
  if (world_->now() > until)
    return End(transfer.launch, MakeError(ErrorKind::kDeadlineExceeded, "too slow"), true);
  double value = 0;
  for (const auto& shard : transfer.shards) {
    for (const auto& piece : shard.pieces) {
      Executor* source = this;
      if (!piece.local) {
        const auto peer = fleet_->by_endpoint.find(piece.endpoint);
        if (peer == fleet_->by_endpoint.end())
          return End(transfer.launch, PeerFailed(piece.endpoint + " is gone"), true);
        source = peer->second;
      }
      const Key key{piece.source, piece.source_device};
      if (source->deleted_.count(key) > 0 && !fleet_->is_live(transfer.launch))
        return End(transfer.launch, PeerFailed("it has ended"), true);
      if (source->deleted_.count(key) > 0)
        return world_->Violate("transfer ", transfer.launch, " on ", Name(), " reads array ",
                               piece.source, ", which ", source->Name(), " has deleted already");
      const auto it = source->buffers_.find(key);
      if (it != source->buffers_.end() && it->second.state == Buffer::kFailed)
        return End(transfer.launch, it->second.error, true);
      if (it == source->buffers_.end() || it->second.state == Buffer::kExpected)
        return Later(absl::Milliseconds(5), [this, transfer, until] { Begin(transfer, until); });
      value = it->second.value;
    }
  }
  Later(world_->random().Within(absl::Microseconds(100), absl::Milliseconds(30)),
        [this, transfer, value] {
          if (running_ != transfer.launch) return;
          running_ = 0;
          running_results_.clear();
          for (const auto& shard : transfer.shards)
            if (deleted_.count({transfer.result, shard.device}) == 0)
              Resolve({transfer.result, shard.device}, {Buffer::kReady, value, {}});
          Report(api::LaunchDone{transfer.launch, absl::Milliseconds(1), {}});
          Advance();
        });
}

void Executor::End(uint64_t launch, const absl::Status& status, bool inputs_kept) {
  running_ = 0;
  for (const auto& [key, buffer] : std::exchange(running_results_, {}))
    if (deleted_.count(key) == 0) Resolve(key, {Buffer::kFailed, 0, status});
  if (const auto it = fleet_->rendezvous.find(launch); it != fleet_->rendezvous.end())
    std::erase(it->second, this);
  Report(api::LaunchFailed{launch, status, inputs_kept});
  Later(absl::ZeroDuration(), [this] { Advance(); });
}

void Executor::Cancel(uint64_t launch, const absl::Status& why) {
  if (running_ != launch) {
    cancelled_.insert(launch);
    return;
  }
  Later(world_->random().Within(absl::Microseconds(100), absl::Milliseconds(50)),
        [this, launch, why] {
          if (running_ == launch) End(launch, why, false);
        });
}

}  // namespace tessera::sim
