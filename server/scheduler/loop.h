// What a driver of the state machine does, without threads, locks and clocks: which event is next,
// who waits for which reply, when a reply may leave, and the order of a step's effects. The driver
// adds threads to it; a simulation runs it as it is.
//
// A reply leaves when the commits that it may tell of are durable, so that a restart of the
// coordinator takes back nothing that anybody was told. While commits fail, because the disk is
// full or broken, requests that make something are refused, and reads go on.
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
#include "server/scheduler/state.h"

namespace tessera::server::scheduler {

// SERVER_STOPPING: the reply to requests after Stop.
absl::Status Stopping();

// The events that wait, the timer, and the requests that wait for their replies.
//
// Events get their time when they are pushed, and those that wait when the timer becomes due
// precede its Tick: a message that arrived in time counts, however late it is processed.
class Inbox {
 public:
  using Done = std::function<void(Reply)>;
  struct Arrival {
    absl::Time came;
    Event event;
  };

  // `events_max`: beyond it requests are rejected.
  explicit Inbox(int64_t events_max) : events_max_(events_max) {}

  // OK, or the reply to a new request: QUEUE_FULL; after Stop, SERVER_STOPPING; while commits fail,
  // their error, if the event makes something that is to last.
  absl::Status RejectionReason(const Event& event) const;
  // `done` will be taken once, for the reply.
  void AddRequest(uint64_t request, Done done) { requests_.emplace(request, std::move(done)); }

  // A reply that may leave.
  struct Outgoing {
    Done done;
    Reply reply;
  };
  // Takes the request, for the reply of a step. `commits`: the number of the last commit, all of
  // which the reply may tell of; `changes`: it acknowledges a change, of its own step or by an
  // earlier copy of its call.  Null: the reply is taken, and held until they are durable; else it
  // may leave as it is now.  Requires: the request waits.
  Done Answer(Reply& reply, uint64_t commits, bool changes, absl::Time now);
  // Commits up to this one are durable, and do not fail any more. Returns the replies that waited.
  std::vector<Outgoing> DurableThrough(uint64_t commit);
  // Commits fail, with an error for callers. Returns the replies that waited: what has changed
  // something has this error, and so has what tells of an operation's end that is not durable; what
  // only reads goes on.
  std::vector<Outgoing> Failing(const absl::Status& why);
  // The same, of a disk that says nothing, if a reply has waited for `bound`: STORE_FAILED.
  std::vector<Outgoing> FailingIfSilent(absl::Time now, absl::Duration bound);
  uint64_t durable() const { return durable_; }

  void Push(absl::Time came, Event event) { events_.push_back({came, std::move(event)}); }
  bool empty() const { return events_.empty(); }
  // Whether Next would return something.
  bool HasNext(absl::Time now) const {
    return !stopping_ && (!events_.empty() || timer_due_ || timer_ <= now);
  }
  // Whether an event that arrives `now` precedes all that waits.
  bool IsFirst(absl::Time now) const { return events_.empty() && timer_ > now; }
  // Takes the next event, the timer's Tick included; none: nothing is due `now`.
  std::optional<Arrival> Next(absl::Time now);

  absl::Time timer() const { return timer_; }
  void SetTimer(absl::Time when) { timer_ = when; }

  // Nothing is next any more.
  void Stop() { stopping_ = true; }
  bool stopping() const { return stopping_; }
  // The requests that still wait, held replies included, each with SERVER_STOPPING.
  std::vector<Outgoing> TakeRequests();

 private:
  // Gives a reply that cannot leave as it is the error of commits.
  void Refuse(bool changes, Reply& reply) const;

  const int64_t events_max_;
  bool stopping_ = false;
  std::deque<Arrival> events_;  // in order of arrival
  absl::Time timer_ = absl::InfiniteFuture();
  bool timer_due_ = false;
  absl::Time timer_came_;  // when it became due
  // The number of events that precede the due timer: those in the queue when it became due.
  size_t before_timer_ = 0;
  absl::flat_hash_map<uint64_t, Done> requests_;
  // Replies that wait, in order of their commits.
  struct Held {
    uint64_t commit = 0;
    bool changes = false;
    absl::Time since;
    Outgoing out;
  };
  std::deque<Held> held_;
  uint64_t durable_ = 0;  // commits up to this one are durable
  absl::Status failing_;
};

// Whether the reply to the event acknowledges that something has changed that is to last, by this
// step or, if the call comes again, by an earlier one. What the coordinator's own tenant changes is
// not kept.
bool Changes(const Event& event);

// Commands on their way to the workers. They do not wait for the disk, but for three: a launch that
// consumes its arguments, the deletion of donated arrays that it only reads or copies, and a save.
// A restart could otherwise find the arrays gone, or the file there, for an operation that nobody
// knows of. What comes after such a command for the same worker waits behind it, but for what
// starts and frees nothing: reads, the end of a process, and that of a launch which does not wait
// itself. They go on while the disk is full.
class Outbox {
 public:
  // Returns whether the command may leave at once; else it is kept. `commits` as for Inbox::Answer.
  bool MayLeave(SendCommand& command, uint64_t commits, uint64_t durable);
  // Those that may leave now that commits up to `durable` are, in order.
  std::vector<SendCommand> Take(uint64_t durable);
  bool empty() const { return waiting_.empty(); }

 private:
  struct Waiting {
    uint64_t commit = 0;  // 0: only for what is before it
    SendCommand command;
  };
  // Whether it may leave before those that wait for the same worker.
  static bool MayOvertake(const SendCommand& send, const std::deque<Waiting>& waiting);

  std::map<uint64_t, std::deque<Waiting>> waiting_;  // by session of the worker
};

// Steps the state with times that never go back.
class Stepper {
 public:
  // `notes`: state().notes are read after each step.
  Stepper(const Config& config, bool notes);

  // `at`: the present. `durable`: commits up to this one are, as of Inbox::durable.
  std::vector<Effect> Run(const Event& event, absl::Time came, const Clock::Moment& at,
                          uint64_t durable);
  // The effects of the last step have been applied: the next one may use their memory.
  void Recycle(std::vector<Effect> effects);
  State& state() { return state_; }

 private:
  State state_;
  std::vector<Effect> memory_;
  absl::Time last_ = absl::InfinitePast();
};

// Calls `apply` with each effect of a step, in order but with the replies last, when commands have
// been sent and the commit has begun.
template <class Apply>
void ApplyInOrder(std::vector<Effect>& effects, const Apply& apply) {
  for (const bool replies : {false, true})
    for (Effect& effect : effects)
      if (std::holds_alternative<Reply>(effect) == replies) apply(effect);
}

}  // namespace tessera::server::scheduler
