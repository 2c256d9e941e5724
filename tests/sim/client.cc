// The calls and the session of a simulated client. A call travels over the client's path to the
// process that serves, and is repeated until an answer tells its effect. client_work.cc decides
// what to call.
#include "tests/sim/client.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/status.h"
#include "tests/sim/client_call.h"

namespace tessera::sim {
namespace {

constexpr absl::Duration kGiveUp = absl::Seconds(60);    // time for which a call is repeated
constexpr absl::Duration kPatience = absl::Seconds(45);  // time to wait for one answer
constexpr absl::Duration kNoticeMin = absl::Milliseconds(500), kNoticeMax = absl::Seconds(4);
// The longest time that any answer takes: the longest wait of the scheduler itself, and a margin.
constexpr absl::Duration kAnswerMax = absl::Seconds(130);
constexpr absl::Duration kRenewal = absl::Seconds(3);

}  // namespace

Client::Client(World* world, Coordinator* coordinator, Checker* checker, int index)
    : world_(world), coordinator_(coordinator), checker_(checker), index_(index), path_(world) {
  caller_.tenant = absl::StrCat("tenant", index);
  caller_.role = server::core::Role::kUser;
  OpenSession();
  Act();
}

void Client::Kill() {
  world_->Log(caller_.tenant, "'s client dies");
  const uint64_t session = session_, hold = hold_id_;
  // The coordinator notices the end of the connection.
  world_->After(world_->random().Within(absl::ZeroDuration(), absl::Seconds(10)),
                [this, session, hold] {
                  if (Process* const process = coordinator_->current())
                    process->Post(scheduler::DropHold{session, hold});
                });
  ++life_;
  session_ = 0;
  open_calls_.clear();
  programs_.clear();
  arrays_.clear();
  last_deleted_ = 0;
  donated_.clear();
  uploaded_programs_.clear();
  dropped_programs_.clear();
  files_.clear();
  for (uint64_t operation : std::exchange(operations_, {})) checker_->OnAbandoned(operation);
  world_->After(world_->random().Within(absl::Milliseconds(100), absl::Seconds(5)),
                [this, life = life_] {
                  if (life == life_) OpenSession();
                });
}

// ---- Calls. -------------------------------------------------------------------------------------

bool Client::IsEffectUnknown(const absl::Status& status) {
  if (status.ok()) return false;
  const ErrorKind kind = KindOf(status);
  return ReasonOf(status).empty() || kind == ErrorKind::kDiskFull ||
         kind == ErrorKind::kStoreFailed || kind == ErrorKind::kStaleEpoch ||
         kind == ErrorKind::kServerStopping;
}

int64_t Client::NumOpenFor(absl::Duration time) const {
  return std::distance(open_calls_.begin(), open_calls_.lower_bound(world_->now() - time));
}

void Client::BeginCall(CallRef call) {
  call->began_at = world_->now();
  call->life = life_;
  open_calls_.insert(call->began_at);
  Attempt(call);
}

void Client::Attempt(const CallRef& call) {
  if (call->ended || call->life != life_) return;
  call->attempted_at = world_->now();
  ++call->copies_under_way;
  world_->After(path_.Delay(), [this, call] { Deliver(call); });
  if (world_->now() < duplicates_until_ && call->repeats && ++call->copies_under_way > 0)
    world_->After(world_->random().Within(absl::ZeroDuration(), absl::Milliseconds(300)),
                  [this, call] { Deliver(call); });
  world_->After(kPatience, [this, call, attempted = call->attempted_at] {
    if (call->attempted_at == attempted) OnUnanswered(call, absl::ZeroDuration());
  });
}

void Client::Deliver(const CallRef& call) {
  Random& random = world_->random();
  Process* const process = coordinator_->current();
  const bool blocked = path_.blocked(/*up=*/true);
  if (blocked || process == nullptr) --call->copies_under_way;
  if (blocked) return OnUnanswered(call, random.Within(kNoticeMin, kNoticeMax));
  if (process == nullptr) return OnUnanswered(call, absl::Milliseconds(20));
  const auto lost = [this, call] {
    --call->copies_under_way;
    OnUnanswered(call, absl::ZeroDuration());
  };
  const auto done = [this, call](const scheduler::Reply& reply) {
    --call->copies_under_way;
    Receive(call, reply);
  };
  call->send(process, done, lost);
}

void Client::Receive(const CallRef& call, const scheduler::Reply& reply) {
  if (call->life != life_ || call->ended) return;
  const absl::Time answered = world_->now();
  if (call->attempted_at != absl::InfinitePast() && answered - call->attempted_at > kAnswerMax)
    world_->Violate(call->what, " was answered after ",
                    absl::FormatDuration(answered - call->attempted_at));
  world_->After(path_.Delay(), [this, call, reply, answered] {
    if (path_.blocked(/*up=*/false) || world_->now() < replies_lost_until_)
      return OnUnanswered(call, world_->random().Within(kNoticeMin, kNoticeMax));
    world_->After(paused_until_ - world_->now(), [this, call, reply, answered] {
      if (call->life != life_ || call->ended) return;
      if (IsEffectUnknown(reply.status)) return OnUnanswered(call, absl::ZeroDuration());
      // If this copy of the call is refused, another copy that arrives later may still be accepted.
      if (!reply.status.ok() && call->copies_under_way > 0)
        return OnUnanswered(call, absl::ZeroDuration());
      answered_at_ = answered;
      End(call, reply);
    });
  });
}

void Client::OnUnanswered(const CallRef& call, absl::Duration notice) {
  if (call->life != life_ || call->ended) return;
  const absl::Duration pause =
      notice + world_->random().Within(absl::Milliseconds(50), absl::Milliseconds(800));
  if (call->repeats && world_->now() - call->began_at < kGiveUp) {
    call->attempted_at = absl::InfinitePast();
    return world_->After(pause, [this, call] {
      if (call->attempted_at == absl::InfinitePast()) Attempt(call);
    });
  }
  world_->After(notice, [this, call] {
    if (call->life != life_ || call->ended) return;
    answered_at_ = world_->now();
    End(call, {.request = 0, .status = absl::UnavailableError("no answer"), .body = {}});
  });
}

void Client::End(const CallRef& call, const scheduler::Reply& reply) {
  call->ended = true;
  open_calls_.erase(open_calls_.find(call->began_at));
  world_->Log(caller_.tenant, " ", call->what, ": ",
              reply.status.ok()                ? "OK"
              : ReasonOf(reply.status).empty() ? "unanswered"
                                               : std::string(ReasonOf(reply.status)));
  if (!reply.status.ok() && !ReasonOf(reply.status).empty() &&
      KindOf(reply.status) == ErrorKind::kInternal)
    world_->Violate(call->what, " failed: ", std::string(reply.status.message()));
  call->then(reply);
}

// ---- The session. -------------------------------------------------------------------------------

void Client::OpenSession() {
  scheduler::OpenSession e;
  e.display_name = caller_.tenant;
  e.lease = kSessionLease;
  const absl::Time sent = world_->now();
  Ask("open a session", e, [this, sent](const scheduler::Reply& reply) {
    if (!reply.status.ok())
      return world_->After(absl::Seconds(1), [this, life = life_] {
        if (life == life_) OpenSession();
      });
    session_ = std::get<scheduler::SessionInfo>(reply.body).id;
    checker_->OnAcknowledged("session", session_);
    safe_until_ = sent + kSessionLease;
    not_counted_ = coordinator_->not_counted();
    KeepHolding();
    KeepRenewing();
  });
}

void Client::KeepRenewing() {
  world_->After(kRenewal, [this, life = life_, session = session_] {
    if (life != life_ || session != session_) return;
    KeepRenewing();
    if (world_->now() < paused_until_) return;
    scheduler::GetSession e;
    e.session = session;
    e.renew = true;
    const absl::Time sent = world_->now();
    Ask("renew", e, [this, session, sent](const scheduler::Reply& reply) {
      if (session != session_) return;
      if (reply.status.ok()) {
        safe_until_ = std::max(safe_until_, sent + kSessionLease);
        not_counted_ = coordinator_->not_counted();
      } else if (KindOf(reply.status) == ErrorKind::kSessionNotFound) {
        OnSessionLost(session);
      }
    });
  });
}

void Client::KeepHolding() {
  Process* const process = coordinator_->current();
  const auto again = [this, life = life_, session = session_](absl::Duration after) {
    world_->After(after, [this, life, session] {
      if (life == life_ && session == session_) KeepHolding();
    });
  };
  if (process == nullptr || path_.blocked(/*up=*/true)) return again(absl::Milliseconds(500));
  scheduler::HoldSession e;
  e.caller = caller_;
  e.session = session_;
  e.hold = hold_id_ = ++last_request_ * 16 + static_cast<uint64_t>(index_);
  process->CallToEnd(
      e, [](const scheduler::Reply&) {},
      [again](const scheduler::Reply&) { again(absl::Seconds(2)); },
      [again] { again(absl::Milliseconds(300)); });
}

bool Client::IsSafe(uint64_t session) const {
  return session == 0 || (session == session_ && answered_at_ < safe_until_ + NotCounted());
}

void Client::OnSessionLost(uint64_t session) {
  if (session != session_) return;
  if (IsSafe(session)) world_->Violate("session ", session, " is gone before its lease ends");
  session_ = 0;
  arrays_.clear();
  donated_.clear();
  OpenSession();
}

}  // namespace tessera::sim
