// A session at the coordinator that lives as long as this object. A thread renews the session and
// keeps it alive (hold.h); the destructor or the end of the process (process_end.h) deletes it. If
// this process is killed, the coordinator detects the closed stream and cancels the session's runs.
// It frees the session's arrays when the lease expires.
//
// Thread-safe. The destructor stops the thread and deletes the session, within a few seconds. In a
// forked child it does neither, since both belong to the parent.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/remote/hold.h"
#include "client/remote/lease_clock.h"
#include "client/remote/made_ids.h"
#include "client/remote/process_end.h"
#include "client/remote/retry.h"
#include "grpcpp/grpcpp.h"
#include "tessera/v1/session.grpc.pb.h"

namespace tessera::remote {

struct LeaseOptions {
  std::string display_name;
  absl::Duration lease;  // length of the lease; if 0, the server chooses it
  // An existing session to use, which is renewed but not deleted. Session 0 is the tenant's own and
  // needs no lease. If absent, a new session is opened.
  std::optional<uint64_t> session;
};

// The times at which a lease is renewed. The interval after a renewal that succeeds starts when the
// renewal was sent, because the server may have extended the lease as early as that.
struct RenewalTimes {
  explicit RenewalTimes(absl::Duration lease);

  // Returns when the next renewal is due, given when the last one was sent, when it ended, and
  // whether it succeeded.
  absl::Time NextDue(absl::Time sent, absl::Time ended, bool renewed) const {
    return renewed ? sent + interval : ended + retry_wait;
  }

  absl::Duration interval;      // interval between renewals that succeed
  absl::Duration call_timeout;  // timeout of one renewal
  absl::Duration retry_wait;    // wait after a renewal that failed
};

class Lease {
 public:
  // Opens or adopts a session. If the caller's role may not open one, the result is a lease without
  // a session (id 0). `outage` must outlive the lease.
  static absl::StatusOr<std::unique_ptr<Lease>> Open(const std::shared_ptr<grpc::Channel>& channel,
                                                     Outage* outage, LeaseOptions options,
                                                     PrepareFn prepare, ToStatusFn to_status);
  ~Lease();
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  uint64_t session() const ABSL_LOCKS_EXCLUDED(mu_);
  // Opens a new, empty session in place of `lost`, and returns its id. Called if the server does
  // not know the session `lost`, because the server was restarted or this process did not run for
  // too long. Returns SESSION_NOT_FOUND if this object did not open `lost`.
  absl::StatusOr<uint64_t> ReplaceSession(uint64_t lost) ABSL_LOCKS_EXCLUDED(mu_);
  // Returns whether a session was replaced within the last `time`.
  bool WasReplacedWithin(absl::Duration time) const ABSL_LOCKS_EXCLUDED(mu_);
  // Notes the ids of arrays and operations that a call in `session` has made.
  void NoteMade(uint64_t session, absl::Span<const uint64_t> ids) ABSL_LOCKS_EXCLUDED(mu_);
  // Returns false if CheckHeld would return OK for any ids. Much cheaper than CheckHeld.
  bool MayHaveLost() const {
    return has_lost_.load(std::memory_order_relaxed) ||
           absl::ToUnixNanos(LeaseClock::Now()) >= lease_end_nanos_.load(std::memory_order_relaxed);
  }
  // Returns SESSION_NOT_FOUND if one of these arrays and operations was in a session whose lease
  // ended while this process did not run. Asks the server if that may just have happened.
  absl::Status CheckHeld(absl::Span<const uint64_t> ids) ABSL_LOCKS_EXCLUDED(mu_);
  // Ends calls that wait for the server, and makes later ones fail.
  void StopCalls() ABSL_LOCKS_EXCLUDED(mu_);
  // Stops the thread and deletes the session, by the time `by` at the latest. Idempotent.
  void End(absl::Time by) ABSL_LOCKS_EXCLUDED(mu_);
  // Returns whether End was called.
  bool ended() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  Lease(const std::shared_ptr<grpc::Channel>& channel, Outage* outage, LeaseOptions options,
        PrepareFn prepare, ToStatusFn to_status);
  absl::StatusOr<v1::Session> Create() const;
  void RunThread() ABSL_LOCKS_EXCLUDED(mu_);
  // Renews the lease. If this returns false, the lease runs out unless another attempt succeeds.
  bool Renew(uint64_t session, absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mu_);
  // Finds out from the server whether the session still exists, and replaces it if it does not.
  void AskAboutSession(uint64_t session) ABSL_LOCKS_EXCLUDED(mu_);
  // Notes that the lease was opened or renewed by a call that was sent at `sent`.
  void NoteRenewed(absl::Time sent) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Tells clock_ that the thread waits for at most `bound`, or runs again.
  void NoteWait(absl::Duration bound) ABSL_LOCKS_EXCLUDED(mu_);
  // The error of everything in a session whose lease ended while this process did not run.
  absl::Status EndedInPauseError(uint64_t session) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  RenewalTimes renewal_times() const ABSL_LOCKS_EXCLUDED(mu_);
  // Returns whether this object opened the session. If so, it keeps the session alive and deletes
  // it.
  bool owns_session() const { return !options_.session; }

  const LeaseOptions options_;
  const PrepareFn prepare_;
  const ToStatusFn to_status_;
  const std::shared_ptr<grpc::Channel> channel_;
  Outage* const outage_;
  const std::unique_ptr<v1::SessionService::Stub> stub_;
  absl::Notification stop_;  // ends calls that wait for the server
  // Read without the lock before each call: when the lease ends, by LeaseClock in nanoseconds, and
  // whether any session was lost in a pause.
  std::atomic<int64_t> lease_end_nanos_{std::numeric_limits<int64_t>::max()};
  std::atomic<bool> has_lost_{false};
  mutable absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t session_ ABSL_GUARDED_BY(mu_) = 0;
  bool replacing_ ABSL_GUARDED_BY(mu_) = false;  // true while a thread replaces session_
  absl::Time replaced_at_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();  // by SteadyNow()
  LeaseClock clock_ ABSL_GUARDED_BY(mu_);
  MadeIds made_ ABSL_GUARDED_BY(mu_);
  absl::Duration lease_ ABSL_GUARDED_BY(mu_) = absl::InfiniteDuration();
  absl::Duration poll_interval_ ABSL_GUARDED_BY(mu_);  // interval of the checks of hold_
  grpc::ClientContext* current_call_ ABSL_GUARDED_BY(mu_) =
      nullptr;  // the thread's call in progress
  const int process_;
  std::unique_ptr<Hold> hold_;           // used by the thread; null if not owns_session()
  std::unique_ptr<std::thread> thread_;  // last: it uses the members above
  std::unique_ptr<AtProcessEnd> at_end_;
};

// Returns the display name of this process's sessions, such as "train on host a, process 17".
std::string ProcessDisplayName();

}  // namespace tessera::remote
