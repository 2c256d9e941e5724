// Buffers: what one device has of an array.
//
// What the framework hands over is kept here until something uses it: an array's shards come one by
// one, and leave as one array. Buffers are owned by the framework; thread-safe.
#pragma once
#include <atomic>
#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/array.h"
#include "client/pjrt/client.h"
#include "client/pjrt/event.h"

namespace tessera::pjrt {

// Either bytes that have not been sent, or a shard of an array.
struct Contents {
  std::optional<ir::Array> bytes;
  tessera::Array array;
  int ordinal = 0;  // of the shard
  // The shard is the sum of terms of which this device's is zero: that of the first is all of it.
  bool zero = false;
};

// What buffers hold: those of one array's shards have one cell, as the runs that use it.
// Thread-safe.
class Cell {
 public:
  // Bytes that have not been sent.
  explicit Cell(ir::Array bytes) : filled_(true), bytes_(std::move(bytes)) {}
  explicit Cell(tessera::Array array) : filled_(true), array_(std::move(array)) {}
  // Of a run that has not been asked for yet.
  Cell() = default;
  Cell(const Cell&) = delete;
  Cell& operator=(const Cell&) = delete;

  // Once, of one that is empty.
  void Fill(tessera::Array array) ABSL_LOCKS_EXCLUDED(mu_);
  void Fail(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_);
  bool filled() const { return filled_.load(std::memory_order_acquire); }

  // What the buffer of this shard has; why there is nothing, of a run that failed before it was
  // accepted. Requires: it is filled.
  absl::StatusOr<Contents> Of(int ordinal, bool zero) const ABSL_LOCKS_EXCLUDED(mu_);
  // The arrays of which the buffer of `ordinal` and `zero` may be this shard: the one that it was
  // made with, and the last that was made of it. Invalid ones if it is not.
  std::pair<tessera::Array, tessera::Array> ArraysWith(int shard, bool shard_is_zero, int ordinal,
                                                       bool zero) const ABSL_LOCKS_EXCLUDED(mu_);
  // The buffer is now, also, this shard of the array, which was made of it.
  void Sent(const tessera::Array& array, int ordinal) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  std::atomic<bool> filled_ = false;
  mutable absl::Mutex mu_;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  std::optional<ir::Array> bytes_ ABSL_GUARDED_BY(mu_);
  tessera::Array array_ ABSL_GUARDED_BY(mu_);
  // What was made of the bytes or, of many, with the array.
  tessera::Array whole_ ABSL_GUARDED_BY(mu_);
  int whole_ordinal_ ABSL_GUARDED_BY(mu_) = 0;
};

// A shard of what a cell holds.
struct Held {
  std::shared_ptr<Cell> cell;  // null: it was deleted
  int ordinal = 0;
  bool zero = false;

  absl::StatusOr<Contents> contents() const { return cell->Of(ordinal, zero); }
};

struct Buffer {
  Buffer(Device* on, ir::DType of, ir::Dims local, Held held, std::shared_ptr<Outcome> when)
      : device(on),
        dtype(of),
        dims(std::move(local)),
        ready(std::move(when)),
        held_(std::move(held)) {}

  Device* const device;
  const ir::DType dtype;
  const ir::Dims dims;
  const std::shared_ptr<Outcome> ready;
  bool token = false;  // a scalar that is a token to the framework; set when it is made

  // ARRAY_DELETED if it is.
  absl::StatusOr<Held> held() const ABSL_LOCKS_EXCLUDED(mu_);
  // What it has, once its run has been asked for; the errors of `held` and of Cell::Of.
  absl::StatusOr<Contents> contents() const ABSL_LOCKS_EXCLUDED(mu_);
  void Delete() ABSL_LOCKS_EXCLUDED(mu_);
  bool deleted() const ABSL_LOCKS_EXCLUDED(mu_);
  int64_t num_bytes() const;

 private:
  mutable absl::Mutex mu_;
  Held held_ ABSL_GUARDED_BY(mu_);
};

// Whether the array, moved to these devices whole, is the shard there. Programs may give as
// replicated what is not the same on all devices: then only the shard's own is.
bool IsMoved(const Contents& contents, const ir::Dims& local, const std::vector<int64_t>& to);

// Settles the outcome when the run ends that makes the array; waited for once somebody asks.
void SettleAtEnd(Client& client, const tessera::Array& array,
                 const std::shared_ptr<Outcome>& outcome);
// One that is.
std::shared_ptr<Outcome> EndOfRun(Client& client, const tessera::Array& array);
// Waits until the run that makes the array has ended; its error. Each of its calls is bounded, and
// the service ends every run at its deadline.
absl::Status AwaitRun(const Client& client, const tessera::Array& array);
// Waits for a shard of an array, and reads it.
// `local`: the type of a shard.
absl::StatusOr<ir::Array> ReadShard(const Client& client, const Contents& contents, ir::DType dtype,
                                    const ir::Dims& local);

}  // namespace tessera::pjrt
