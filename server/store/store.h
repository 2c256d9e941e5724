// The coordinator's storage: an append-only log of acknowledged records, and the state for its next
// life (server/core/life.h). Owned by main (or embed), outlives the coordinator. Thread-safe.
#pragma once
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/core/life.h"

namespace tessera::server::store {

struct Record {
  uint64_t number = 0;  // 1, 2, ... without gaps
  std::string text;
};

class Store {
 public:
  virtual ~Store() = default;
  // Returns when the record is as durable as this store makes it.
  virtual absl::Status Append(std::string_view text) = 0;
  // Whether Append keeps anything.
  virtual bool keeps_records() const { return true; }
  // The records from `number` on, oldest first, at most `count`.
  virtual absl::StatusOr<std::vector<Record>> Read(uint64_t number, int64_t count) const = 0;
  // The present life of the coordinator; never changes.
  virtual core::Life life() const = 0;
  // The argument of the last KeepExecutors of an earlier life; empty if not persistent.
  virtual std::vector<core::KnownExecutor> executors() const { return {}; }
  // Whether KeepExecutors persists anything for the next life.
  virtual bool is_persistent() const { return false; }
  // Replaces the executors that the next life gets.
  virtual absl::Status KeepExecutors(const std::vector<core::KnownExecutor>&) {
    return absl::OkStatus();
  }
};

// Lives as long as the process; keeps the last `records_max` records.
class MemoryStore final : public Store {
 public:
  explicit MemoryStore(core::Life life = {}, int64_t records_max = 10'000)
      : life_(life), records_max_(records_max) {}
  absl::Status Append(std::string_view text) override ABSL_LOCKS_EXCLUDED(mu_);
  bool keeps_records() const override { return records_max_ > 0; }
  absl::StatusOr<std::vector<Record>> Read(uint64_t number, int64_t count) const override
      ABSL_LOCKS_EXCLUDED(mu_);
  core::Life life() const override { return life_; }

 private:
  const core::Life life_;
  const int64_t records_max_;
  mutable absl::Mutex mu_;
  uint64_t last_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<Record> records_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera::server::store
