// One stream of envelopes from this process to the coordinator: that of a daemon or of an executor
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

// PEM. All empty: plaintext. Only the CA: TLS, without a client certificate.
struct TlsTexts {
  std::string certificates, key, authority;
  bool enabled() const { return !authority.empty(); }
};

// Where the coordinator is, and what a worker needs to connect to it.
struct CoordinatorAccess {
  std::string address;  // host:port
  // The worker's certificate, or else a token.
  TlsTexts tls;
  std::string token;
  bool insecure = false;  // allows plaintext to a coordinator on another machine
  absl::Duration link_timeout = absl::Seconds(15);  // for its reply, once it was asked for one
};

// The coordinator's certificate must name its address. Plaintext beyond this machine only where
// `insecure` asks for it; else VALUE_ERROR.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> CoordinatorCredentials(
    const CoordinatorAccess& access);
// A connection, which is made when it is first used and made anew when it ends.
std::shared_ptr<grpc::Channel> CoordinatorChannel(
    const CoordinatorAccess& access, const std::shared_ptr<grpc::ChannelCredentials>& credentials);

// "LAUNCH".
std::string_view ShortName(v1::MessageKind kind);

// gRPC's threads bring what the coordinator sends; what is sent to it is written by whoever has it,
// without waiting: at most one write is in flight, the others queue. Thread-safe.
class Link final : public grpc::ClientBidiReactor<v1::Envelope, v1::Envelope> {
 public:
  // Starts the call: Connect or Attach of the stub's async interface.
  using StartCallFn = std::function<void(grpc::ClientContext*, Link*)>;
  using OnMessageFn = std::function<void(const v1::Envelope&)>;

  // `on_message` is called for one message at a time, then `on_end`, unless it is null; neither
  // after AwaitEnd has returned.
  Link(const StartCallFn& start, const std::string& token, OnMessageFn on_message,
       std::function<void()> on_end = nullptr);

  void Send(v1::Envelope message) ABSL_LOCKS_EXCLUDED(mu_);
  // Whether no write is in flight.
  bool idle() ABSL_LOCKS_EXCLUDED(mu_);
  void Cancel() { context_.TryCancel(); }
  // Ends the stream once what was sent is written: the coordinator has taken all of it when
  // AwaitEnd returns.
  void Finish() ABSL_LOCKS_EXCLUDED(mu_);
  // Whether it has ended.
  bool AwaitEnd(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mu_);
  grpc::Status end() ABSL_LOCKS_EXCLUDED(mu_);

  void OnReadDone(bool ok) override ABSL_LOCKS_EXCLUDED(mu_);
  void OnWriteDone(bool ok) override ABSL_LOCKS_EXCLUDED(mu_);
  void OnDone(const grpc::Status& status) override ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Pump() ABSL_LOCKS_EXCLUDED(mu_);
  // No write is started any more; the hold ends once none is being started.
  void Close() ABSL_LOCKS_EXCLUDED(mu_);
  void Started() ABSL_LOCKS_EXCLUDED(mu_);

  const OnMessageFn on_message_;
  const std::function<void()> on_end_;
  grpc::ClientContext context_;
  v1::Envelope received_;  // of the read in flight
  v1::Envelope sent_;      // of the write in flight
  absl::Mutex mu_;
  std::deque<v1::Envelope> queue_ ABSL_GUARDED_BY(mu_);
  int starting_ ABSL_GUARDED_BY(mu_) = 0;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool finishing_ ABSL_GUARDED_BY(mu_) = false;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  bool released_ ABSL_GUARDED_BY(mu_) = false;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  grpc::Status end_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera::worker::rpc
