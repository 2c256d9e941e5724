// The process of a simulated executor, and its streams to the coordinator. The daemon (daemon.cc)
// starts and kills it, and faults freeze it (sim.cc). Commands that arrive go to executor_run.cc
// and executor_files.cc.
#include "tests/sim/executor.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "base/status.h"

namespace tessera::sim {
namespace {

constexpr absl::Duration kAttachAgainMin = absl::Milliseconds(100);
constexpr absl::Duration kAttachAgainMax = absl::Seconds(2);

bool IsEndOfLaunch(const api::ReportBody& body) {
  return std::holds_alternative<api::LaunchDone>(body) ||
         std::holds_alternative<api::LaunchFailed>(body);
}

// Returns the launch whose end the report is about.
uint64_t EndedLaunch(const api::ReportBody& body) {
  const auto* done = std::get_if<api::LaunchDone>(&body);
  return done != nullptr ? done->launch : std::get<api::LaunchFailed>(body).launch;
}

}  // namespace

void Fleet::Cut(const std::string& one, const std::string& other, absl::Time until) {
  absl::Time& cut = cuts.try_emplace(std::minmax(one, other), absl::InfinitePast()).first->second;
  cut = std::max(cut, until);
}

absl::Time Fleet::CutUntil(const std::string& one, const std::string& other) const {
  const auto it = cuts.find(std::minmax(one, other));
  return it == cuts.end() ? absl::InfinitePast() : it->second;
}

Executor::Executor(World* world, Fleet* fleet, Coordinator* coordinator, Path* path,
                   std::string worker, int32_t index, int32_t devices)
    : world_(world),
      fleet_(fleet),
      coordinator_(coordinator),
      path_(path),
      worker_(std::move(worker)),
      name_(absl::StrCat(worker_, "/", index)),
      index_(index),
      devices_(devices) {}

api::ExecutorInfo Executor::Info() const {
  api::ExecutorInfo info;
  info.index = index_;
  info.incarnation = incarnation_;
  info.device_kind = "cpu";
  info.num_devices = devices_;
  info.data_endpoint = info.peer_data_endpoint = info.peer_endpoint =
      absl::StrCat(name_, "#", incarnation_);
  info.files = true;
  info.files_folder = "shared";
  return info;
}

absl::Duration Executor::told_for() const {
  absl::Duration longest;
  for (const auto& [launch, at] : memory_.told)
    if (memory_.unreported.count(launch) > 0) longest = std::max(longest, world_->now() - at);
  return longest;
}

absl::Duration Executor::silence() const {
  return world_->now() < frozen_until_ ? world_->now() - frozen_since_ : absl::ZeroDuration();
}

std::set<uint64_t> Executor::Arrays() const {
  std::set<uint64_t> arrays;
  for (const auto& [key, buffer] : memory_.buffers) arrays.insert(key.first);
  return arrays;
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
  inbox_.clear();
  const Memory old_memory = std::exchange(memory_, Memory());
  if (old_memory.uplink != nullptr)
    old_memory.uplink->stream().EndFromBelow(absl::CancelledError("it is gone"));
  for (const auto& [launch, running] : old_memory.running)
    LeaveGang(launch, MakeError(ErrorKind::kPeerFailed, absl::StrCat(name_, " is gone")));
}

void Executor::OutliveDaemon() {
  world_->After(world_->random().Within(absl::ZeroDuration(), absl::Milliseconds(50)),
                [this, incarnation = incarnation_] {
                  if (!alive_ || incarnation_ != incarnation) return;
                  if (world_->now() < frozen_until_) return Die();
                  Report(api::ExecutorFarewell{"its daemon has died"});
                  Die();
                });
}

void Executor::FreezeFor(absl::Duration time) {
  if (!alive_ || world_->now() < frozen_until_) return;
  frozen_since_ = world_->now();
  frozen_until_ = world_->now() + time;
  Later(absl::ZeroDuration(), [this] { HandleWaiting(); });
}

void Executor::Later(absl::Duration delay, std::function<void()> then) {
  world_->After(delay, [this, incarnation = incarnation_, then = std::move(then)] {
    if (!alive_ || incarnation_ != incarnation) return;
    if (world_->now() >= frozen_until_) return then();
    Later(frozen_until_ - world_->now(), then);
  });
}

void Executor::Take(std::function<void()> message) {
  if (!alive_) return;
  inbox_.push_back(std::move(message));
  HandleWaiting();
}

void Executor::HandleWaiting() {
  while (alive_ && world_->now() >= frozen_until_ && !inbox_.empty()) {
    const std::function<void()> message = std::move(inbox_.front());
    inbox_.pop_front();
    message();
  }
}

// ---- Streams. -----------------------------------------------------------------------------------

void Executor::Welcome(const api::Welcome& welcome) {
  Take([this, welcome] { Attach(welcome); });
}

// Opens a new stream in place of the old one, when a coordinator has welcomed the daemon. Each
// stream after the first begins with the inventory, followed by all reports that were not
// acknowledged. A new epoch restarts the check of sequence numbers, because the new life of the
// coordinator may not know the newest numbers.
void Executor::Attach(const api::Welcome& welcome) {
  const uint64_t stream = ++memory_.stream;
  memory_.welcome = welcome;
  if (memory_.uplink != nullptr)
    memory_.uplink->stream().EndFromBelow(absl::CancelledError("another stream took its place"));
  if (std::exchange(memory_.epoch, welcome.epoch) != welcome.epoch) {
    // A new life knows only the launches that have not been reported.
    memory_.last_sequence = 0;
    for (const auto& [launch, taken] : memory_.unreported)
      memory_.last_sequence = std::max(memory_.last_sequence, taken.first);
  }
  memory_.num_sent = 0;
  memory_.readers.clear();
  const api::Attachment attachment{index_, incarnation_, welcome.registration_id, "",
                                   welcome.epoch};
  memory_.uplink = coordinator_->Attach(
      path_, attachment,
      [this, incarnation = incarnation_, stream](uint64_t epoch, const api::Command& command) {
        if (!alive_ || incarnation_ != incarnation) return;
        Take([this, stream, epoch, command] { OnCommand(stream, epoch, command); });
      },
      [this, incarnation = incarnation_, stream](const absl::Status&) {
        if (!alive_ || incarnation_ != incarnation) return;
        Take([this, stream] {
          if (stream != memory_.stream) return;
          memory_.uplink = nullptr;
          memory_.readers.clear();
          AttachAgain(stream);
        });
      });
  if (stream > 1)
    memory_.uplink->Send(memory_.epoch, api::Report{index_, incarnation_, Inventory()});
  SendWaitingReports();
}

void Executor::AttachAgain(uint64_t stream) {
  Later(world_->random().Within(kAttachAgainMin, kAttachAgainMax), [this, stream] {
    if (stream == memory_.stream) Attach(memory_.welcome);
  });
}

void Executor::ResetStream() {
  if (memory_.uplink != nullptr)
    memory_.uplink->stream().Break("it was reset", absl::Milliseconds(200));
}

void Executor::OnCommand(uint64_t stream, uint64_t epoch, const api::Command& command) {
  if (stream != memory_.stream || epoch != memory_.epoch) {
    world_->Count("a stale command is refused");
    return;
  }
  CarryOut(command);
}

void Executor::Report(api::ReportBody body) {
  if (IsEndOfLaunch(body)) {
    world_->Log(name_, " ends ", EndedLaunch(body));
    memory_.unreported.erase(EndedLaunch(body));
  }
  memory_.journal.push_back({index_, incarnation_, std::move(body), ++memory_.last_report});
  SendWaitingReports();
}

void Executor::Answer(uint64_t stream, api::ReportBody body) {
  if (stream != memory_.stream || memory_.uplink == nullptr) return;
  memory_.uplink->Send(memory_.epoch, api::Report{index_, incarnation_, std::move(body)});
}

void Executor::Answer(const PendingRead& reader, absl::StatusOr<ir::Array> value) {
  Answer(reader.stream, api::BufferRead{reader.request, std::move(value)});
}

void Executor::SendWaitingReports() {
  if (memory_.uplink == nullptr) return;
  for (; memory_.num_sent < memory_.journal.size(); ++memory_.num_sent)
    memory_.uplink->Send(memory_.epoch, memory_.journal[memory_.num_sent]);
}

void Executor::Acknowledge(uint64_t through) {
  for (; memory_.num_sent > 0 && memory_.journal.front().number <= through; --memory_.num_sent)
    memory_.journal.pop_front();
}

std::set<Executor::Key> Executor::PendingDeletions() const {
  std::set<Key> deleting;
  for (const QueuedCommand& queued : memory_.queue)
    if (const auto* deletion = std::get_if<api::DeleteBuffers>(&queued.command))
      for (uint64_t array : deletion->arrays)
        for (int32_t device = 0; device < devices_; ++device)
          if (queued.devices == 1u << device) deleting.emplace(array, device);
  return deleting;
}

// Lists what the process has, in the form that a real executor reports after an outage. Shards that
// a waiting deletion will free are left out, since they count as deleted. The ended operations are
// those whose reports are still in the journal.
api::ExecutorInventory Executor::Inventory() const {
  api::ExecutorInventory inventory;
  inventory.devices.resize(devices_);
  const std::set<Key> deleted = PendingDeletions();  // counts as deleted
  for (const auto& [key, buffer] : memory_.buffers) {
    if (deleted.count(key) > 0) continue;
    api::ExecutorInventory::Device& device = inventory.devices[key.second];
    (buffer.state == Buffer::kReady      ? device.ready
     : buffer.state == Buffer::kExpected ? device.expected
                                         : device.failed)
        .push_back(key.first);
  }
  for (const auto& [launch, taken] : memory_.unreported) {
    inventory.running.push_back(launch);
    inventory.sequences.push_back(taken.first);
    inventory.running_generations.push_back(taken.second);
  }
  for (const api::Report& report : memory_.journal) {
    if (IsEndOfLaunch(report.body)) inventory.ended.push_back(EndedLaunch(report.body));
  }
  std::sort(inventory.ended.begin(), inventory.ended.end());
  inventory.reports = memory_.last_report;
  for (const auto& [id, program] : memory_.programs)
    (program.loaded ? inventory.executables : inventory.compiling).push_back(id);
  for (const auto& [generation, members] : memory_.generations)
    inventory.generations.push_back(generation);
  return inventory;
}

}  // namespace tessera::sim
