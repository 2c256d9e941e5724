// The rules of a worker's daemon as a pure state machine: Step(state, event, now) -> effects.
//
// It decides when the process of an executor starts, is pinged, is killed, and is followed by
// another. It also decides when the worker registers with its coordinator, what it reports, and
// when it gives up.
//
// Executors outlive the connection. For the outage grace that the last Welcome states, the worker
// tries to register with the same processes. A process that the coordinator then does not adopt is
// killed, and all processes that a coordinator has used are killed when the grace is over. An epoch
// numbers the lives of a coordinator with one state. As long as executors hold arrays for a
// coordinator, the worker refuses coordinators of earlier epochs and of earlier states. A state
// that began later is that of a coordinator that was begun anew, which adopts no process. The
// machine does no I/O, uses no threads, clock or randomness, and writes no logs: the same events at
// the same times give the same effects, in the daemon and in a simulation. One thread at a time
// steps a State.
//
// The caller applies the effects in order, and posts their results as events. `now` is the time at
// which the event came; it never goes back.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/build.h"
#include "base/child_process.h"
#include "ir/api/worker_link.h"
#include "worker/telemetry/in_flight.h"

namespace tessera::worker::daemon {

// Why a process ended.
enum class LossCause : uint8_t {
  kExit,          // it exited by itself
  kSignal,        // another sender ended it by a signal
  kNotReady,      // killed: it was not ready in time
  kProtocol,      // killed: its messages do not parse
  kDisconnected,  // killed: its coordinator stayed away, or did not adopt it
  kStuck,         // killed: it did not acknowledge the end of an operation
  kOther,         // it did not start, or did not stop in time
  kStopped,       // the daemon stops
};

struct ProcessLoss {
  LossCause cause = LossCause::kOther;
  std::string reason = {};  // "killed by signal 9 (Killed)"
  InFlightOp in_flight = {};
  bool was_ready = false;
};

struct Config {
  // Per executor, the number below the incarnation of its first process. Later processes count up.
  // No other process, of this worker or another, may get the same incarnation.
  std::vector<uint64_t> incarnations;
  Build build = ThisBuild();  // names the protocols that the worker speaks
  // A process that is not ready this long after its start is killed.
  absl::Duration ready_timeout = absl::Seconds(20);
  // The wait before a start that follows a failed one; it doubles up to the maximum. A process that
  // was ready for `backoff_reset_after` is followed by the next one at once.
  absl::Duration backoff_min = absl::Milliseconds(50);
  absl::Duration backoff_max = absl::Seconds(2);
  absl::Duration backoff_reset_after = absl::Seconds(5);
  // The time from when a process's socket has ended, or the process was told to stop, to the kill.
  absl::Duration stop_grace = absl::Seconds(1);
  // The time between two pings of a process.
  absl::Duration ping_interval = absl::Milliseconds(500);
  // The wait between the end of a connection and the next attempt; it doubles until the worker is
  // registered.
  absl::Duration reconnect_min = absl::Milliseconds(50);
  absl::Duration reconnect_max = absl::Seconds(2);
  absl::Duration reconnect_max_in_outage = absl::Milliseconds(400);
  // The interval of heartbeats until the first welcome.
  absl::Duration first_heartbeat_interval = absl::Milliseconds(300);
  absl::Duration heartbeat_interval_min = absl::Milliseconds(10);
  // How long the worker's name may be taken before the worker gives up. This is longer than a
  // coordinator that answers needs to notice that a worker of the same name is gone.
  absl::Duration name_taken_patience = absl::Seconds(5);
};

// ---- The state. ---------------------------------------------------------------------------------
struct Executor {
  enum class Phase : uint8_t {
    kWaiting,   // until `start_at`, when the next process starts
    kStarting,  // until ChildStarted or SpawnFailed
    kRunning,   // until ChildEnded
    kStopped,   // no process starts any more
  };
  Phase phase = Phase::kWaiting;
  // Incarnation of the process or, between two processes, of the last one.
  uint64_t incarnation = 0;
  absl::Duration backoff;                      // wait before the next process
  absl::Time start_at = absl::InfinitePast();  // end of kWaiting
  // The process's own description; empty until it is ready to be registered.
  std::optional<api::ExecutorInfo> info = {};

  // The state of the running process.
  absl::Time started_at;
  bool ready = false;  // whether it has sent its first message, valid or not
  absl::Time ready_at;
  bool welcomed = false;                        // whether a coordinator has used the process
  bool socket_open = false;                     // whether its socket is still read and written
  absl::Time kill_at = absl::InfiniteFuture();  // when it is killed, once it has been told to end
  bool killed = false;                          // whether the daemon has killed it
  std::optional<ProcessLoss> verdict = std::nullopt;  // why it ends, once that is decided
  // When the process last sent a message, and when the next ping is due.
  absl::Time last_message_at, next_ping_at;
  bool awaits_pong = false;  // whether the process has not answered its last ping yet
  // The first and the last time at which a kill was postponed, in a row of such times.
  absl::Time spared_since = absl::InfinitePast(), spared_at = absl::InfinitePast();
};

// The connection to the coordinator.
struct Connection {
  enum class Phase : uint8_t {
    kNone,        // until every executor is ready, and at least until `connect_at`
    kConnecting,  // the worker has asked to be registered
    kRegistered,  // until the connection ends
    kRefused,     // a final state: the worker tries no more
  };
  Phase phase = Phase::kNone;
  absl::Time connect_at = absl::InfinitePast();  // earliest end of kNone
  // per executor, the incarnation that the worker asked to register
  std::vector<uint64_t> incarnations;
  api::Welcome welcome;        // the welcome of the registration; meaningful while kRegistered
  absl::Duration clock_ahead;  // how far the coordinator's clock is ahead of `now`
  absl::Duration backoff;      // wait before the next connection
  bool ever_registered = false;
  // For how long registrations have been refused because the name is taken, and the time of the
  // last such refusal.
  absl::Duration name_taken_for;
  absl::Time name_taken_at = absl::InfinitePast();
  // The coordinator for which state is kept: when its own state began (InfiniteFuture if it is too
  // old to say), and its epoch, which is 0 if no state is kept.
  absl::Time newest_began = absl::InfiniteFuture();
  uint64_t newest_epoch = 0;
  absl::Time outage_ends_at = absl::InfiniteFuture();  // when the state is dropped
  absl::Duration heartbeat_interval;
  absl::Time next_heartbeat_at = absl::InfiniteFuture();
};

struct State {
  Config config;
  std::vector<Executor> executors;
  Connection connection;
  bool stopping = false, stopped = false;
  absl::Time timer_at = absl::InfiniteFuture();  // the time of the last SetTimer
};

// ---- Events. ------------------------------------------------------------------------------------
// Events about the process that the last StartChild of the executor asked for, in this order.
struct ChildStarted {
  int32_t executor = 0;
};
struct SpawnFailed {
  int32_t executor = 0;
  std::string reason;
};
// The process sent a message that is no pong. A process sends one such message, its ExecutorReady.
// `ready` is empty if the message does not parse.
struct ChildMessage {
  int32_t executor = 0;
  std::optional<api::ExecutorInfo> ready;
};
struct ChildPonged {
  int32_t executor = 0;
};
// The process's socket ended, or it sent malformed frames.
struct SocketEnded {
  int32_t executor = 0;
};
struct ChildEnded {
  int32_t executor = 0;
  ProcessEnd end;
  InFlightOp in_flight;  // the op that its in-flight page shows
};

// Events about the connection that the last Connect asked for, in this order.
//
// The coordinator's first message came. `welcome` is an error if the message is no welcome.
struct Welcomed {
  absl::StatusOr<api::Welcome> welcome;
};
// The coordinator wants a process killed. This is the only command for the daemon itself; all
// others go to the executors.
struct KillRequested {
  uint64_t epoch = 0;
  int32_t executor = 0;
  uint64_t incarnation = 0;
  std::string reason;
  bool if_told = false;          // see api::KillExecutor
  absl::Duration told_for = {};  // since the process was told to end a launch that it still has
};
struct LinkEnded {
  absl::Status status;
};

// The timer is due. `link_idle` says that no write on the connection is in flight.
struct Tick {
  bool link_idle = false;
};
// The daemon must stop.
struct Stop {};

using Event = std::variant<ChildStarted, SpawnFailed, ChildMessage, ChildPonged, SocketEnded,
                           ChildEnded, Welcomed, KillRequested, LinkEnded, Tick, Stop>;

// ---- Effects. -----------------------------------------------------------------------------------
struct StartChild {
  int32_t executor = 0;
  uint64_t incarnation = 0;
};
struct KillChild {
  int32_t executor = 0;
  uint64_t incarnation = 0;
};
// Closes the process's input, whereupon the process stops.
struct CloseChildInput {
  int32_t executor = 0;
  uint64_t incarnation = 0;
};
// Pings the process: asks whether it replies.
struct PingChild {
  int32_t executor = 0;
  uint64_t incarnation = 0;
};
// Passes the coordinator's welcome on. The welcome contains the ticket key of the worker; the
// caller must give the process only its own key (api::ExecutorTicketKey).
struct WelcomeChild {
  int32_t executor = 0;
  uint64_t incarnation = 0;
  api::Welcome welcome;
};
struct Connect {
  std::vector<api::ExecutorInfo> executors;
};
struct CancelLink {};
struct SendReport {
  uint64_t epoch = 0;
  api::Report report;
};
// The caller adds the rest of a heartbeat from the in-flight pages of the executors.
struct SendHeartbeat {
  uint64_t epoch = 0;
  std::vector<absl::Duration> silence;  // time without a reply, per executor
};
// A process has ended, or did not start. The caller logs and counts it.
struct ChildLost {
  int32_t executor = 0;
  uint64_t incarnation = 0;
  ProcessLoss loss;
};
// A process was to be killed, and has not been told yet to end its work. The caller logs it.
struct KillPostponed {
  int32_t executor = 0;
  uint64_t incarnation = 0;
  std::string reason;
};
// The coordinator has accepted the worker.
struct Registered {};
// A coordinator of an earlier epoch accepted the worker, or sent it a command; the daemon refused
// it.
struct RefusedStale {
  uint64_t epoch = 0, newest = 0;
};
// The coordinator will never accept the worker, so the daemon tries no more.
struct Refused {
  absl::Status why;
};
// Asks for a Tick at `when`, in place of the last time that was asked for.
struct SetTimer {
  absl::Time when;
};
// There is no process and no connection any more, and there will be none.
struct Stopped {};

using Effect = std::variant<StartChild, KillChild, CloseChildInput, PingChild, WelcomeChild,
                            Connect, CancelLink, SendReport, SendHeartbeat, ChildLost,
                            KillPostponed, Registered, RefusedStale, Refused, SetTimer, Stopped>;

// Returns the state before the first step. The first step starts the executors, whatever its event.
State Begin(const Config& config);
std::vector<Effect> Step(State& state, const Event& event, absl::Time now);

}  // namespace tessera::worker::daemon
