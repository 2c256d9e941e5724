// Keeps the session of one client alive. RemoteService::Connect opens the lease, its calls take the
// session id from it, and a thread renews it until the client ends. The times of renewals are
// fractions of the lease, so that one lost renewal or a short loss of the connection does not end
// the session.
#include "client/remote/lease.h"

#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"
#include "ir/serial/status.h"

namespace tessera::remote {
namespace {

constexpr absl::Duration kOpenTimeout = absl::Seconds(10);
// How long the server may take to answer a call about a session, if it can be reached.
constexpr absl::Duration kAnswerTimeout = absl::Seconds(10);
// There is more than one renewal per lease, so that one may fail.
constexpr int kRenewalsPerLease = 3;
// The timeout of a renewal is half of the interval between renewals, and a renewal that failed is
// tried again after a quarter of the interval. So the lease is still renewed if the connection
// comes back late in the lease.
constexpr int kCallsPerInterval = 2, kRetriesPerInterval = 4;
constexpr absl::Duration kMinRenewInterval = absl::Milliseconds(20);
// The number of times per grace period of the server that the hold is polled. It leaves time to
// open a broken stream again.
constexpr int kPollsPerGrace = 5;
constexpr absl::Duration kMinPollInterval = absl::Milliseconds(50),
                         kMaxPollInterval = absl::Seconds(1);
// How long the thread waits for a hold that is being opened before it checks stopping_.
constexpr absl::Duration kHoldWait = absl::Milliseconds(100);

}  // namespace

RenewalTimes::RenewalTimes(absl::Duration lease)
    : interval(std::max(lease / kRenewalsPerLease, kMinRenewInterval)),
      call_timeout(interval / kCallsPerInterval),
      retry_wait(interval / kRetriesPerInterval) {}

std::string ProcessDisplayName() {
  char host[256] = "";
  if (gethostname(host, sizeof(host) - 1) != 0) host[0] = '\0';
  return absl::StrCat(program_invocation_short_name, " on ", host, ", process ", getpid());
}

// Opens a new session, or renews the session in the options to see that it exists. Without a
// session (id 0) there is nothing to renew, so no thread is started. Only a session that was opened
// here is held and deleted; a session that was passed in belongs to the caller.
absl::StatusOr<std::unique_ptr<Lease>> Lease::Open(const std::shared_ptr<grpc::Channel>& channel,
                                                   Outage* outage, LeaseOptions options,
                                                   PrepareFn prepare, ToStatusFn to_status) {
  std::unique_ptr<Lease> lease(
      new Lease(channel, outage, std::move(options), std::move(prepare), std::move(to_status)));
  const absl::Time sent = LeaseClock::Now();
  absl::StatusOr<v1::Session> session = v1::Session();
  if (!lease->options_.session) {
    session = lease->Create();
    if (!session.ok() && KindOf(session.status()) == ErrorKind::kRoleMissing)
      session = v1::Session();
  } else if (*lease->options_.session != 0) {
    grpc::ClientContext context;
    lease->prepare_(&context, kOpenTimeout);
    v1::RenewSessionRequest request;
    request.set_session(*lease->options_.session);
    const absl::Status renewed =
        lease->to_status_(lease->stub_->RenewSession(&context, request, &*session));
    if (!renewed.ok()) session = renewed;
  }
  TESSERA_RETURN_IF_ERROR(session);
  if (session->id() == 0) return lease;
  {
    absl::MutexLock lock(&lease->mu_);
    lease->session_ = session->id();
    lease->lease_ = ir::serial::FromProto(session->lease());
    lease->NoteRenewed(sent);
    lease->poll_interval_ = kMaxPollInterval;
    if (session->has_grace())
      lease->poll_interval_ = std::clamp(ir::serial::FromProto(session->grace()) / kPollsPerGrace,
                                         kMinPollInterval, kMaxPollInterval);
  }
  if (lease->owns_session()) {
    lease->hold_ = std::make_unique<Hold>(lease->stub_.get(), lease->prepare_);
    lease->at_end_ =
        std::make_unique<AtProcessEnd>([lease = lease.get()](absl::Time by) { lease->End(by); });
  }
  lease->thread_ = std::make_unique<std::thread>([lease = lease.get()] { lease->RunThread(); });
  return lease;
}

Lease::Lease(const std::shared_ptr<grpc::Channel>& channel, Outage* outage, LeaseOptions options,
             PrepareFn prepare, ToStatusFn to_status)
    : options_(std::move(options)),
      prepare_(std::move(prepare)),
      to_status_(std::move(to_status)),
      channel_(channel),
      outage_(outage),
      stub_(v1::SessionService::NewStub(channel)),
      process_(getpid()) {}

Lease::~Lease() {
  if (getpid() != process_) {
    // The thread does not exist in a forked child.
    (void)thread_.release();
    (void)hold_.release();
    return;
  }
  at_end_ = nullptr;
  End(SteadyNow() + kCloseTimeout);
}

void Lease::End(absl::Time by) {
  uint64_t session = 0;
  {
    absl::MutexLock lock(&mu_);
    if (std::exchange(stopping_, true)) return;
    session = session_;
    if (current_call_ != nullptr) current_call_->TryCancel();
  }
  StopCalls();
  if (thread_ == nullptr) return;
  thread_->join();
  thread_ = nullptr;
  hold_ = nullptr;
  if (!owns_session()) return;
  grpc::ClientContext context;
  prepare_(&context, std::max(by - SteadyNow(), absl::ZeroDuration()));
  v1::DeleteSessionRequest request;
  request.set_session(session);
  v1::DeleteSessionResponse response;
  // If this call fails, the lease expires.
  (void)stub_->DeleteSession(&context, request, &response);
}

void Lease::StopCalls() {
  absl::MutexLock lock(&mu_);
  if (!stop_.HasBeenNotified()) stop_.Notify();
}

bool Lease::ended() const {
  absl::MutexLock lock(&mu_);
  return stopping_;
}

RenewalTimes Lease::renewal_times() const {
  absl::MutexLock lock(&mu_);
  return RenewalTimes(lease_);
}

uint64_t Lease::session() const {
  absl::MutexLock lock(&mu_);
  return session_;
}

absl::StatusOr<v1::Session> Lease::Create() const {
  v1::CreateSessionRequest request;
  request.set_request_id(NewRequestId());
  request.set_display_name(options_.display_name);
  if (options_.lease > absl::ZeroDuration())
    *request.mutable_lease() = ir::serial::ToProto(options_.lease);
  v1::Session session;
  TESSERA_RETURN_IF_ERROR(CallUntilAnswered(
      channel_, {"CreateSession", kAnswerTimeout}, outage_, prepare_, to_status_,
      [&](grpc::ClientContext* context) {
        return stub_->CreateSession(context, request, &session);
      },
      &stop_));
  return session;
}

void Lease::NoteRenewed(absl::Time sent) {
  clock_.Renewed(sent, lease_);
  lease_end_nanos_ = absl::ToUnixNanos(clock_.lease_end());
}

void Lease::NoteWait(absl::Duration bound) {
  absl::MutexLock lock(&mu_);
  const absl::Time now = LeaseClock::Now();
  clock_.EndWait(now);
  clock_.BeginWait(now, bound);
}

absl::Status Lease::EndedInPauseError(uint64_t session) const {
  return MakeError(
      ErrorKind::kSessionNotFound,
      absl::StrCat("the lease (", absl::ToDoubleSeconds(lease_), " s) of session ", session,
                   " ended while this process did not run, and its arrays and "
                   "runs with it; ",
                   owns_session() ? "make them again" : "connect with another session"));
}

// The reason is found before the call that opens another session, because that call may take long.
// One thread makes the call, so that no session is opened and then forgotten.
absl::StatusOr<uint64_t> Lease::ReplaceSession(uint64_t lost) {
  absl::Status why;
  {
    absl::MutexLock lock(&mu_);
    const auto idle = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return !replacing_; };
    mu_.Await(absl::Condition(&idle));  // the other thread's call has a bound
    if (clock_.EndedInPause(LeaseClock::Now())) why = EndedInPauseError(lost);
    if (options_.session) {
      if (why.ok())
        return MakeError(ErrorKind::kSessionNotFound,
                         absl::StrCat("session ", lost, " has ended; connect with another"));
      made_.LoseAll(why);
      has_lost_ = true;
      return why;
    }
    if (stopping_)
      return MakeError(ErrorKind::kSessionNotFound, absl::StrCat("session ", lost, " has ended"));
    if (session_ != lost) return session_;  // another thread has replaced it
    replacing_ = true;
  }
  const absl::Time sent = LeaseClock::Now();
  const absl::StatusOr<v1::Session> session = Create();
  absl::MutexLock lock(&mu_);
  replacing_ = false;
  TESSERA_RETURN_IF_ERROR(session.status());
  if (!why.ok()) {
    made_.Lose(lost, why);
    has_lost_ = true;
  }
  session_ = session->id();
  replaced_at_ = SteadyNow();
  NoteRenewed(sent);
  return session_;
}

bool Lease::WasReplacedWithin(absl::Duration time) const {
  absl::MutexLock lock(&mu_);
  return SteadyNow() - replaced_at_ < time;
}

void Lease::NoteMade(uint64_t session, absl::Span<const uint64_t> ids) {
  absl::MutexLock lock(&mu_);
  made_.Note(session, ids);
}

// Whether the lease has ended is known to the server alone: a server that was itself late extends
// the leases that it holds.
absl::Status Lease::CheckHeld(absl::Span<const uint64_t> ids) {
  if (!MayHaveLost()) return absl::OkStatus();
  uint64_t session = 0;
  {
    absl::MutexLock lock(&mu_);
    TESSERA_RETURN_IF_ERROR(made_.WhyLost(ids));
    if (session_ == 0 || stopping_ || !clock_.EndedInPause(LeaseClock::Now()))
      return absl::OkStatus();
    session = session_;
  }
  AskAboutSession(session);
  absl::MutexLock lock(&mu_);
  return made_.WhyLost(ids);
}

void Lease::AskAboutSession(uint64_t session) {
  const absl::Time sent = LeaseClock::Now();
  v1::RenewSessionRequest request;
  request.set_session(session);
  v1::Session response;
  const absl::Status renewed = CallUntilAnswered(
      channel_, {"RenewSession", kAnswerTimeout}, outage_, prepare_, to_status_,
      [&](grpc::ClientContext* context) {
        return stub_->RenewSession(context, request, &response);
      },
      &stop_);
  if (renewed.ok()) {
    absl::MutexLock lock(&mu_);
    if (session_ == session) NoteRenewed(sent);
  } else if (KindOf(renewed) == ErrorKind::kSessionNotFound) {
    // If this fails, the call that asked gets the coordinator's own error.
    ReplaceSession(session).status().IgnoreError();
  }
}

// Renews the lease when that is due, and in between keeps the stream open that holds the session.
// Each wait is announced to the clock, which thereby notices when the process does not run.
void Lease::RunThread() {
  absl::Time due = SteadyNow() + renewal_times().interval;
  absl::Duration poll_interval = absl::ZeroDuration();
  while (true) {
    uint64_t session = 0;
    absl::Duration wait = due - SteadyNow();
    if (hold_ != nullptr) wait = std::min(wait, poll_interval);
    NoteWait(wait);
    {
      absl::MutexLock lock(&mu_);
      const auto stopping = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return stopping_; };
      if (mu_.AwaitWithTimeout(absl::Condition(&stopping), wait)) return;
      session = session_;
      poll_interval = poll_interval_;
    }
    if (const absl::Time sent = SteadyNow(); sent >= due) {
      const RenewalTimes times = renewal_times();
      NoteWait(times.call_timeout);
      const bool renewed = Renew(session, times.call_timeout);
      due = times.NextDue(sent, SteadyNow(), renewed);
    }
    // While the stream is being opened, KeepOpen does the waiting.
    NoteWait(kHoldWait);
    if (hold_ != nullptr && hold_->KeepOpen(session, kHoldWait) == Hold::State::kOpening)
      poll_interval = absl::ZeroDuration();
  }
}

// Makes one attempt, which End can cancel. If the server does not know the session, opens another
// one.
bool Lease::Renew(uint64_t session, absl::Duration timeout) {
  grpc::ClientContext context;
  prepare_(&context, timeout);
  {
    absl::MutexLock lock(&mu_);
    if (stopping_) return false;
    current_call_ = &context;
  }
  const absl::Time sent = LeaseClock::Now();
  v1::RenewSessionRequest request;
  request.set_session(session);
  v1::Session response;
  const absl::Status renewed = to_status_(stub_->RenewSession(&context, request, &response));
  {
    absl::MutexLock lock(&mu_);
    current_call_ = nullptr;
    if (renewed.ok() && session_ == session) NoteRenewed(sent);
  }
  if (renewed.ok()) {
    outage_->NoteAnswered();
    return true;
  }
  if (KindOf(renewed) != ErrorKind::kSessionNotFound) return false;
  // Opening another session may take as long as an outage lasts, which is no pause of this process.
  NoteWait(absl::InfiniteDuration());
  (void)ReplaceSession(session);  // if this fails, the next call reports the error
  return true;
}

}  // namespace tessera::remote
