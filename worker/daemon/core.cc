// The daemon's state machine. The Driver (driver.cc) calls Step for every event, on behalf of
// WorkerDaemon (worker/rpc/worker_daemon.cc), and the simulation (tests/sim) does the same without
// processes. A step first handles its event and then does whatever is due in the new state, so that
// no rule depends on which event came.
#include "worker/daemon/core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace tessera::worker::daemon {
namespace {

// A process that was told to end a launch for this long ago, and still has it, may be killed. The
// coordinator asks for that only after its cancel_grace, so a shorter time means that the order to
// end the launch has been late.
constexpr absl::Duration kToldMin = absl::Milliseconds(250);

// Returns whether a further registration would end in the same way as the one that ended with
// `status`. `name_may_be_ours` says that a name which is taken may belong to an earlier connection
// of this worker, whose end the coordinator has not noticed yet.
bool RetryIsPointless(const absl::Status& status, bool name_may_be_ours) {
  if (ReasonOf(status).empty() || IsRetryable(status)) return false;
  switch (KindOf(status)) {
    case ErrorKind::kTlsMismatch:
    case ErrorKind::kProtocolMismatch:
      return true;
    case ErrorKind::kAlreadyExists:
      return !name_may_be_ours;
    default:
      break;
  }
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnimplemented:
      return true;
    default:
      return false;
  }
}

// Carries out one step: one event, and then everything that is due.
class Stepper {
 public:
  Stepper(State& state, absl::Time now)
      : state_(state), config_(state.config), link_(state.connection), now_(now) {}

  void On(const ChildStarted& event);
  void On(const SpawnFailed& event);
  void On(const ChildMessage& event);
  void On(const ChildPonged& event);
  void On(const SocketEnded& event) { EndSocket(state_.executors[event.executor]); }
  void On(const ChildEnded& event);
  void On(const Welcomed& event);
  void On(const KillRequested& event);
  void On(const LinkEnded& event);
  void On(const Tick& event);
  void On(const Stop& /*event*/);

  // Does everything that is due in the state, whatever the event was, and ends the step.
  std::vector<Effect> Finish();

 private:
  using Phase = Executor::Phase;

  template <class E>
  void Emit(E effect) {
    effects_.push_back(std::move(effect));
  }
  int32_t num_executors() const { return static_cast<int32_t>(state_.executors.size()); }
  bool registered() const { return link_.phase == Connection::Phase::kRegistered; }
  bool has_connection() const {
    return registered() || link_.phase == Connection::Phase::kConnecting;
  }

  // ---- Processes. ----
  void Kill(int32_t e, LossCause cause, std::string reason);
  void EndSocket(Executor& executor);
  void BackOff(Executor& executor);
  void Lose(int32_t e, ProcessLoss loss);
  void KillIfLate(int32_t e);
  void StartIfDue(int32_t e);
  void PingIfDue(int32_t e);
  void StopChild(int32_t e);
  absl::Duration Silence(const Executor& executor) const;

  // ---- The coordinator. ----
  void SendWelcome(int32_t e, uint64_t incarnation);
  void Report(int32_t e, uint64_t incarnation, api::ReportBody body);
  bool AllReady() const;
  bool IsAdopted(const api::ExecutorInfo& info) const;
  bool IsStale(const api::Welcome& welcome) const;
  void ConnectIfDue();
  void KillDisconnected(int32_t e, std::string reason);
  void EndOutageIfDue();

  absl::Time NextTick() const;

  State& state_;
  const Config& config_;
  Connection& link_;
  const absl::Time now_;
  std::vector<Effect> effects_;
};

// ---- Processes. ---------------------------------------------------------------------------------
void Stepper::On(const ChildStarted& event) {
  Executor& executor = state_.executors[event.executor];
  executor.phase = Phase::kRunning;
  executor.started_at = now_;
  executor.ready = executor.welcomed = executor.killed = executor.awaits_pong = false;
  executor.socket_open = true;
  executor.kill_at = absl::InfiniteFuture();
  executor.verdict.reset();
  executor.next_ping_at = absl::InfinitePast();
}

void Stepper::On(const SpawnFailed& event) {
  BackOff(state_.executors[event.executor]);
  Lose(event.executor, {LossCause::kOther, event.reason, {}, /*was_ready=*/false});
}

void Stepper::On(const ChildMessage& event) {
  Executor& executor = state_.executors[event.executor];
  if (!executor.socket_open) return;
  executor.last_message_at = now_;
  if (std::exchange(executor.ready, true)) return EndSocket(executor);
  executor.ready_at = now_;
  if (!event.ready)
    return Kill(event.executor, LossCause::kProtocol, "killed: it does not speak our protocol");
  executor.info = event.ready;
  if (!registered()) return;
  SendWelcome(event.executor, executor.incarnation);
  Report(event.executor, executor.incarnation, api::ExecutorReady{*event.ready});
}

void Stepper::On(const ChildPonged& event) {
  Executor& executor = state_.executors[event.executor];
  if (!executor.socket_open) return;
  executor.last_message_at = now_;
  executor.awaits_pong = false;
}

void Stepper::EndSocket(Executor& executor) {
  executor.socket_open = false;
  executor.kill_at = std::min(executor.kill_at, now_ + config_.stop_grace);
}

void Stepper::Kill(int32_t e, LossCause cause, std::string reason) {
  Executor& executor = state_.executors[e];
  if (!executor.verdict) executor.verdict = ProcessLoss{cause, std::move(reason)};
  if (std::exchange(executor.killed, true)) return;
  Emit(KillChild{e, executor.incarnation});
}

void Stepper::On(const ChildEnded& event) {
  Executor& executor = state_.executors[event.executor];
  if (executor.ready && now_ - executor.ready_at >= config_.backoff_reset_after) {
    executor.backoff = absl::ZeroDuration();
  } else if (executor.ready && executor.backoff == absl::ZeroDuration()) {
    executor.backoff = config_.backoff_min;
  } else {
    BackOff(executor);
  }
  ProcessLoss loss;
  if (executor.verdict) {
    loss = *executor.verdict;
  } else {
    loss = {event.end.signal != 0 ? LossCause::kSignal : LossCause::kExit, event.end.reason};
  }
  loss.in_flight = event.in_flight;
  loss.was_ready = executor.ready;
  Lose(event.executor, std::move(loss));
}

void Stepper::BackOff(Executor& executor) {
  executor.backoff = std::clamp(2 * executor.backoff, config_.backoff_min, config_.backoff_max);
}

void Stepper::Lose(int32_t e, ProcessLoss loss) {
  Executor& executor = state_.executors[e];
  executor.phase = Phase::kWaiting;
  executor.start_at = now_ + executor.backoff;
  executor.info.reset();
  executor.socket_open = executor.awaits_pong = false;
  Emit(ChildLost{e, executor.incarnation, loss});
  if (!registered() || !loss.was_ready) return;
  Report(e, executor.incarnation,
         api::ExecutorLost{loss.reason, loss.in_flight.launch, loss.in_flight.op});
}

void Stepper::KillIfLate(int32_t e) {
  const Executor& executor = state_.executors[e];
  if (executor.phase != Phase::kRunning) return;
  if (!executor.ready && now_ >= executor.started_at + config_.ready_timeout)
    Kill(e, LossCause::kNotReady, "killed: it was not ready in time");
  if (now_ >= executor.kill_at) Kill(e, LossCause::kOther, "killed: it did not stop in time");
}

void Stepper::StartIfDue(int32_t e) {
  Executor& executor = state_.executors[e];
  if (executor.phase != Phase::kWaiting || now_ < executor.start_at) return;
  executor.phase = Phase::kStarting;
  Emit(StartChild{e, ++executor.incarnation});
}

void Stepper::PingIfDue(int32_t e) {
  Executor& executor = state_.executors[e];
  if (!executor.socket_open || !executor.ready || executor.awaits_pong ||
      now_ < executor.next_ping_at)
    return;
  executor.awaits_pong = true;
  executor.next_ping_at = now_ + config_.ping_interval;
  Emit(PingChild{e, executor.incarnation});
}

// Returns for how long the executor has not replied. The result is zero unless the last ping is
// still unanswered when the next one is due.
absl::Duration Stepper::Silence(const Executor& executor) const {
  const bool late = executor.awaits_pong && now_ >= executor.next_ping_at;
  return late ? now_ - executor.last_message_at : absl::ZeroDuration();
}

// Ends the executor's process and starts no other. A process that is still starting is ended by a
// later step.
void Stepper::StopChild(int32_t e) {
  Executor& executor = state_.executors[e];
  if (executor.phase == Phase::kWaiting) executor.phase = Phase::kStopped;
  if (executor.phase != Phase::kRunning || executor.kill_at != absl::InfiniteFuture()) return;
  executor.verdict = ProcessLoss{LossCause::kStopped, "the worker is stopping"};
  Emit(CloseChildInput{e, executor.incarnation});
  executor.kill_at = now_ + config_.stop_grace;
}

// ---- The coordinator. ---------------------------------------------------------------------------
// Begins the session, or refuses the coordinator. The coordinator is refused if its state or its
// epoch is earlier than that of the coordinator for which state is kept, or if it speaks none of
// our protocols. Executors may have ended since the worker asked to be registered, and their loss
// is reported here, because nothing was reported before the session began. An executor that a
// coordinator has used before is killed unless this coordinator adopts it, because nobody would
// know what the executor holds.
void Stepper::On(const Welcomed& event) {
  if (!event.welcome.ok()) return Emit(CancelLink{});
  if (IsStale(*event.welcome)) {
    Emit(RefusedStale{event.welcome->epoch, link_.newest_epoch});
    return Emit(CancelLink{});
  }
  if (const absl::Status protocol_status =
          ChooseProtocol("registration: this worker", event.welcome->build, config_.build).status();
      !protocol_status.ok()) {
    link_.phase = Connection::Phase::kRefused;
    Emit(Refused{protocol_status});
    return Emit(CancelLink{});
  }
  link_.newest_began = event.welcome->state_began;
  link_.newest_epoch = event.welcome->epoch;
  link_.outage_ends_at = absl::InfiniteFuture();
  link_.phase = Connection::Phase::kRegistered;
  link_.ever_registered = true;
  link_.welcome = *event.welcome;
  link_.heartbeat_interval = std::max(link_.welcome.heartbeat, config_.heartbeat_interval_min);
  link_.clock_ahead = link_.welcome.clock - now_;
  for (int32_t e = 0; e < num_executors(); ++e) {
    const std::optional<api::ExecutorInfo>& info = state_.executors[e].info;
    const bool same_process = info && info->incarnation == link_.incarnations[e];
    if (!same_process) {
      Report(e, link_.incarnations[e], api::ExecutorLost{"it ended during registration", 0, ""});
    }
    if (!info) continue;
    if (state_.executors[e].welcomed && !IsAdopted(*info)) {
      KillDisconnected(e, "killed: the coordinator does not adopt its arrays and operations");
      continue;
    }
    SendWelcome(e, info->incarnation);
    if (!same_process) Report(e, info->incarnation, api::ExecutorReady{*info});
  }
  Emit(Registered{});
}

// Returns whether the welcome comes from an earlier coordinator than the one for which state is
// kept. If one of the two is too old to say when its state began, it counts as having the same
// state, so that a coordinator which goes back to an earlier build is not refused.
bool Stepper::IsStale(const api::Welcome& welcome) const {
  if (link_.newest_epoch == 0) return false;
  const absl::Time unknown = absl::InfiniteFuture();
  if (welcome.state_began == link_.newest_began || welcome.state_began == unknown ||
      link_.newest_began == unknown)
    return welcome.epoch < link_.newest_epoch;
  return welcome.state_began < link_.newest_began;
}

// A process that answers, and has not been told to end its work, is no suspect: its connection to
// the coordinator may stand still. It is spared for at most the outage grace.
void Stepper::On(const KillRequested& event) {
  if (!registered()) return;
  if (event.epoch != link_.welcome.epoch)
    return Emit(RefusedStale{event.epoch, link_.welcome.epoch});
  if (event.executor < 0 || event.executor >= num_executors()) return;
  Executor& executor = state_.executors[event.executor];
  if (executor.phase != Phase::kRunning || executor.incarnation != event.incarnation) return;
  if (event.if_told && event.told_for < kToldMin && Silence(executor) == absl::ZeroDuration()) {
    if (now_ - executor.spared_at > link_.welcome.outage_grace) executor.spared_since = now_;
    executor.spared_at = now_;
    if (now_ - executor.spared_since < link_.welcome.outage_grace)
      return Emit(KillPostponed{event.executor, event.incarnation, event.reason});
  }
  Kill(event.executor, LossCause::kStuck, event.reason);
}

// The connection has ended, or was never made: decides when to try again, or whether to give up.
// Registered executors go on until the outage grace is over. A name that is taken may be that of
// our own last connection, whose end the coordinator has not noticed, so the worker tries for some
// time before it believes that another worker has it. The time that counts is capped for each
// attempt, because a coordinator that does not answer notices nothing meanwhile.
void Stepper::On(const LinkEnded& event) {
  if (link_.phase == Connection::Phase::kRefused) return;
  const bool was_registered = registered();
  link_.next_heartbeat_at = absl::InfiniteFuture();
  link_.phase = Connection::Phase::kNone;
  if (!was_registered && KindOf(event.status) == ErrorKind::kAlreadyExists) {
    // At most reconnect_max of the time since the last refusal counts: while the coordinator did
    // not answer, it could not notice that a worker is gone.
    if (link_.name_taken_at != absl::InfinitePast())
      link_.name_taken_for += std::min(now_ - link_.name_taken_at, config_.reconnect_max);
    link_.name_taken_at = now_;
  }
  const bool name_may_be_ours =
      link_.ever_registered || link_.name_taken_for < config_.name_taken_patience;
  if (!was_registered && RetryIsPointless(event.status, name_may_be_ours)) {
    link_.phase = Connection::Phase::kRefused;
    return Emit(Refused{event.status});
  }
  if (was_registered) {
    link_.backoff = config_.reconnect_min;
    if (!state_.stopping) link_.outage_ends_at = now_ + link_.welcome.outage_grace;
  }
  link_.connect_at = now_ + link_.backoff;
  const bool outage = link_.outage_ends_at != absl::InfiniteFuture();
  link_.backoff =
      std::min(2 * link_.backoff, outage ? config_.reconnect_max_in_outage : config_.reconnect_max);
}

// Kills an executor whose state no coordinator keeps. Without `info`, the executor does not count
// as ready to be registered from here on.
void Stepper::KillDisconnected(int32_t e, std::string reason) {
  state_.executors[e].info.reset();
  Kill(e, LossCause::kDisconnected, std::move(reason));
}

// Kills the executors when the grace is over. The coordinator counts their arrays as lost by then,
// so the worker must do the same. An executor that no coordinator has used holds no arrays, and
// stays.
void Stepper::EndOutageIfDue() {
  if (now_ < link_.outage_ends_at) return;
  link_.outage_ends_at = absl::InfiniteFuture();
  link_.newest_epoch = 0;
  for (int32_t e = 0; e < num_executors(); ++e) {
    const Executor& executor = state_.executors[e];
    if (!executor.info || !executor.welcomed) continue;
    KillDisconnected(e, absl::StrCat("killed: the coordinator was away for ",
                                     absl::FormatDuration(link_.welcome.outage_grace)));
  }
}

void Stepper::On(const Tick& event) {
  state_.timer_at = absl::InfiniteFuture();
  for (int32_t e = 0; e < num_executors(); ++e) KillIfLate(e);
  if (now_ < link_.next_heartbeat_at) return;
  link_.next_heartbeat_at = now_ + link_.heartbeat_interval;
  // Behind a write that is stuck, a heartbeat would only queue up.
  if (!registered() || !event.link_idle) return;
  SendHeartbeat beat{link_.welcome.epoch, {}};
  for (const Executor& executor : state_.executors) beat.silence.push_back(Silence(executor));
  Emit(std::move(beat));
}

void Stepper::On(const Stop& /*event*/) {
  state_.stopping = true;
  link_.outage_ends_at = absl::InfiniteFuture();
  if (has_connection()) Emit(CancelLink{});
}

// Passes the coordinator's welcome on to one process.
void Stepper::SendWelcome(int32_t e, uint64_t incarnation) {
  state_.executors[e].welcomed = true;
  api::Welcome welcome = link_.welcome;
  welcome.clock = now_ + link_.clock_ahead;
  Emit(WelcomeChild{e, incarnation, std::move(welcome)});
}

void Stepper::Report(int32_t e, uint64_t incarnation, api::ReportBody body) {
  Emit(SendReport{link_.welcome.epoch, {e, incarnation, std::move(body)}});
}

bool Stepper::AllReady() const {
  return std::all_of(state_.executors.begin(), state_.executors.end(),
                     [](const Executor& executor) { return executor.info.has_value(); });
}

bool Stepper::IsAdopted(const api::ExecutorInfo& info) const {
  const std::vector<api::AdoptedExecutor>& adopted = link_.welcome.adopted;
  return std::find(adopted.begin(), adopted.end(),
                   api::AdoptedExecutor{info.index, info.incarnation}) != adopted.end();
}

// Connects if it is time. The worker is ready when every executor is.
void Stepper::ConnectIfDue() {
  if (link_.phase != Connection::Phase::kNone || now_ < link_.connect_at || !AllReady()) return;
  link_.phase = Connection::Phase::kConnecting;
  link_.next_heartbeat_at = now_ + link_.heartbeat_interval;
  link_.incarnations.clear();
  Connect connect;
  for (const Executor& executor : state_.executors) {
    connect.executors.push_back(*executor.info);
    connect.executors.back().has_state = executor.welcomed;
    link_.incarnations.push_back(executor.info->incarnation);
  }
  Emit(std::move(connect));
}

// ---- The end of a step. -------------------------------------------------------------------------
absl::Time Stepper::NextTick() const {
  absl::Time next = std::min(link_.next_heartbeat_at, link_.outage_ends_at);
  if (link_.phase == Connection::Phase::kNone && AllReady() && !state_.stopping)
    next = std::min(next, link_.connect_at);
  for (const Executor& executor : state_.executors) {
    if (executor.phase == Phase::kWaiting && !state_.stopping)
      next = std::min(next, executor.start_at);
    if (executor.phase != Phase::kRunning || executor.killed) continue;
    next = std::min(next, executor.kill_at);
    if (!executor.ready) next = std::min(next, executor.started_at + config_.ready_timeout);
    if (executor.socket_open && executor.ready && !executor.awaits_pong && !state_.stopping)
      next = std::min(next, executor.next_ping_at);
  }
  return next;
}

std::vector<Effect> Stepper::Finish() {
  if (!state_.stopping) {
    EndOutageIfDue();
    for (int32_t e = 0; e < num_executors(); ++e) StartIfDue(e);
    for (int32_t e = 0; e < num_executors(); ++e) PingIfDue(e);
    ConnectIfDue();
  } else if (!has_connection()) {
    // The processes end only after the connection has ended, so that the coordinator does not see
    // them end.
    for (int32_t e = 0; e < num_executors(); ++e) StopChild(e);
    const bool all_stopped =
        std::all_of(state_.executors.begin(), state_.executors.end(),
                    [](const Executor& x) { return x.phase == Phase::kStopped; });
    if (all_stopped && !std::exchange(state_.stopped, true)) Emit(Stopped{});
  }
  if (const absl::Time next = NextTick(); next != state_.timer_at) {
    state_.timer_at = next;
    Emit(SetTimer{next});
  }
  return std::move(effects_);
}

}  // namespace

State Begin(const Config& config) {
  State state;
  state.config = config;
  for (const uint64_t incarnation : config.incarnations) {
    Executor executor;
    executor.incarnation = incarnation;
    state.executors.push_back(std::move(executor));
  }
  state.connection.backoff = config.reconnect_min;
  state.connection.heartbeat_interval = config.first_heartbeat_interval;
  return state;
}

std::vector<Effect> Step(State& state, const Event& event, absl::Time now) {
  Stepper stepper(state, now);
  std::visit([&](const auto& e) { stepper.On(e); }, event);
  return stepper.Finish();
}

}  // namespace tessera::worker::daemon
