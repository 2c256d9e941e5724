// Caches the responses of calls with a request_id, for retries. It serves the methods whose calls
// are not a single event of the scheduler (WriteArray, for example). For all other methods the
// scheduler keeps the answers in its own state (server/scheduler/answers.h); it also keeps there
// which array a WriteArray has created. A call with the same tenant, method, request_id and payload
// (the rest of the request) gets the response of the first call, whether the first call has ended
// or still runs. A call with another payload gets REQUEST_ID_REUSED.
//
// Only successes are cached: a call that failed has changed nothing, and its id may be used again.
// The responses have the same kinds of bounds as the scheduler's answers (core::AnswerLimits), and
// are forgotten at a restart. The gate bounds the number of running calls. Thread-safe; callbacks
// run without a lock. The log reads no clock.
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
    std::string bytes;  // encoded response; empty after an error
  };
  using Callback = std::function<void(const Answer&)>;

  explicit RequestLog(Limits limits) : limits_(limits) {}

  // Returns true if the call is new. The caller then runs it and calls End.  Otherwise returns
  // false and calls `then` with the response, at once or when the first such call ends.  `payload`
  // is the request without its id, or a hash of that.
  bool Begin(const Key& key, const std::string& payload, absl::Time now, Callback then)
      ABSL_LOCKS_EXCLUDED(mu_);
  void End(const Key& key, const Answer& answer, absl::Time now) ABSL_LOCKS_EXCLUDED(mu_);

  // Returns the number of cached responses of all tenants.
  int64_t num_answers() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Entry {
    std::string payload;
    bool ended = false;
    Answer answer;
    absl::Time expires_at;
    std::vector<Callback> waiting;  // callbacks of repeated calls, until the first call has ended
  };
  // The entries of one tenant. A tenant without entries is erased.
  struct Tenant {
    std::map<Key, Entry> entries;
    std::deque<Key> ended_keys;  // keys of the cached responses, oldest first
    int64_t bytes = 0;           // size of the cached responses
  };
  void EvictOldest(Tenant& tenant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Evicts entries beyond the tenant's limits of number, age and bytes.
  void EvictBeyondLimits(Tenant& tenant, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Once in a while visits all tenants, evicts entries beyond their limits and erases tenants
  // without entries. Then evicts the oldest responses of the largest tenants until the responses of
  // all tenants together are within all_bytes_max.
  void EvictFromAll(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Limits limits_;
  mutable absl::Mutex mu_;
  std::map<std::string, Tenant> tenants_ ABSL_GUARDED_BY(mu_);
  absl::Time last_scan_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();  // last visit to all tenants
  int64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;                            // size of all responses
};

}  // namespace tessera::server::rpc
