// Buffers: what one device has of an array.
//
// What the framework hands over is kept here until something uses it: an array's shards come one by
// one, and leave as one array. Owned by the framework; thread-safe.
#pragma once
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/array.h"
#include "client/pjrt/client.h"
#include "client/pjrt/event.h"

namespace tessera::pjrt {

// Either bytes that have not been sent, or a shard of an array; neither once it is deleted.
struct Contents {
  std::optional<ir::Array> bytes;
  tessera::Array array;
  int ordinal = 0;  // of the shard
  // The shard is the sum of terms of which this device's is zero: that of the first is all of it.
  bool zero = false;
};

struct Buffer {
  Buffer(Device* on, ir::DType of, ir::Dims local, Contents contents, std::shared_ptr<Outcome> when)
      : device(on),
        dtype(of),
        dims(std::move(local)),
        ready(std::move(when)),
        contents_(std::move(contents)) {}

  Device* const device;
  const ir::DType dtype;
  const ir::Dims dims;
  const std::shared_ptr<Outcome> ready;
  bool token = false;  // a scalar that is a token to the framework; set when it is made

  // ARRAY_DELETED if it is; what it failed with, of a run that could not be asked for.
  absl::StatusOr<Contents> contents() const ABSL_LOCKS_EXCLUDED(mu_);
  // The array, if the buffer is this shard of one, or a term that is zero of it; else an invalid
  // one.
  tessera::Array ArrayIfShard(int ordinal, bool zero) const ABSL_LOCKS_EXCLUDED(mu_);
  // The bytes are now a shard of this array.
  void Sent(const tessera::Array& array, int ordinal) ABSL_LOCKS_EXCLUDED(mu_);
  void Delete() ABSL_LOCKS_EXCLUDED(mu_);
  bool deleted() const ABSL_LOCKS_EXCLUDED(mu_);
  int64_t num_bytes() const;

 private:
  mutable absl::Mutex mu_;
  bool deleted_ ABSL_GUARDED_BY(mu_) = false;
  Contents contents_ ABSL_GUARDED_BY(mu_);
};

// How the run ends that makes the array; waited for once somebody asks.
std::shared_ptr<Outcome> EndOfRun(Client& client, const tessera::Array& array);
// Waits until the run that makes the array has ended; its error. Each of its calls is bounded, and
// the service ends every run at its deadline.
absl::Status AwaitRun(const Client& client, const tessera::Array& array);
// Waits for a shard of an array, and reads it.
absl::StatusOr<ir::Array> ReadShard(const Client& client, const Contents& contents,
                                    const Buffer& of);

}  // namespace tessera::pjrt
