// Starts, pauses, kills and replaces the coordinator's processes, as the faults demand (sim.cc).
// Daemons and executors open their streams here, and each stream goes to the process that serves at
// the time.
#include "tests/sim/coordinator.h"

#include <utility>

#include "base/status.h"

namespace tessera::sim {
namespace {

constexpr absl::Duration kResetMax = absl::Milliseconds(50);
constexpr absl::Duration kKillPatience = absl::Seconds(2);

}  // namespace

void Uplink::Send(uint64_t epoch, const api::Report& report) {
  stream_->SendUp([self = shared_from_this(), epoch, report] {
    if (self->process_ == nullptr) return;
    self->process_->Arrive([self, epoch, report] {
      const auto registration = self->registration_.lock();
      if (registration == nullptr) return;
      if (self->of_daemon_) {
        registration->Take(epoch, report);
      } else {
        registration->TakeFromExecutor(epoch, self->stream_.get(), report);
      }
    });
  });
}

Coordinator::Coordinator(World* world, Checker* checker)
    : world_(world), checker_(checker), disk_(world) {
  Start();
}

void Coordinator::Start() {
  auto fenced = [this, index = processes_.size()] {
    world_->Log("a coordinator that was replaced ends");
    processes_[index]->Kill();
  };
  processes_.push_back(
      std::make_unique<Process>(world_, &disk_, checker_, &wall_ahead_, std::move(fenced)));
  current_ = processes_.back().get();
  world_->Log("coordinator ", current_->epoch(), " serves");
}

Process* Coordinator::AnyAlive() {
  for (const auto& process : processes_)
    if (process->alive()) return process.get();
  return nullptr;
}

void Coordinator::KillFor(absl::Duration time) {
  if (current_ == nullptr) return;
  current_->Kill();
  current_ = nullptr;
  world_->After(time, [this] {
    if (current_ == nullptr) Start();
  });
}

void Coordinator::KillBeforeDiskFor(absl::Duration time) {
  if (current_ == nullptr) return;
  disk_.Slow(kKillPatience);
  const auto kill = [this, process = current_, time] {
    if (process == current_) KillFor(time);
  };
  current_->OnIrrevocable(kill);
  world_->After(kKillPatience, kill);
}

void Coordinator::PauseFor(absl::Duration time) {
  if (current_ == nullptr || current_->paused()) return;
  current_->PauseFor(time);
  world_->After(time, [this, process = current_, time] {
    if (process == current_)
      not_counted_ += std::max(time - AwakeTime::kMaxStep, absl::ZeroDuration());
  });
}

void Coordinator::StarveFor(absl::Duration time) {
  if (current_ != nullptr) current_->StarveFor(time);
}

void Coordinator::ReplaceFor(absl::Duration time) {
  if (current_ == nullptr) return;
  current_->PauseFor(time);
  current_ = nullptr;
  world_->After(world_->random().Within(absl::Milliseconds(50), absl::Milliseconds(500)), [this] {
    if (current_ == nullptr) Start();
  });
}

std::shared_ptr<Uplink> Coordinator::Open(
    Path* path, Stream::Ended ended, std::function<void(Uplink* uplink, Process* process)> first) {
  const auto uplink = std::make_shared<Uplink>(Stream::Open(world_, path));
  uplink->stream_->below_ended = std::move(ended);
  uplink->stream_->SendUp([this, uplink, first = std::move(first)] {
    if (current_ == nullptr) return uplink->stream_->Break("connection refused", kResetMax);
    uplink->process_ = current_;
    current_->Owns(uplink->stream_);
    current_->Arrive([uplink, process = current_, first] { first(uplink.get(), process); });
  });
  return uplink;
}

std::shared_ptr<Uplink> Coordinator::Register(Path* path, const api::Registration& registration,
                                              DaemonEnd end, Stream::Ended ended) {
  return Open(path, std::move(ended),
              [world = world_, registration, end](Uplink* uplink, Process* process) {
                const auto link =
                    std::make_shared<Registration>(world, process, uplink->stream_, end);
                uplink->registration_ = link;
                uplink->of_daemon_ = true;
                uplink->stream_->above_ended =
                    [process, weak = uplink->registration_](const absl::Status& why) {
                      process->Arrive([weak, text = std::string(why.message())] {
                        if (const auto registered = weak.lock()) registered->Ended(text);
                      });
                    };
                link->Register(registration);
              });
}

std::shared_ptr<Uplink> Coordinator::Attach(Path* path, const api::Attachment& attachment,
                                            ExecutorEnd end, Stream::Ended ended) {
  return Open(path, std::move(ended), [attachment, end](Uplink* uplink, Process* process) {
    const auto registration = process->Find(attachment.registration_id);
    if (registration == nullptr)
      return uplink->stream_->EndFromAbove(
          MakeError(ErrorKind::kWorkerLost, "executor: the worker is not registered"));
    uplink->registration_ = registration;
    registration->Attach(attachment, uplink->stream_, end);
  });
}

}  // namespace tessera::sim
