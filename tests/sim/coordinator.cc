// Starts, pauses, kills and replaces the coordinator's processes, as the faults demand (sim.cc).
// Daemons and executors open their streams here, and each stream goes to the process that serves at
// the time.
#include "tests/sim/coordinator.h"

#include <utility>

#include "base/status.h"

namespace tessera::sim {
namespace {

constexpr absl::Duration kResetMax = absl::Milliseconds(50);
// How long a kill waits for a command that cannot be taken back, of any kind and of a save.
constexpr absl::Duration kKillPatience = absl::Seconds(2), kSavePatience = absl::Seconds(8);
// The scheduler notices a pause of at least this length for certain.
constexpr absl::Duration kNoticedPause = absl::Milliseconds(1500);

}  // namespace

void Uplink::Send(uint64_t epoch, const api::Report& report) {
  stream_->SendUp([self = shared_from_this(), epoch, report] {
    if (self->process_ == nullptr) return;
    self->process_->Arrive([self, epoch, report] {
      const auto registration = self->registration_.lock();
      if (registration == nullptr) return;
      if (self->is_daemon_) {
        registration->TakeFromDaemon(epoch, report);
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
  auto on_fenced = [this, index = processes_.size()] {
    world_->Log("a coordinator that was replaced ends");
    processes_[index]->Kill();
  };
  processes_.push_back(
      std::make_unique<Process>(world_, &disk_, checker_, &wall_ahead_, std::move(on_fenced)));
  current_ = processes_.back().get();
  world_->Log("coordinator ", current_->epoch(), " serves");
}

void Coordinator::KillFor(absl::Duration time) {
  if (current_ == nullptr) return;
  current_->Kill();
  current_ = nullptr;
  world_->After(time, [this] {
    if (current_ == nullptr) Start();
  });
}

void Coordinator::KillBeforeDurableFor(absl::Duration time, bool of_save) {
  if (current_ == nullptr) return;
  const absl::Duration patience = of_save ? kSavePatience : kKillPatience;
  disk_.SlowFor(patience);
  const auto kill = [this, process = current_, time] {
    if (process == current_) KillFor(time);
  };
  current_->OnIrrevocable(of_save, kill);
  world_->After(patience, kill);
}

void Coordinator::PauseFor(absl::Duration time) {
  if (current_ == nullptr || current_->paused()) return;
  if (time >= kNoticedPause) checker_->OnCoordinatorPaused(world_->now() + time);
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
    Path* path, Stream::OnEndFn on_end,
    std::function<void(Uplink* uplink, Process* process)> on_accept) {
  const auto uplink = std::make_shared<Uplink>(Stream::Open(world_, path));
  uplink->stream_->on_end_below = std::move(on_end);
  uplink->stream_->SendUp([this, uplink, on_accept = std::move(on_accept)] {
    if (current_ == nullptr) return uplink->stream_->Break("connection refused", kResetMax);
    uplink->process_ = current_;
    current_->AddStream(uplink->stream_);
    current_->Arrive([uplink, process = current_, on_accept] { on_accept(uplink.get(), process); });
  });
  return uplink;
}

std::shared_ptr<Uplink> Coordinator::Register(Path* path, const api::Registration& registration,
                                              DaemonCallbacks callbacks, Stream::OnEndFn on_end) {
  return Open(path, std::move(on_end),
              [world = world_, registration, callbacks](Uplink* uplink, Process* process) {
                const auto link =
                    std::make_shared<Registration>(world, process, uplink->stream_, callbacks);
                uplink->registration_ = link;
                uplink->is_daemon_ = true;
                uplink->stream_->on_end_above =
                    [process, weak = uplink->registration_](const absl::Status& why) {
                      process->Arrive([weak, text = std::string(why.message())] {
                        if (const auto registered = weak.lock()) registered->OnEnded(text);
                      });
                    };
                link->Register(registration);
              });
}

std::shared_ptr<Uplink> Coordinator::Attach(Path* path, const api::Attachment& attachment,
                                            OnCommandFn on_command, Stream::OnEndFn on_end) {
  return Open(path, std::move(on_end), [attachment, on_command](Uplink* uplink, Process* process) {
    const auto registration = process->Find(attachment.registration_id);
    if (registration == nullptr)
      return uplink->stream_->EndFromAbove(
          MakeError(ErrorKind::kWorkerLost, "executor: the worker is not registered"));
    uplink->registration_ = registration;
    uplink->attached_to_ = registration;
    registration->Attach(attachment, uplink->stream_, on_command);
  });
}

}  // namespace tessera::sim
