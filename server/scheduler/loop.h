// The part of a driver of the state machine that needs no threads, locks and clocks. It decides
// which event is next, which request a reply belongs to, when a reply may leave, and in which order
// the effects of a step are applied. The driver adds threads to it; a simulation runs it as it is.
//
// A reply may contain facts that only commits up to some number record. The reply is held until
// these commits are durable. So what a client has been told still holds after a restart of the
// coordinator. While commits fail, because the disk is full or broken, requests that make something
// lasting are refused, and requests that only read are served.
//
// Thread-compatible: the driver keeps the Inbox under its lock, and one thread at a time steps.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "server/scheduler/config.h"
#include "server/scheduler/effects.h"
#include "server/scheduler/events.h"
#include "server/scheduler/state.h"

namespace tessera::server::scheduler {

// The reply to requests after Stop: SERVER_STOPPING.
absl::Status StoppingError();

// The events that wait, the timer, the requests that wait for their replies, and the replies that
// wait until commits are durable.
//
// An event gets its time when it is pushed. When the timer becomes due, the events that wait at
// that moment precede its Tick: a message that arrived in time counts, however late it is
// processed.
class Inbox {
 public:
  using Done = std::function<void(Reply)>;
  struct Arrival {
    absl::Time arrived_at;
    Event event;
  };

  // While `events_max` events wait, new requests are rejected.
  explicit Inbox(int64_t events_max) : events_max_(events_max) {}

  // Returns OK, or the reply to a new request that is rejected: QUEUE_FULL when too many events
  // wait, SERVER_STOPPING after Stop. While commits fail, an event that makes something lasting
  // gets their error.
  absl::Status RejectionReason(const Event& event) const;
  // Adds a request that waits for its reply. `done` is the callback that takes the reply. It is
  // returned once: by PassOrHold, or later together with the reply.
  void AddRequest(uint64_t request, Done done) { requests_.emplace(request, std::move(done)); }

  // A reply that may leave, with the callback that takes it.
  struct Outgoing {
    Done done;
    Reply reply;
  };
  // Takes the reply to a request from the step that made it. `last_commit` is the number of the
  // last commit at that time; the reply may depend on all commits up to it. `acknowledges_change`
  // says whether the reply acknowledges a change. The change may have been made by this step, or by
  // an earlier step, if the client has sent the call again.
  //
  // If the reply must wait for these commits, PassOrHold moves it into the Inbox and returns null.
  // Otherwise it returns the request's callback, for the caller to call with the reply. While
  // commits fail, PassOrHold may have replaced the reply's status by their error. Requires: the
  // request waits.
  Done PassOrHold(Reply& reply, uint64_t last_commit, bool acknowledges_change, absl::Time now);
  // Records that commits up to this one are durable, and that commits no longer fail. Returns the
  // replies that were held for these commits.
  std::vector<Outgoing> RecordDurable(uint64_t commit);
  // Records that commits fail, and returns all held replies. `why` is the error for callers: it
  // replaces a reply that acknowledges a change, or that contains the end of an operation, unless
  // this end is durable. Replies that only read stay as they are.
  std::vector<Outgoing> RecordFailure(const absl::Status& why);
  // If a reply has been held for `bound`, because the store has reported neither success nor
  // failure, does the same as RecordFailure with the error STORE_FAILED. Otherwise returns nothing.
  std::vector<Outgoing> FailCommitsIfSilent(absl::Time now, absl::Duration bound);
  // The number of the last durable commit.
  uint64_t durable_commit() const { return durable_commit_; }

  void Push(absl::Time arrived_at, Event event) {
    events_.push_back({arrived_at, std::move(event)});
  }
  bool empty() const { return events_.empty(); }
  // Returns whether Next would return something.
  bool HasNext(absl::Time now) const {
    return !stopping_ && (!events_.empty() || timer_due_ || timer_ <= now);
  }
  // Returns whether an event that arrives at `now` would be next: no event waits, and the timer is
  // not due.
  bool WouldBeNext(absl::Time now) const { return events_.empty() && timer_ > now; }
  // Takes the next event, which may be the timer's Tick. Returns nothing if no event is due `now`.
  std::optional<Arrival> Next(absl::Time now);

  absl::Time timer() const { return timer_; }
  void SetTimer(absl::Time when) { timer_ = when; }

  // After this call there is no next event.
  void Stop() { stopping_ = true; }
  bool stopping() const { return stopping_; }
  // Takes the requests that still wait, including those with held replies. Each gets
  // SERVER_STOPPING.
  std::vector<Outgoing> TakeRequests();

 private:
  // If the reply contains something that may not be durable, replaces the reply by the error of the
  // failing commits.
  void RefuseIfUncertain(bool acknowledges_change, Reply& reply) const;

  const int64_t events_max_;
  bool stopping_ = false;
  std::deque<Arrival> events_;  // events in order of arrival
  absl::Time timer_ = absl::InfiniteFuture();
  bool timer_due_ = false;
  absl::Time timer_due_at_;  // time at which the timer became due
  // The number of events that precede the timer that is due: those that were in the queue when it
  // became due.
  size_t events_before_timer_ = 0;
  absl::flat_hash_map<uint64_t, Done> requests_;
  // The replies that are held, in order of their commits.
  struct HeldReply {
    uint64_t commit = 0;
    bool acknowledges_change = false;
    absl::Time since;
    Outgoing out;
  };
  std::deque<HeldReply> held_replies_;
  uint64_t durable_commit_ = 0;  // commits up to this one are durable
  absl::Status commit_error_;    // error of the commits that fail now; OK if none fails
};

// Returns whether the reply to the event acknowledges a lasting change. The event's own step may
// have made the change, or an earlier step, if the event repeats an earlier call. Changes by the
// coordinator's own tenant are not kept and do not count.
bool AcknowledgesChange(const Event& event);

// Commands on their way to the workers. Commands do not wait for the disk, with three exceptions: a
// launch that overwrites its donated arguments, the deletion of donated arguments that a launch did
// not overwrite, and a save. A restart could otherwise find the arrays gone, or the file there, for
// an operation that no record mentions. Later commands for the same worker wait behind such a
// command. Only commands that neither start nor free anything overtake it: reads, the kill of a
// process, and the cancellation of a launch whose own command does not wait. These are sent even
// while the disk is full.
class Outbox {
 public:
  // Returns whether the command may leave at once. If not, moves it into the Outbox. `last_commit`
  // has the same meaning as for Inbox::PassOrHold. Commits up to `durable_commit` are durable.
  bool PassOrKeep(SendCommand& command, uint64_t last_commit, uint64_t durable_commit);
  // Takes the commands that may leave now that commits up to `durable_commit` are durable, in
  // order.
  std::vector<SendCommand> Take(uint64_t durable_commit);
  bool empty() const { return waiting_.empty(); }

 private:
  struct WaitingCommand {
    uint64_t commit = 0;  // commit to wait for; 0 if it waits only for the commands before it
    SendCommand command;
  };
  // Returns whether the command may leave before those that wait for the same worker.
  static bool MayOvertake(const SendCommand& send, const std::deque<WaitingCommand>& waiting);

  std::map<uint64_t, std::deque<WaitingCommand>> waiting_;  // registration id -> commands
};

// Owns the state, and runs its steps at times that never go back.
class Stepper {
 public:
  // `wants_notes` says whether the caller reads state().notes after each step.
  Stepper(const Config& config, bool wants_notes);

  // The event has arrived at `arrived_at`, and `moment` is the present. Commits up to
  // `durable_commit` are durable.
  std::vector<Effect> Run(const Event& event, absl::Time arrived_at, const Clock::Moment& moment,
                          uint64_t durable_commit);
  // Takes back the memory of the last step's effects, after they have been applied. The next step
  // uses this memory.
  void Recycle(std::vector<Effect> effects);
  State& state() { return state_; }

 private:
  State state_;
  std::vector<Effect> memory_;
  absl::Time last_time_ = absl::InfinitePast();
};

// Calls `apply` with each effect of a step, in order except that the replies come last. By then the
// commands have been sent and the commit has begun.
template <class Apply>
void ApplyRepliesLast(std::vector<Effect>& effects, const Apply& apply) {
  for (const bool replies : {false, true})
    for (Effect& effect : effects)
      if (std::holds_alternative<Reply>(effect) == replies) apply(effect);
}

}  // namespace tessera::server::scheduler
