// The coordinator's storage. It keeps the rows (server/core/rows.h) that the coordinator's next
// life reads, and defines the present life (server/core/life.h). Owned by main.cc (or embed/), and
// outlives the coordinator. Thread-safe, unless a comment says otherwise.
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

inline constexpr size_t kSecretBytes = 32;  // size of the secret, before it becomes hex digits

class Store {
 public:
  // Learns when commits are durable, and when they cannot be made durable. The store calls it on
  // its own thread (a MemoryStore on the thread that commits), one call at a time and without a
  // lock of the store. A call must not block. It may call Commit, but not Listen or Flush.
  class Listener {
   public:
    virtual ~Listener() = default;
    // All commits up to this number are as durable as the store makes them. This call also says
    // that a failure is over.
    virtual void OnDurable(uint64_t commit) = 0;
    // An attempt to make commits durable has failed. The store repeats it until it succeeds and
    // calls OnDurable. (A disk that does not answer makes no attempt fail.) The error is DISK_FULL,
    // or STORE_FAILED if the disk cannot be read or written, or STALE_EPOCH if another coordinator
    // has taken the store over. After STALE_EPOCH the store tries nothing again and makes no
    // further calls.
    virtual void OnCommitsFailed(absl::Status why) = 0;
  };

  virtual ~Store() = default;
  // The present life of the coordinator, which never changes.
  virtual core::Life life() const = 0;
  // A random secret, in hex digits. In a persistent store it is the same in every life, so that
  // each life of the coordinator accepts what an earlier one has signed.
  virtual const std::string& secret() const = 0;
  // Returns whether a later life can read the rows. If not, callers need not make rows for their
  // commits.
  virtual bool is_persistent() const { return false; }
  // Returns the rows of earlier lives, in the order of kind and key. Call at most once, before the
  // first Commit. Errors are STORE_FAILED and FILE_CORRUPT.
  virtual absl::StatusOr<std::vector<core::Row>> Load() const { return std::vector<core::Row>(); }
  // Sets the listener. Call it before the first Commit, and with null after the last one. No call
  // to the former listener is running when Listen returns.
  virtual void Listen(Listener* listener) = 0;
  // Writes the rows, each in place of the row with the same kind and key, if there is one. `number`
  // is greater than the number of the commit before. Never blocks and never fails. Commits become
  // durable in order and as a whole; waiting commits become durable together.
  virtual void Commit(uint64_t number, std::vector<core::Row> rows) = 0;
  // Waits until all commits are durable, for a graceful stop. Returns DEADLINE_EXCEEDED if they are
  // not durable within the bound, and STALE_EPOCH if they never will be.
  virtual absl::Status Flush(absl::Duration bound) = 0;
};

// A store that lasts as long as the process. It keeps no rows, because no later life reads them,
// and calls OnDurable within Commit. Only one thread at a time may call Listen and Commit.
class MemoryStore final : public Store {
 public:
  explicit MemoryStore(core::Life life = {}) : life_(life) {}
  core::Life life() const override { return life_; }
  const std::string& secret() const override { return secret_; }
  void Listen(Listener* listener) override { listener_ = listener; }
  void Commit(uint64_t number, std::vector<core::Row>) override {
    if (listener_ != nullptr) listener_->OnDurable(number);
  }
  absl::Status Flush(absl::Duration) override { return absl::OkStatus(); }

 private:
  const core::Life life_;
  const std::string secret_ = RandomHex(kSecretBytes);
  Listener* listener_ = nullptr;
};

}  // namespace tessera::server::store
