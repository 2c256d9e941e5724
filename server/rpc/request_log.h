// Cached responses of calls with a request_id, for retries, of those methods that are not one event
// of the scheduler (WriteArray, CompileProgram, CreateToken); those that are keep theirs in its
// state (server/scheduler/answers.h), and so does the array that a WriteArray has begun with. The
// same tenant, method, id and payload get the response of the first call, whether it has ended or
// still runs; another payload is REQUEST_ID_REUSED.
//
// Only successes are cached: a call that failed has changed nothing, and its id may be used again.
// The responses are bounded as those of the scheduler are, and forgotten at a restart; running
// calls are bounded by the server's calls. Thread-safe; callbacks run without a lock. Reads no
// clock.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/core/answer_limits.h"

namespace tessera::server::rpc {

class RequestLog {
 public:
  using Limits = core::AnswerLimits;
  struct Key {
    std::string tenant;
    int method = 0;
    std::string request_id;
    bool operator<(const Key& other) const {
      return std::tie(tenant, method, request_id) <
             std::tie(other.tenant, other.method, other.request_id);
    }
  };
  struct Answer {
    absl::Status status;
    std::string bytes;  // the message, when OK
  };
  using Callback = std::function<void(const Answer&)>;

  explicit RequestLog(Limits limits) : limits_(limits) {}

  // Returns true if the call is new: the caller runs it and calls End.  Else calls `then` with the
  // response, now or when the first such call ends.  `payload` is the request without its id, or a
  // hash of it.
  bool Begin(const Key& key, const std::string& payload, absl::Time now, Callback then)
      ABSL_LOCKS_EXCLUDED(mu_);
  void End(const Key& key, const Answer& answer, absl::Time now) ABSL_LOCKS_EXCLUDED(mu_);

  // The number of cached responses over all tenants.
  int64_t answers() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Entry {
    std::string payload;
    bool ended = false;
    Answer answer;
    absl::Time until;
    std::vector<Callback> waiting;  // while it has not ended
  };
  // The entries of one tenant; erased once it is empty.
  struct Tenant {
    std::map<Key, Entry> entries;
    std::deque<Key> ended;  // oldest first
    int64_t bytes = 0;
  };
  void EvictOldest(Tenant& tenant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Evicts entries beyond the tenant's limits of number, age and bytes.
  void EvictBeyondLimits(Tenant& tenant, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Evicts idle tenants, whose responses are all too old, and bytes beyond all_bytes_max.
  void EvictFromAll(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Limits limits_;
  mutable absl::Mutex mu_;
  std::map<std::string, Tenant> tenants_ ABSL_GUARDED_BY(mu_);
  absl::Time scanned_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();  // all tenants
  int64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;                          // of all
};

}  // namespace tessera::server::rpc
