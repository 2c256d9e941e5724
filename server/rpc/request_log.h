// Answers to calls with a request_id, for those that come again: the same tenant, method, id and
// payload get the answer of the first call, whether it has ended or still runs; another payload is
// REQUEST_ID_REUSED.
//
// Only what went well is kept: a call that failed has changed nothing, and its id may be used
// again. A tenant's answers are bounded in number, age and bytes; its own oldest goes first, and a
// call whose answer is gone runs again.  Where all tenants together keep too many bytes, the one
// that keeps the most loses its oldest: nobody pushes out the answers of those who keep less.
// Calls under way are bounded by the server's calls.
//
// Thread-safe; callbacks run without a lock.  Reads no clock.
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

namespace tessera::server::rpc {

class RequestLog {
 public:
  struct Limits {
    int64_t answers_max = 10'000;  // of a tenant
    absl::Duration age_max = absl::Minutes(10);
    int64_t bytes_max = 16 << 20;       // of a tenant
    int64_t all_bytes_max = 256 << 20;  // of all tenants
  };
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
  using Then = std::function<void(const Answer&)>;

  explicit RequestLog(Limits limits) : limits_(limits) {}

  // True: the call is new; it runs, and End follows.  False: `then` is called with its answer, now
  // or when the first such call ends.  `payload` is a hash of the request without its id.
  bool Begin(const Key& key, const std::string& payload, absl::Time now, Then then)
      ABSL_LOCKS_EXCLUDED(mu_);
  void End(const Key& key, const Answer& answer, absl::Time now) ABSL_LOCKS_EXCLUDED(mu_);

  // Of all tenants.
  int64_t answers() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Entry {
    std::string payload;
    bool ended = false;
    Answer answer;
    absl::Time until;
    std::vector<Then> waiting;  // while it has not ended
  };
  // Of one tenant; gone once it is empty.
  struct Tenant {
    std::map<Key, Entry> entries;
    std::deque<Key> ended;  // oldest first
    int64_t bytes = 0;
  };
  void DropOldest(Tenant& tenant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What is beyond its limits.
  void DropOld(Tenant& tenant, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Those that have not called for so long that all their answers are old, and bytes beyond the
  // limit of all.
  void DropOthers(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Limits limits_;
  mutable absl::Mutex mu_;
  std::map<std::string, Tenant> tenants_ ABSL_GUARDED_BY(mu_);
  absl::Time looked_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();  // at every tenant
  int64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;                         // of all
};

}  // namespace tessera::server::rpc
