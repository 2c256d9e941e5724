// One stream of envelopes from this process, a daemon or an executor, to the coordinator
// (proto/tessera/v1/worker.proto).
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"
#include "tessera/v1/worker.grpc.pb.h"

namespace tessera::worker::rpc {

// Certificates and keys as PEM. If all are empty, the connection is plaintext. With the CA only, it
// is TLS without a client certificate.
struct TlsTexts {
  std::string certificates, key, authority;
  bool enabled() const { return !authority.empty(); }
};

// The coordinator's address, and the credentials that a worker needs to connect to it.
struct CoordinatorAccess {
  std::string address;  // host:port
  // The worker identifies itself by its certificate or by a token.
  TlsTexts tls;
  std::string token;
  bool insecure = false;  // allows plaintext to a coordinator on another machine
  // How long the coordinator may take to reply to a keepalive ping before the connection is given
  // up.
  absl::Duration link_timeout = absl::Seconds(15);
};

// Makes the credentials. The coordinator's certificate must name its address. Returns VALUE_ERROR
// for plaintext to another machine, unless `insecure` allows it.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> CoordinatorCredentials(
    const CoordinatorAccess& access);
// Returns a connection that is made when it is first used, and made again when it has ended.
std::shared_ptr<grpc::Channel> CoordinatorChannel(
    const CoordinatorAccess& access, const std::shared_ptr<grpc::ChannelCredentials>& credentials);

// Returns the kind without its prefix, as "LAUNCH".
std::string_view ShortName(v1::MessageKind kind);

// gRPC's threads deliver the coordinator's messages. Messages to the coordinator may be sent by any
// thread without waiting: at most one write is in flight, and the others queue. Thread-safe.
class Link final : public grpc::ClientBidiReactor<v1::Envelope, v1::Envelope> {
 public:
  // Binds the link to a call: calls Connect or Attach of the stub's async interface. The link then
  // starts the call itself.
  using BindCallFn = std::function<void(grpc::ClientContext*, Link*)>;
  using OnMessageFn = std::function<void(const v1::Envelope&)>;

  // `on_message` is called for one message at a time, and `on_end`, unless it is null, at the end.
  // Neither is called after AwaitEnd has returned true.
  Link(const BindCallFn& bind_call, const std::string& token, OnMessageFn on_message,
       std::function<void()> on_end = nullptr);

  void Send(v1::Envelope message) ABSL_LOCKS_EXCLUDED(mu_);
  // Returns whether no write is in flight.
  bool idle() ABSL_LOCKS_EXCLUDED(mu_);
  void Cancel() { context_.TryCancel(); }
  // Ends the stream once everything that was sent is written. When AwaitEnd returns true, the
  // coordinator has taken all of it.
  void Finish() ABSL_LOCKS_EXCLUDED(mu_);
  // Waits until the stream has ended, for at most `timeout`. Returns whether it has ended.
  bool AwaitEnd(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the status with which the stream has ended.
  grpc::Status final_status() ABSL_LOCKS_EXCLUDED(mu_);

  void OnReadDone(bool ok) override ABSL_LOCKS_EXCLUDED(mu_);
  void OnWriteDone(bool ok) override ABSL_LOCKS_EXCLUDED(mu_);
  void OnDone(const grpc::Status& status) override ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void StartNextWrite() ABSL_LOCKS_EXCLUDED(mu_);
  // After Close no write is started any more. gRPC's hold on the call (AddHold) is removed once no
  // write is being started.
  void Close() ABSL_LOCKS_EXCLUDED(mu_);
  // Ends a use of the hold. The last use of a closed link removes the hold.
  void StopUsingHold() ABSL_LOCKS_EXCLUDED(mu_);

  const OnMessageFn on_message_;
  const std::function<void()> on_end_;
  grpc::ClientContext context_;
  v1::Envelope incoming_message_;  // message of the read in flight
  v1::Envelope outgoing_message_;  // message of the write in flight
  absl::Mutex mu_;
  std::deque<v1::Envelope> queue_ ABSL_GUARDED_BY(mu_);
  int hold_users_ ABSL_GUARDED_BY(mu_) = 0;  // number of threads that rely on gRPC's hold
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool finishing_ ABSL_GUARDED_BY(mu_) = false;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  bool hold_released_ ABSL_GUARDED_BY(mu_) = false;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  grpc::Status final_status_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera::worker::rpc
