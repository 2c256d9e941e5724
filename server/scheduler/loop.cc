// The queue of events, and the replies and commands that wait for the disk. The driver (driver.cc)
// calls these classes under its lock or on its runner, and the simulation (tests/sim/process.cc)
// calls them in simulated time, so that both follow the same rules.
#include "server/scheduler/loop.h"

#include <algorithm>
#include <iterator>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "server/scheduler/step.h"

namespace tessera::server::scheduler {

absl::Status StoppingError() {
  return MakeError(ErrorKind::kServerStopping, "the coordinator is shutting down; retry later");
}

namespace {

// Returns whether the event makes something lasting, and is therefore refused while commits fail.
// Deletions and cancellations are not refused.
bool MakesSomethingLasting(const Event& event) {
  return std::visit(
      [](const auto& e) {
        using E = std::decay_t<decltype(e)>;
        if constexpr (std::is_base_of_v<Request, E>) {
          if (e.caller.tenant == core::kSystemTenant) return false;
        }
        if constexpr (std::is_same_v<E, Compile>) {
          return !e.body.plan_only;
        } else if constexpr (std::is_same_v<E, Execute>) {
          return !e.body.check_only;
        } else if constexpr (std::is_same_v<E, CreateMesh> || std::is_same_v<E, CreateArray>) {
          return !e.check_only;
        } else {
          return std::is_same_v<E, OpenSession> || std::is_same_v<E, Cordon> ||
                 std::is_same_v<E, Drain> || std::is_same_v<E, SaveArrays> ||
                 std::is_same_v<E, LoadArrays> || std::is_same_v<E, UploadProgram> ||
                 std::is_same_v<E, ReshardArray>;
        }
      },
      event);
}

// Returns whether the reply depends on no commit, because it holds only metrics or the bytes of an
// array.
bool DependsOnNoCommit(const Reply& reply) {
  return std::holds_alternative<core::ClusterReading>(reply.body) ||
         std::holds_alternative<ir::Array>(reply.body);
}

// Returns whether the reply acknowledges an operation that the call has begun. The reply to a
// LoadArrays comes in the step of an executor's report, so the event of that step does not say so.
bool AcknowledgesOperation(const Reply& reply) {
  return std::holds_alternative<PendingArrays>(reply.body);
}

}  // namespace

bool AcknowledgesChange(const Event& event) {
  if (MakesSomethingLasting(event)) return true;
  return std::visit(
      [](const auto& e) {
        using E = std::decay_t<decltype(e)>;
        if constexpr (std::is_base_of_v<Request, E>) {
          if (e.caller.tenant == core::kSystemTenant) return false;
        }
        return std::is_same_v<E, CloseSession> || std::is_same_v<E, DeleteArrays> ||
               std::is_same_v<E, DeleteMesh> || std::is_same_v<E, KeepProgram> ||
               std::is_same_v<E, DeleteProgram> || std::is_same_v<E, DeleteWorker> ||
               std::is_same_v<E, CancelOperation>;
      },
      event);
}

absl::Status Inbox::RejectionReason(const Event& event) const {
  if (stopping_) return StoppingError();
  if (!commit_error_.ok() && MakesSomethingLasting(event)) return commit_error_;
  if (static_cast<int64_t>(events_.size()) < events_max_) return absl::OkStatus();
  return MakeError(ErrorKind::kQueueFull,
                   absl::StrCat("coordinator: ", events_.size(), " requests wait, at most ",
                                events_max_, " are accepted; wait and retry"));
}

Inbox::Done Inbox::PassOrHold(Reply& reply, uint64_t last_commit, bool acknowledges_change,
                              absl::Time now) {
  const auto it = requests_.find(reply.request);
  TESSERA_CHECK(it != requests_.end()) << "request " << reply.request << " is answered twice";
  Done done = std::move(it->second);
  requests_.erase(it);
  if (last_commit <= durable_commit_ || DependsOnNoCommit(reply)) return done;
  if (commit_error_.ok()) {
    held_replies_.push_back(
        {last_commit, acknowledges_change, now, {std::move(done), std::move(reply)}});
    return nullptr;
  }
  RefuseIfUncertain(acknowledges_change, reply);
  return done;
}

void Inbox::RefuseIfUncertain(bool acknowledges_change, Reply& reply) const {
  // If another coordinator has taken over, nothing that this one says is certain any more.
  if (KindOf(commit_error_) == ErrorKind::kStaleEpoch ||
      (reply.status.ok() && (acknowledges_change || AcknowledgesOperation(reply) ||
                             reply.ended_in_commit > durable_commit_)))
    reply.status = commit_error_;
}

std::vector<Inbox::Outgoing> Inbox::RecordDurable(uint64_t commit) {
  durable_commit_ = std::max(durable_commit_, commit);
  commit_error_ = absl::OkStatus();
  std::vector<Outgoing> out;
  for (; !held_replies_.empty() && held_replies_.front().commit <= durable_commit_;
       held_replies_.pop_front())
    out.push_back(std::move(held_replies_.front().out));
  return out;
}

std::vector<Inbox::Outgoing> Inbox::RecordFailure(const absl::Status& why) {
  commit_error_ = why;
  std::vector<Outgoing> out;
  for (HeldReply& reply : std::exchange(held_replies_, {})) {
    RefuseIfUncertain(reply.acknowledges_change, reply.out.reply);
    out.push_back(std::move(reply.out));
  }
  return out;
}

std::vector<Inbox::Outgoing> Inbox::FailCommitsIfSilent(absl::Time now, absl::Duration bound) {
  if (held_replies_.empty() || now - held_replies_.front().since < bound) return {};
  return RecordFailure(MakeError(
      ErrorKind::kStoreFailed,
      absl::StrCat("the disk that holds the coordinator's state has not answered for ",
                   absl::FormatDuration(bound),
                   "; it is not known yet whether the call has changed anything: retry")));
}

std::vector<Inbox::Outgoing> Inbox::TakeRequests() {
  std::vector<Outgoing> out;
  for (HeldReply& reply : std::exchange(held_replies_, {})) {
    out.push_back(std::move(reply.out));
    out.back().reply.status = StoppingError();
  }
  for (auto& [request, done] : std::exchange(requests_, {}))
    out.push_back(
        {std::move(done), Reply{.request = request, .status = StoppingError(), .body = {}}});
  return out;
}

std::optional<Inbox::Arrival> Inbox::Next(absl::Time now) {
  if (stopping_) return std::nullopt;
  if (!timer_due_ && timer_ <= now) {
    timer_due_ = true;
    timer_due_at_ = now;
    events_before_timer_ = events_.size();
  }
  if (timer_due_ && events_before_timer_ == 0) {
    timer_due_ = false;
    timer_ = absl::InfiniteFuture();
    return Arrival{timer_due_at_, Tick{}};
  }
  if (events_.empty()) return std::nullopt;
  if (timer_due_) --events_before_timer_;
  Arrival next = std::move(events_.front());
  events_.pop_front();
  return next;
}

bool Outbox::MayOvertake(const SendCommand& send, const std::deque<WaitingCommand>& waiting) {
  if (std::holds_alternative<api::KillExecutor>(send.command) ||
      std::holds_alternative<api::ReadBuffer>(send.command) ||
      std::holds_alternative<api::InspectFile>(send.command))
    return true;
  const auto* const cancel = std::get_if<api::CancelLaunch>(&send.command);
  if (cancel == nullptr) return false;
  const auto is_of_launch = [&](const auto& other) {
    if constexpr (requires { other.launch; }) return other.launch == cancel->launch;
    return false;
  };
  return std::none_of(waiting.begin(), waiting.end(), [&](const WaitingCommand& before) {
    return before.command.executor == send.executor &&
           std::visit(is_of_launch, before.command.command);
  });
}

bool Outbox::PassOrKeep(SendCommand& command, uint64_t last_commit, uint64_t durable_commit) {
  const auto* launch = std::get_if<api::Launch>(&command.command);
  const bool consumes = launch != nullptr && std::find(launch->donate.begin(), launch->donate.end(),
                                                       true) != launch->donate.end();
  const bool waits = (consumes || command.when_durable) && last_commit > durable_commit;
  const auto before = waiting_.find(command.registration_id);
  if (!waits && (before == waiting_.end() || MayOvertake(command, before->second))) return true;
  waiting_[command.registration_id].push_back({waits ? last_commit : 0, std::move(command)});
  return false;
}

std::vector<SendCommand> Outbox::Take(uint64_t durable_commit) {
  std::vector<SendCommand> out;
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    std::deque<WaitingCommand>& queue = it->second;
    for (; !queue.empty() && queue.front().commit <= durable_commit; queue.pop_front())
      out.push_back(std::move(queue.front().command));
    it = queue.empty() ? waiting_.erase(it) : std::next(it);
  }
  return out;
}

Stepper::Stepper(const Config& config, bool wants_notes) : state_(InitialState(config)) {
  state_.config.wants_notes = wants_notes;
}

std::vector<Effect> Stepper::Run(const Event& event, absl::Time arrived_at,
                                 const Clock::Moment& moment, uint64_t durable_commit) {
  // An event must not be earlier than the last step.
  last_time_ = std::max(arrived_at, last_time_);
  state_.wall_ahead = moment.wall - moment.now;
  state_.steady_ahead = moment.steady - moment.now;
  state_.lag = std::max(moment.now - last_time_, absl::ZeroDuration());
  state_.durable_commit = durable_commit;
  return Step(state_, event, last_time_, std::exchange(memory_, {}));
}

void Stepper::Recycle(std::vector<Effect> effects) {
  constexpr size_t kKept = 64;  // larger memory comes from a rare step and is freed
  if (effects.capacity() > kKept) return;
  effects.clear();
  memory_ = std::move(effects);
}

}  // namespace tessera::server::scheduler
