#include "client/remote/lease.h"

#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "ir/serial/status.h"

namespace tessera::remote {
namespace {

constexpr absl::Duration kOpenLimit = absl::Seconds(10);
constexpr absl::Duration kEndLimit = absl::Seconds(2);
// Renewals in the time of one lease, so that one may fail.
constexpr int kRenewals = 3;
constexpr absl::Duration kRenewEveryMin = absl::Milliseconds(20);

}  // namespace

std::string ThisProcess() {
  char host[256] = "";
  if (gethostname(host, sizeof(host) - 1) != 0) host[0] = '\0';
  return absl::StrCat(program_invocation_short_name, " on ", host, ", process ", getpid());
}

absl::StatusOr<std::unique_ptr<Lease>> Lease::Open(const std::shared_ptr<grpc::Channel>& channel,
                                                   LeaseOptions options, PrepareFn prepare,
                                                   DoneFn done) {
  std::unique_ptr<Lease> lease(
      new Lease(channel, std::move(options), std::move(prepare), std::move(done)));
  absl::StatusOr<v1::Session> session = v1::Session();
  if (!lease->options_.session) {
    session = lease->Create();
    if (!session.ok() && KindOf(session.status()) == ErrorKind::kRoleMissing)
      session = v1::Session();
  } else if (*lease->options_.session != 0) {
    grpc::ClientContext context;
    lease->prepare_(&context, kOpenLimit);
    v1::RenewSessionRequest request;
    request.set_session(*lease->options_.session);
    session = v1::Session();
    const absl::Status renewed =
        lease->done_(lease->stub_->RenewSession(&context, request, &*session));
    if (!renewed.ok()) session = renewed;
  }
  TESSERA_RETURN_IF_ERROR(session);
  if (session->id() != 0) {
    absl::MutexLock lock(&lease->mu_);
    lease->session_ = session->id();
    lease->lease_ = ir::serial::FromProto(session->lease());
    lease->thread_ = std::thread([lease = lease.get()] { lease->Run(); });
  }
  return lease;
}

Lease::Lease(const std::shared_ptr<grpc::Channel>& channel, LeaseOptions options, PrepareFn prepare,
             DoneFn done)
    : options_(std::move(options)),
      prepare_(std::move(prepare)),
      done_(std::move(done)),
      stub_(v1::SessionService::NewStub(channel)) {}

Lease::~Lease() {
  uint64_t session = 0;
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
    session = session_;
  }
  if (!thread_.joinable()) return;
  thread_.join();
  if (options_.session) return;
  grpc::ClientContext context;
  prepare_(&context, kEndLimit);
  v1::DeleteSessionRequest request;
  request.set_session(session);
  v1::DeleteSessionResponse response;
  // Should it not get there, the lease runs out.
  (void)stub_->DeleteSession(&context, request, &response);
}

uint64_t Lease::session() const {
  absl::MutexLock lock(&mu_);
  return session_;
}

absl::StatusOr<v1::Session> Lease::Create() const {
  grpc::ClientContext context;
  prepare_(&context, kOpenLimit);
  v1::CreateSessionRequest request;
  request.set_display_name(options_.display_name);
  if (options_.lease > absl::ZeroDuration())
    *request.mutable_lease() = ir::serial::ToProto(options_.lease);
  v1::Session session;
  TESSERA_RETURN_IF_ERROR(done_(stub_->CreateSession(&context, request, &session)));
  return session;
}

absl::StatusOr<uint64_t> Lease::Replace(uint64_t lost) {
  if (options_.session)
    return MakeError(ErrorKind::kSessionNotFound,
                     absl::StrCat("session ", lost, " has ended; connect with another"));
  {
    absl::MutexLock lock(&mu_);
    if (session_ != lost) return session_;  // Somebody was faster.
  }
  TESSERA_ASSIGN_OR_RETURN(const v1::Session session, Create());
  absl::MutexLock lock(&mu_);
  if (session_ == lost) session_ = session.id();
  return session_;
}

void Lease::Run() {
  while (true) {
    uint64_t session = 0;
    absl::Duration every;
    {
      absl::MutexLock lock(&mu_);
      every = std::max(lease_ / kRenewals, kRenewEveryMin);
      const auto stopping = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return stopping_; };
      if (mu_.AwaitWithTimeout(absl::Condition(&stopping), every)) return;
      session = session_;
    }
    grpc::ClientContext context;
    prepare_(&context, every);
    v1::RenewSessionRequest request;
    request.set_session(session);
    v1::Session response;
    const absl::Status renewed = done_(stub_->RenewSession(&context, request, &response));
    if (KindOf(renewed.ok() ? absl::UnknownError("") : renewed) == ErrorKind::kSessionNotFound)
      (void)Replace(session);  // Whoever uses it next is told if this fails.
  }
}

}  // namespace tessera::remote
