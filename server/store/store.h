// The coordinator's storage: rows (server/core/rows.h) that its next life reads, and the life
// itself (server/core/life.h). Owned by main (or embed), outlives the coordinator. Thread-safe, if
// not said otherwise.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/secret.h"
#include "server/core/life.h"
#include "server/core/rows.h"

namespace tessera::server::store {

inline constexpr size_t kSecretBytes = 32;  // as hexadecimal digits twice as many

class Store {
 public:
  // What becomes of the commits. Called on one thread at a time, the store's own (of a memory
  // store: the one that commits), without a lock of the store. Must not block; may call Commit, but
  // not Listen or Flush.
  class Listener {
   public:
    virtual ~Listener() = default;
    // All commits up to this number are as durable as the store makes them. It ends a failure too.
    virtual void DurableThrough(uint64_t commit) = 0;
    // An attempt to make commits durable has failed, and is made again until DurableThrough (a disk
    // that does not answer fails no attempt). DISK_FULL. STORE_FAILED: it does not read or write.
    // STALE_EPOCH: another coordinator has taken the store over; nothing is tried again, and
    // nothing else follows.
    virtual void Failing(absl::Status why) = 0;
  };

  virtual ~Store() = default;
  // The present life of the coordinator; never changes.
  virtual core::Life life() const = 0;
  // Random, and the same in every life: what the lives of one coordinator sign, each of them
  // accepts.
  virtual const std::string& secret() const = 0;
  // Whether another life will read the rows; if not, callers need not make any.
  virtual bool is_persistent() const { return false; }
  // The rows of earlier lives, in order of kind and key. Called at most once, before the first
  // Commit. STORE_FAILED, FILE_CORRUPT: they cannot be read.
  virtual absl::StatusOr<std::vector<core::Row>> Load() const { return std::vector<core::Row>(); }
  // Sets who is told, before the first Commit, or after the last one: nobody (null), and no call to
  // the former listener is running when it returns.
  virtual void Listen(Listener* listener) = 0;
  // Replaces the rows of the same kinds and keys. `number` is greater than that of the commit
  // before. Never blocks and never fails: commits become durable in order, whole, and those that
  // wait become so together.
  virtual void Commit(uint64_t number, std::vector<core::Row> rows) = 0;
  // Waits until all commits are durable, for a graceful stop. DEADLINE_EXCEEDED: they were not
  // within the bound; STALE_EPOCH: they never will be.
  virtual absl::Status Flush(absl::Duration bound) = 0;
};

// Lives as long as the process: a commit is as durable as it gets when Commit returns. Keeps no
// rows, for nobody reads them. Listen and Commit are called by one thread at a time.
class MemoryStore final : public Store {
 public:
  explicit MemoryStore(core::Life life = {}) : life_(life) {}
  core::Life life() const override { return life_; }
  const std::string& secret() const override { return secret_; }
  void Listen(Listener* listener) override { listener_ = listener; }
  void Commit(uint64_t number, std::vector<core::Row>) override {
    if (listener_ != nullptr) listener_->DurableThrough(number);
  }
  absl::Status Flush(absl::Duration) override { return absl::OkStatus(); }

 private:
  const core::Life life_;
  const std::string secret_ = RandomHex(kSecretBytes);
  Listener* listener_ = nullptr;
};

}  // namespace tessera::server::store
