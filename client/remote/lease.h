// A session at the coordinator that lives as long as this does: opened first, renewed and held
// (hold.h) by a thread, deleted at the end, which is the end of the process too (process_end.h).
// If this process dies otherwise, the coordinator notices that the session is no longer held and
// cancels its runs; when the lease runs out it frees the arrays.
//
// Thread-safe.  The destructor ends the thread and the session, within a few seconds; in a child
// that was forked it does neither, since both are the parent's.
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
#include "client/remote/hold.h"
#include "client/remote/process_end.h"
#include "client/remote/retry.h"
#include "grpcpp/grpcpp.h"
#include "tessera/v1/session.grpc.pb.h"

namespace tessera::remote {

struct LeaseOptions {
  std::string display_name;
  absl::Duration lease;  // 0: the server's choice
  // A session that exists already, which is renewed and not deleted; 0: the tenant's own, which
  // needs no lease.
  std::optional<uint64_t> session;
};

class Lease {
 public:
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
  // Ends the thread and the session, by `by` at the latest. A second call does nothing.
  void End(absl::Time by) ABSL_LOCKS_EXCLUDED(mu_);
  // Whether End was called: the arrays of the session are deleted, or will be.
  bool ended() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  Lease(const std::shared_ptr<grpc::Channel>& channel, LeaseOptions options, PrepareFn prepare,
        DoneFn done);
  absl::StatusOr<v1::Session> Create() const;
  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  void Renew(uint64_t session, absl::Duration limit) ABSL_LOCKS_EXCLUDED(mu_);
  // Whether this is a session that was opened here, to be held and deleted.
  bool mine() const { return !options_.session; }

  const LeaseOptions options_;
  const PrepareFn prepare_;
  const DoneFn done_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::SessionService::Stub> stub_;
  mutable absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t session_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Duration lease_ ABSL_GUARDED_BY(mu_) = absl::InfiniteDuration();
  absl::Duration look_ ABSL_GUARDED_BY(mu_);                     // between checks of the hold
  grpc::ClientContext* calling_ ABSL_GUARDED_BY(mu_) = nullptr;  // of the thread
  const int process_;
  std::unique_ptr<Hold> hold_;           // used by the thread; null: opened elsewhere
  std::unique_ptr<std::thread> thread_;  // last: it uses the members above
  std::unique_ptr<AtProcessEnd> at_end_;
};

// "train on host a, process 17": the display name of its sessions.
std::string ThisProcess();

}  // namespace tessera::remote
