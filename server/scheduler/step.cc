// Step and what every step has in common: it passes the event to the handler in Machine, then sends
// the deletions, commits the changed rows and sets the timer. The driver (driver.cc) and the
// simulation (tests/sim/process.cc) call it by way of Stepper.
#include "server/scheduler/step.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "base/log.h"
#include "server/scheduler/machine.h"

namespace tessera::server::scheduler {
namespace {

// The shortest pause of this process after which executors that are away get their whole time to
// come back again.
constexpr absl::Duration kPauseMin = absl::Seconds(1);

// Returns whether this process was paused since the last step.
bool WasPaused(State& state) {
  const absl::Duration before = std::exchange(state.steady_ahead_before, state.steady_ahead);
  return state.steady_ahead - before >= kPauseMin;
}

}  // namespace

State InitialState(const Config& config) {
  State state;
  state.config = config;
  state.ownership.Begin(config.life.first_id);
  state.order.Begin(config.life.first_id);
  return state;
}

std::vector<Effect> Step(State& state, const Event& event, absl::Time now,
                         std::vector<Effect> memory) {
  state.notes.clear();
  Machine machine(state, now, std::move(memory));
  machine.RecordCommandsSent();
  if (WasPaused(state)) machine.RestartGrace();
  std::visit(
      [&](const auto& e) {
        if constexpr (std::is_base_of_v<Request, std::decay_t<decltype(e)>>)
          machine.SetCaller(&e.caller);
        if constexpr (requires { KindOfCall(e); }) {
          if (machine.AnswerIfRepeated(e)) return;
        }
        if constexpr (std::is_void_v<decltype(machine.On(e))>) {
          machine.On(e);
        } else {
          machine.Answer(e.request, machine.On(e));
        }
      },
      event);
  return machine.Finish();
}

void Machine::SendDeletes() {
  for (const bool donated : {false, true}) {
    auto& deletes = donated ? deletes_of_donated_ : deletes_;
    for (auto& [name, arrays] : deletes)
      if (const Executor& executor = cluster_.executor(name); executor.alive())
        Send(executor, api::DeleteBuffers{std::move(arrays)}, /*when_durable=*/donated);
    deletes.clear();
  }
}

std::vector<Effect> Machine::Finish() {
  if (!cluster_.draining().empty()) AnswerFinishedDrains();
  SendDeletes();
  for (const uint64_t id : order_.DropRecords(s_.config.operations_kept))
    MarkChanged(core::RowKind::kOperation, id, /*tenant=*/"");
  CommitChanges();
  const absl::Time next = s_.timers.empty() ? absl::InfiniteFuture() : s_.timers.first().first;
  if (next < s_.set_timer_at) {
    s_.set_timer_at = next;
    effects_.emplace_back(SetTimer{next});
  }
  return std::move(effects_);
}

// Handles all timers that are due, in order of their times. A handler may arm and disarm timers, so
// the first one is looked up anew each time.
void Machine::On(const Tick&) {
  s_.set_timer_at = absl::InfiniteFuture();
  while (!s_.timers.empty() && s_.timers.first().first <= now_) {
    const Timers::Timer due = s_.timers.first();
    s_.timers.Disarm(due);
    const auto& [kind, id] = due.second;
    switch (kind) {
      case kLeaseTimer:
        OnLeaseTimer(id);
        break;
      case kRequestTimer: {
        const Waiter waiter = EndWait(id);
        std::visit([&, id = id](const auto& wait) { AnswerTimeout(wait, id); }, waiter.wait);
        break;
      }
      case kDeadlineTimer:
        OnDeadlineTimer(id);
        break;
      case kExecutorsTimer:
        OnExecutorsTimer(id);
        break;
      case kVerdictTimer:
        OnVerdictTimer(id);
        break;
      case kUploadTimer:
        OnUploadTimer(id);
        break;
      case kSessionTimer:
        OnSessionTimer(id);
        break;
      case kKillTimer:
        KillLingering(id);
        break;
      case kSilenceTimer:
        OnSilenceTimer(id);
        break;
      case kAwayTimer:
        OnAwayTimer();
        break;
    }
  }
}

void Machine::Answer(uint64_t request, absl::Status error) {
  TESSERA_CHECK(!error.ok());
  const ErrorKind kind = KindOf(error);
  if (caller_ != nullptr && (kind == ErrorKind::kQueueFull || kind == ErrorKind::kLimitExceeded ||
                             kind == ErrorKind::kNotEnoughDevices))
    LogIncident("request refused", {{"tenant", caller_->tenant}, {"token", caller_->token_name}},
                error);
  Reply& r = std::get<Reply>(effects_.emplace_back(std::in_place_type<Reply>));
  r.request = request;
  r.status = std::move(error);
}

void Machine::Send(const Executor& executor, api::Command command, bool when_durable) {
  TESSERA_CHECK(executor.alive()) << executor.name;
  effects_.emplace_back(SendCommand{executor.registration_id, executor.info.index,
                                    executor.info.incarnation, std::move(command), when_durable,
                                    executor.attachment});
}

uint64_t Machine::EndCommitOf(uint64_t operation) {
  const Operation* const op = order_.Find(operation);
  return op == nullptr ? 0 : op->ended_in_commit;
}

void Machine::Arm(absl::Time when, TimerKind kind, uint64_t id) {
  if (when < absl::InfiniteFuture()) s_.timers.Arm({when, {kind, id}});
}
void Machine::Disarm(absl::Time when, TimerKind kind, uint64_t id) {
  if (when < absl::InfiniteFuture()) s_.timers.Disarm({when, {kind, id}});
}

void Machine::AnswerAndLogTimeout(uint64_t request, const absl::Status& why) {
  LogIncident("request timed out", {}, why);
  Answer(request, why);
}

Waiter Machine::EndWait(uint64_t request) {
  const auto it = s_.waiters.find(request);
  TESSERA_CHECK(it != s_.waiters.end()) << request;
  Waiter waiter = std::move(it->second);
  s_.waiters.erase(it);
  Disarm(waiter.until, kRequestTimer, request);
  std::visit(
      [&](const auto& wait) {
        if (Requests* waiters = WaitersFor(wait)) waiters->erase(request);
      },
      waiter.wait);
  return waiter;
}

}  // namespace tessera::server::scheduler
