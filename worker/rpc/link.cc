// One gRPC stream of envelopes to the coordinator, for the daemon (worker_daemon.cc) and for
// executors (coordinator_stream.cc). Send may be called from any thread and never waits. gRPC
// allows writes from outside its callbacks only while a hold is kept, so the hold is released when
// the stream is closed and no write is being started.
#include "worker/rpc/link.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/address.h"
#include "base/keepalive.h"
#include "base/status.h"

namespace tessera::worker::rpc {
namespace {

constexpr int kMessageBytes = 1 << 30;
// After this time of silence on a connection, gRPC asks the coordinator for a reply.
constexpr absl::Duration kLinkSilence = absl::Seconds(2);
// A coordinator that is back must be found soon, because everything that executors hold waits for
// it.
constexpr absl::Duration kReconnectBackoffInitial = absl::Milliseconds(100);
constexpr absl::Duration kReconnectBackoffMax = absl::Milliseconds(300);
// The timeout of one attempt to connect, which gRPC calls the minimal backoff.
constexpr absl::Duration kConnectTimeout = absl::Seconds(2);

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> CoordinatorCredentials(
    const CoordinatorAccess& access) {
  if (access.tls.enabled()) {
    grpc::SslCredentialsOptions ssl;
    ssl.pem_root_certs = access.tls.authority;
    ssl.pem_cert_chain = access.tls.certificates;
    ssl.pem_private_key = access.tls.key;
    return grpc::SslCredentials(ssl);
  }
  if (!access.insecure && !IsLoopback(access.address))
    return MakeError(ErrorKind::kValueError,
                     absl::StrCat("coordinator: ", access.address,
                                  " is another machine, and this worker has no certificate; join "
                                  "it with `tessera join`, or say --insecure"));
  return grpc::InsecureChannelCredentials();
}

std::shared_ptr<grpc::Channel> CoordinatorChannel(
    const CoordinatorAccess& access, const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMessageBytes);
  // Wait link_timeout for a reply before the connection is given up: a coordinator that pauses is
  // not lost, and giving up would lose our arrays.
  for (const ChannelArgument& a : ClientArguments({kLinkSilence, access.link_timeout})) {
    arguments.SetInt(a.name, a.value);
  }
  const auto set = [&](const char* name, absl::Duration d) {
    arguments.SetInt(name, static_cast<int>(absl::ToInt64Milliseconds(d)));
  };
  set(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectBackoffInitial);
  set(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectBackoffMax);
  set(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectTimeout);
  return grpc::CreateCustomChannel(access.address, credentials, arguments);
}

std::string_view ShortName(v1::MessageKind kind) {
  constexpr std::string_view kPrefix = "MESSAGE_KIND_";
  const std::string_view name = v1::MessageKind_Name(kind);
  return name.substr(std::min(name.size(), kPrefix.size()));
}

Link::Link(const BindCallFn& bind_call, const std::string& token, OnMessageFn on_message,
           std::function<void()> on_end)
    : on_message_(std::move(on_message)), on_end_(std::move(on_end)) {
  if (!token.empty()) context_.AddMetadata("authorization", absl::StrCat("Bearer ", token));
  bind_call(&context_, this);
  // The hold is kept until the end, so that writes may be started from any thread.
  AddHold();
  StartRead(&incoming_message_);
  StartCall();
}

void Link::Send(v1::Envelope message) {
  {
    absl::MutexLock lock(&mu_);
    if (closed_ || finishing_) return;
    queue_.push_back(std::move(message));
  }
  StartNextWrite();
}

bool Link::idle() {
  absl::MutexLock lock(&mu_);
  return !writing_;
}

void Link::Finish() {
  {
    absl::MutexLock lock(&mu_);
    finishing_ = true;
  }
  StartNextWrite();
}

bool Link::AwaitEnd(absl::Duration timeout) {
  absl::MutexLock lock(&mu_);
  return mu_.AwaitWithTimeout(absl::Condition(&done_), timeout);
}

grpc::Status Link::final_status() {
  absl::MutexLock lock(&mu_);
  return final_status_;
}

void Link::OnReadDone(bool ok) {
  if (!ok) return Close();
  on_message_(incoming_message_);
  StartRead(&incoming_message_);
}

void Link::OnWriteDone(bool ok) {
  {
    absl::MutexLock lock(&mu_);
    writing_ = false;
  }
  ok ? StartNextWrite() : Close();
}

void Link::OnDone(const grpc::Status& status) {
  if (on_end_) on_end_();
  absl::MutexLock lock(&mu_);
  final_status_ = status;
  done_ = true;
}

void Link::StartNextWrite() {
  bool writes_done = false;
  {
    absl::MutexLock lock(&mu_);
    writes_done = finishing_ && queue_.empty();
    if (writing_ || closed_ || (queue_.empty() && !writes_done)) return;
    if (!writes_done) {
      outgoing_message_ = std::move(queue_.front());
      queue_.pop_front();
    }
    writing_ = true;  // after the last message nothing else is written
    ++hold_users_;
  }
  writes_done ? StartWritesDone() : StartWrite(&outgoing_message_);
  StopUsingHold();
}

void Link::Close() {
  {
    absl::MutexLock lock(&mu_);
    if (closed_) return;
    closed_ = true;
    ++hold_users_;
  }
  StopUsingHold();
}

void Link::StopUsingHold() {
  {
    absl::MutexLock lock(&mu_);
    if (--hold_users_ > 0 || !closed_ || hold_released_) return;
    hold_released_ = true;
  }
  RemoveHold();
}

}  // namespace tessera::worker::rpc
