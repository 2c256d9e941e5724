// A pool of jailed processes. Once a process has served a tenant, it serves no other. If a process
// ends during a request, the pool returns an error for that request.
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
  absl::Duration timeout = absl::Seconds(60);  // longest time of one request
  size_t idle_max = 8;                         // idle processes kept, all tenants together
  // Called on the request's thread when a program has ended its process, with the cause. May be
  // null.
  std::function<void(JailEnd::Cause)> on_end = nullptr;
};

// Identifies a request's program, for errors and for the quarantine.
struct ProgramIdentity {
  std::string_view bytes;  // bytes that the tenant sent; their hash is quarantined
  std::string work;        // name of the work, such as "read" or "plan step"
};

// Thread-safe. A call blocks until there is a reply, and each call in progress has a process of its
// own. The pool also keeps idle processes, and one spare process that no tenant has used, so that a
// tenant's first request does not wait for a process to start.
class Pool {
 public:
  explicit Pool(PoolOptions options);
  ~Pool();
  // Ends the calls in progress with SERVER_STOPPING. Later calls fail at once with the same error.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

  // Returns the reply to the request. `deadline` is the caller's, as a time of SteadyNow(). The
  // pool's own timeout bounds the call as well. Errors: PROGRAM_QUARANTINED; LIMIT_EXCEEDED if the
  // work needed more than the memory of a process or the pool's timeout; DEADLINE_EXCEEDED if the
  // caller's deadline passed; INTERNAL if the process crashed or did not start.
  absl::StatusOr<std::string> Call(const std::string& tenant, const ProgramIdentity& program,
                                   std::string_view request, absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct IdleProcess {
    std::string tenant;
    std::unique_ptr<JailedProcess> process;
  };
  // Returns the process that the tenant used last, or a process that no tenant has used.
  std::unique_ptr<JailedProcess> TakeProcess(const std::string& tenant) ABSL_LOCKS_EXCLUDED(mu_);
  // Keeps the process for the tenant's next request.
  void KeepProcess(const std::string& tenant, std::unique_ptr<JailedProcess> process)
      ABSL_LOCKS_EXCLUDED(mu_);
  // The keeper thread's main function. Keeps one spare process ready that no tenant has used.
  void KeepSpare() ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the request's error after its process has ended, and counts a strike if the program is
  // to blame. `is_caller_deadline` says whether the caller's deadline bounded the call.
  absl::Status HandleEnd(const std::string& tenant, const ProgramIdentity& program,
                         const JailEnd& end, bool is_caller_deadline) ABSL_LOCKS_EXCLUDED(mu_);

  PoolOptions options_;  // constant after construction
  absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  UniqueFd stop_read_;  // read end of a pipe, which becomes readable when Stop closes the other end
  UniqueFd stop_write_ ABSL_GUARDED_BY(mu_);
  std::list<IdleProcess> idle_ ABSL_GUARDED_BY(mu_);  // idle processes, least recently used first
  std::unique_ptr<JailedProcess> spare_ ABSL_GUARDED_BY(mu_);
  Quarantine quarantine_ ABSL_GUARDED_BY(mu_);
  std::thread keeper_;  // declared last, because it uses the other members
};

}  // namespace tessera::server::jail
