// Buffers: a buffer is the part of an array that one device has.
//
// The framework (such as JAX) hands over the shards of an array one by one, but the service takes
// them as one array. So the bytes that the framework hands over are kept here until something uses
// them. Buffers are owned by the framework. Thread-safe.
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
#include "client/pjrt/live_runs.h"

namespace tessera::pjrt {

// The contents of a buffer: either bytes that have not been sent, or a shard of an array.
struct Contents {
  std::optional<ir::Array> bytes;
  tessera::Array array;
  int ordinal = 0;  // ordinal of the shard in the array
  // True if the framework takes the array for a pending sum, and this device's summand is zero. The
  // summand of the first device is the whole sum.
  bool zero = false;
};

// A cell holds the contents of buffers. All buffers that are shards of one array share a cell, and
// so do the runs that use the array. Thread-safe.
class ArrayCell {
 public:
  // Bytes that have not been sent.
  explicit ArrayCell(ir::Array bytes) : filled_(true), bytes_(std::move(bytes)) {}
  // An array that `run` makes, or that is a copy of what `run` makes.
  ArrayCell(tessera::Array array, LiveRunRef run)
      : run_(std::move(run)), filled_(true), array_(std::move(array)) {}
  // An empty cell: `run`, which fills it, has not been requested yet.
  explicit ArrayCell(LiveRunRef run) : run_(std::move(run)) {}
  ArrayCell(const ArrayCell&) = delete;
  ArrayCell& operator=(const ArrayCell&) = delete;

  // Fill or Fail is called once, on an empty cell.
  void Fill(tessera::Array array) ABSL_LOCKS_EXCLUDED(mu_);
  void Fail(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_);
  bool filled() const { return filled_.load(std::memory_order_acquire); }
  // The run that the contents need, or null if there is none.
  const LiveRunRef& run() const { return run_; }

  // Returns the contents of the buffer of shard `ordinal`. Fails with the error of the run, if the
  // run failed before it was accepted. Requires that the cell is filled.
  absl::StatusOr<Contents> ContentsOfShard(int ordinal, bool zero) const ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the two arrays of which the buffer (`ordinal`, `zero`) may be the shard (`shard`,
  // `shard_is_zero`): first the array that the cell was made or filled with, then the last array
  // that was assembled from the buffer. If the buffer is not this shard of an array, that array is
  // invalid.
  std::pair<tessera::Array, tessera::Array> ArraysWithShard(int shard, bool shard_is_zero,
                                                            int ordinal, bool zero) const
      ABSL_LOCKS_EXCLUDED(mu_);
  // Notes that `array` was assembled from the buffer, so that the buffer is also the shard
  // `ordinal` of `array`. `run` is the run that `array` needs, or null.
  void NoteAssembled(const tessera::Array& array, int ordinal, LiveRunRef run)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the run that the last assembled array needs, or null.
  LiveRunRef assembled_run() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  const LiveRunRef run_;
  std::atomic<bool> filled_ = false;
  mutable absl::Mutex mu_;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  std::optional<ir::Array> bytes_ ABSL_GUARDED_BY(mu_);
  tessera::Array array_ ABSL_GUARDED_BY(mu_);
  // The last array that was assembled from the buffer: from its bytes, or from shards of array_.
  tessera::Array assembled_ ABSL_GUARDED_BY(mu_);
  int assembled_ordinal_ ABSL_GUARDED_BY(mu_) = 0;
  LiveRunRef assembled_run_ ABSL_GUARDED_BY(mu_);
};

// One shard of the contents of a cell.
struct CellShard {
  std::shared_ptr<ArrayCell> cell;  // null if the buffer was deleted
  int ordinal = 0;
  bool zero = false;

  absl::StatusOr<Contents> contents() const { return cell->ContentsOfShard(ordinal, zero); }
};

struct Buffer {
  Buffer(Device* on, ir::DType of, ir::Dims local, CellShard shard, std::shared_ptr<Outcome> when)
      : device(on),
        dtype(of),
        dims(std::move(local)),
        ready(std::move(when)),
        shard_(std::move(shard)) {}

  Device* const device;
  const ir::DType dtype;
  const ir::Dims dims;
  const std::shared_ptr<Outcome> ready;
  // True for a scalar that the framework takes for a token, a value without contents that orders
  // effects. Set when the buffer is made.
  bool is_token = false;

  // Fails with ARRAY_DELETED if the buffer was deleted.
  absl::StatusOr<CellShard> shard() const ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the contents of the buffer. Waits until the run that makes it has been requested. Fails
  // as `shard` and ArrayCell::ContentsOfShard do.
  absl::StatusOr<Contents> contents() const ABSL_LOCKS_EXCLUDED(mu_);
  void Delete() ABSL_LOCKS_EXCLUDED(mu_);
  bool deleted() const ABSL_LOCKS_EXCLUDED(mu_);
  int64_t num_bytes() const;

 private:
  mutable absl::Mutex mu_;
  CellShard shard_ ABSL_GUARDED_BY(mu_);
};

// Returns whether the shard reaches the devices `to`, whole on each, if the service reshards the
// array to them. That requires that the shard is the whole array. A program may declare a value as
// replicated that in fact differs between devices. So if the array has several copies, only the
// copy on the shard's own device is certain to be the shard.
bool ReshardMovesShard(const Contents& contents, const ir::Dims& local,
                       const std::vector<int64_t>& to);

// Settles the outcome when the run that makes `array` ends. The wait for the run starts only when
// somebody asks for the outcome.
void SettleAtEndOfRun(Client& client, const tessera::Array& array,
                      const std::shared_ptr<Outcome>& outcome);
// Returns an outcome that settles when the run that makes `array` ends.
std::shared_ptr<Outcome> OutcomeOfRun(Client& client, const tessera::Array& array);
// Waits until the run that makes `array` has ended, and returns its error. Each call to the service
// is bounded, and the service ends every run at its deadline.
absl::Status AwaitRun(const Client& client, const tessera::Array& array);
// Waits for a shard of an array, and reads it from its device or, if the executor of that device is
// lost or away, from another device with the same shard.
// `dtype` and `local` are the dtype and the shape of the shard.
absl::StatusOr<ir::Array> ReadShard(const Client& client, const Contents& contents, ir::DType dtype,
                                    const ir::Dims& local);

}  // namespace tessera::pjrt
