// The rules of a worker's daemon as a pure state machine: Step(state, event, now) -> effects.
//
// When an executor's process starts, is asked whether it replies, is killed and is followed by
// another; when the worker registers with its coordinator, what it reports, and when it tries no
// more.
//
// Executors outlive the connection. For the outage grace of the last Welcome the worker tries to
// register with the same processes; those that the coordinator then does not adopt are killed, and
// so are all when the grace is over. As long as it keeps state for a coordinator, it takes no
// earlier one, by their epochs. No I/O, no threads, no clock, no randomness, no logs: the same
// events at the same times give the same effects, in the daemon and in a simulation. One thread at
// a time steps a State.
//
// The caller applies the effects in order, and posts what becomes of them as events. `now` is the
// time at which the event came; it never goes back.
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
  kExit,          // by itself
  kSignal,        // by a signal of another sender
  kNotReady,      // killed: not ready in time
  kProtocol,      // killed: its messages do not parse
  kDisconnected,  // killed: its coordinator stayed away, or does not adopt it
  kStuck,         // killed: it does not acknowledge the end of an operation
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
  // Per executor, below the incarnation of its first process. Those that follow count up; no other
  // process, of this worker or another, may come by the same.
  std::vector<uint64_t> incarnations;
  Build build = ThisBuild();                         // with the protocols that the worker speaks
  absl::Duration ready_timeout = absl::Seconds(20);  // beyond it the process is killed
  // Before a start that follows a failed one; doubles up to the greatest. A process that has been
  // ready for `backoff_reset_after` is followed at once.
  absl::Duration backoff_min = absl::Milliseconds(50);
  absl::Duration backoff_max = absl::Seconds(2);
  absl::Duration backoff_reset_after = absl::Seconds(5);
  absl::Duration stop_grace = absl::Seconds(1);  // between the end of the socket and the kill
  // Between one question, whether the process replies, and the next.
  absl::Duration ping_interval = absl::Milliseconds(500);
  // Between the end of a connection and the next; doubles until the worker is registered.
  absl::Duration reconnect_min = absl::Milliseconds(50);
  absl::Duration reconnect_max = absl::Seconds(2);
  absl::Duration reconnect_max_in_outage = absl::Milliseconds(400);
  absl::Duration first_heartbeat = absl::Milliseconds(300);  // until the first welcome
  absl::Duration heartbeat_min = absl::Milliseconds(10);
  // For which a name may be taken before the worker gives up: beyond the time in which a
  // coordinator that answers notices that a worker of the same name is gone.
  absl::Duration name_taken_patience = absl::Seconds(5);
};

// ---- The state. ---------------------------------------------------------------------------------
struct Executor {
  enum class Phase : uint8_t {
    kWaiting,   // for `due`, when its next process starts
    kStarting,  // until Started or SpawnFailed
    kRunning,   // until Ended
    kStopped,   // no process starts any more
  };
  Phase phase = Phase::kWaiting;
  uint64_t incarnation = 0;                    // of the process, or of that before the next
  absl::Duration backoff;                      // before the next process
  absl::Time due = absl::InfinitePast();       // of kWaiting
  std::optional<api::ExecutorInfo> info = {};  // as it said; none: it is not ready to be registered

  // Of the running process.
  absl::Time started;
  bool ready = false;  // it has sent its message, whatever that was
  absl::Time ready_at;
  bool welcomed = false;                              // a coordinator has used it
  bool open = false;                                  // its socket, as far as it matters
  absl::Time kill_at = absl::InfiniteFuture();        // once it is to end
  bool killed = false;                                // by us
  std::optional<ProcessLoss> verdict = std::nullopt;  // why it ends, once that is decided
  absl::Time answered, next_question;
  bool asked = false;  // and not answered
};

// The connection to the coordinator.
struct Connection {
  enum class Phase : uint8_t {
    kNone,        // until every executor is ready, and not before `due`
    kConnecting,  // the worker has asked to be registered
    kRegistered,  // until the connection ends
    kRefused,     // for good
  };
  Phase phase = Phase::kNone;
  absl::Time due = absl::InfinitePast();  // of kNone
  std::vector<uint64_t> incarnations;     // per executor, as the worker asked to register it
  api::Welcome welcome;                   // of kRegistered
  absl::Duration clock_ahead;             // the coordinator's clock, of `now`
  absl::Duration backoff;                 // before the connection that follows
  bool ever_registered = false;
  // For how long registrations were refused as another worker has the name, and the last of these.
  absl::Duration name_taken_for;
  absl::Time name_taken_at = absl::InfinitePast();
  uint64_t newest_epoch = 0;  // of the coordinator that state is kept for; 0: none is
  absl::Time outage_ends = absl::InfiniteFuture();  // when state is kept no longer
  absl::Duration heartbeat;
  absl::Time next_heartbeat = absl::InfiniteFuture();
};

struct State {
  Config config;
  absl::Time start;
  std::vector<Executor> executors;
  Connection connection;
  bool stopping = false, stopped = false;
  absl::Time armed = absl::InfiniteFuture();  // the time of the last SetTimer
};

// ---- Events. ------------------------------------------------------------------------------------
// Of the process that the last StartChild of the executor asked for; in this order.
struct Started {
  int32_t executor = 0;
};
struct SpawnFailed {
  int32_t executor = 0;
  std::string reason;
};
// A message that is no pong. A process sends one, its ExecutorReady; none: it does not parse.
struct ChildSaid {
  int32_t executor = 0;
  std::optional<api::ExecutorInfo> ready;
};
struct ChildPonged {
  int32_t executor = 0;
};
// The end of its socket, or frames that are none.
struct SocketEnded {
  int32_t executor = 0;
};
struct Ended {
  int32_t executor = 0;
  ProcessEnd end;
  InFlightOp in_flight;  // as its page says
};

// Of the connection that the last Connect asked for; in this order.
// The first message of the coordinator; an error: it is no welcome.
struct Welcomed {
  absl::StatusOr<api::Welcome> welcome;
};
// The only command for the daemon itself; the others go to the executors.
struct ToldToKill {
  uint64_t epoch = 0;
  int32_t executor = 0;
  uint64_t incarnation = 0;
  std::string reason;
};
struct LinkEnded {
  absl::Status status;
};

// The timer that was set is due. `link_idle`: no write on the connection is in flight.
struct Tick {
  bool link_idle = false;
};
// The daemon is to stop.
struct Stop {};

using Event = std::variant<Started, SpawnFailed, ChildSaid, ChildPonged, SocketEnded, Ended,
                           Welcomed, ToldToKill, LinkEnded, Tick, Stop>;

// ---- Effects. -----------------------------------------------------------------------------------
struct StartChild {
  int32_t executor = 0;
  uint64_t incarnation = 0;
};
struct KillChild {
  int32_t executor = 0;
  uint64_t incarnation = 0;
};
// Ends what is sent to it, whereupon it stops.
struct CloseChildInput {
  int32_t executor = 0;
  uint64_t incarnation = 0;
};
// Asks it whether it replies.
struct PingChild {
  int32_t executor = 0;
  uint64_t incarnation = 0;
};
// Passes the coordinator's welcome on. Its ticket key is the worker's: a process gets only its own
// (api::ExecutorTicketKey).
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
// The rest of a heartbeat is what the executors' pages say.
struct SendHeartbeat {
  uint64_t epoch = 0;
  std::vector<absl::Duration> silence;  // per executor
};
// A process has ended, or did not start: to be logged and counted.
struct Lost {
  int32_t executor = 0;
  uint64_t incarnation = 0;
  ProcessLoss loss;
};
// The coordinator has accepted the worker.
struct Registered {};
// A coordinator of an earlier epoch accepted the worker, or sent it a command, and was refused.
struct RefusedStale {
  uint64_t epoch = 0, newest = 0;
};
// It never will; the daemon tries no more.
struct Refused {
  absl::Status why;
};
// Wants a Tick then; replaces the last.
struct SetTimer {
  absl::Time when;
};
// There is no process and no connection, and there will be none.
struct Stopped {};

using Effect = std::variant<StartChild, KillChild, CloseChildInput, PingChild, WelcomeChild,
                            Connect, CancelLink, SendReport, SendHeartbeat, Lost, Registered,
                            RefusedStale, Refused, SetTimer, Stopped>;

// The state before the first step, which starts the executors whatever its event.
State Begin(const Config& config, absl::Time now);
std::vector<Effect> Step(State& state, const Event& event, absl::Time now);

}  // namespace tessera::worker::daemon
