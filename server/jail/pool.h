// Jailed processes, each of which serves one tenant alone, and what becomes of requests that end
// them.
#pragma once
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/jail.h"
#include "base/unique_fd.h"
#include "server/jail/quarantine.h"

namespace tessera::server::jail {

struct PoolOptions {
  JailOptions process;
  absl::Duration timeout = absl::Seconds(60);  // of one request
  size_t idle_max = 8;                         // how many that wait for a tenant's next request
  // Called when a request ended its process, on the thread of the request; may be null.
  std::function<void(JailEnd::Cause)> ended = nullptr;
};

// What a request is about, for its errors.
struct Subject {
  std::string_view bytes;  // that the tenant sent, by whose hash a program is refused
  std::string what;        // "read", "plan step"
};

// Thread-safe. A call takes its thread until there is a reply; as many processes run as there are
// calls. Besides there are idle ones, and one that no tenant has used yet, so that a first request
// need not wait for a process to start.
class Pool {
 public:
  explicit Pool(PoolOptions options);
  ~Pool();
  // Ends the calls in progress, and later ones at once, with SERVER_STOPPING.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

  // The reply to the request. `deadline`, by SteadyNow(), is the caller's; the pool's own timeout
  // bounds the call as well. Errors: PROGRAM_QUARANTINED; LIMIT_EXCEEDED: memory or time did not
  // suffice; DEADLINE_EXCEEDED: the caller's; INTERNAL: the process crashed, or did not start.
  absl::StatusOr<std::string> Call(const std::string& tenant, const Subject& subject,
                                   std::string_view request, absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Idle {
    std::string tenant;
    std::unique_ptr<JailedProcess> process;
  };
  std::unique_ptr<JailedProcess> Take(const std::string& tenant) ABSL_LOCKS_EXCLUDED(mu_);
  void Release(const std::string& tenant, std::unique_ptr<JailedProcess> process)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Keeps one process ready that no tenant has used.
  void KeepSpare() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status ErrorOf(const std::string& tenant, const Subject& subject, const JailEnd& end,
                       bool by_caller) ABSL_LOCKS_EXCLUDED(mu_);

  PoolOptions options_;  // constant once made
  absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  UniqueFd stop_read_;  // the end of a pipe of which Stop closes the other
  UniqueFd stop_write_ ABSL_GUARDED_BY(mu_);
  std::list<Idle> idle_ ABSL_GUARDED_BY(mu_);  // the one that was used least lately first
  std::unique_ptr<JailedProcess> spare_ ABSL_GUARDED_BY(mu_);
  Quarantine quarantine_ ABSL_GUARDED_BY(mu_);
  std::thread keeper_;  // last, as it uses the other members
};

}  // namespace tessera::server::jail
