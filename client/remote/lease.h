// A session at the coordinator that lives as long as this does: opened first, renewed by a thread,
// deleted at the end.  Should this process die, the lease runs out and the coordinator gives back
// what the session holds.
//
// Thread-safe.  The destructor ends the thread and the session, within a few seconds.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"
#include "tessera/v1/session.grpc.pb.h"

namespace tessera::remote {

struct LeaseOptions {
  std::string display_name;
  absl::Duration lease;  // 0: the server's choice
  // A session that is there already, which is renewed and not deleted; 0: the tenant's own, which
  // needs no lease.
  std::optional<uint64_t> session;
};

class Lease {
 public:
  // Sets deadline and credentials of a call.
  using PrepareFn = std::function<void(grpc::ClientContext* context, absl::Duration limit)>;
  // Reads how a call ended.
  using DoneFn = std::function<absl::Status(const grpc::Status& status)>;

  // A caller whose role may open no session goes without one.
  static absl::StatusOr<std::unique_ptr<Lease>> Open(const std::shared_ptr<grpc::Channel>& channel,
                                                     LeaseOptions options, PrepareFn prepare,
                                                     DoneFn done);
  ~Lease();
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  uint64_t session() const ABSL_LOCKS_EXCLUDED(mu_);
  // The server does not know `lost` (it was restarted, or this process slept for too long): the
  // session that takes its place, which is new and empty.  SESSION_NOT_FOUND for one that others
  // opened.
  absl::StatusOr<uint64_t> Replace(uint64_t lost) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  Lease(const std::shared_ptr<grpc::Channel>& channel, LeaseOptions options, PrepareFn prepare,
        DoneFn done);
  absl::StatusOr<v1::Session> Create() const;
  void Run() ABSL_LOCKS_EXCLUDED(mu_);

  const LeaseOptions options_;
  const PrepareFn prepare_;
  const DoneFn done_;
  const std::unique_ptr<v1::SessionService::Stub> stub_;
  mutable absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t session_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Duration lease_ ABSL_GUARDED_BY(mu_) = absl::InfiniteDuration();
  std::thread thread_;  // last: it uses the rest
};

// "train on host a, process 17": what people read in lists of sessions.
std::string ThisProcess();

}  // namespace tessera::remote
