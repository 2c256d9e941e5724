// Copies between arrays of the host and memory of the device, by way of pinned memory.
//
// A copy uses one of a few channels, each with a stream and a pinned buffer, and is made in chunks.
// Blocking; thread-safe. A caller waits while every channel is in use. If a wait exceeds the
// timeout, the device is assumed to hang, and the copy fails with WORKER_LOST.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "worker/device/completion.h"
#include "worker/device/device.h"

namespace tessera::worker::device {

struct StagingOptions {
  int num_channels = 2;
  int64_t channel_bytes = int64_t{4} << 20;
  // The bound of the wait for a free channel, and for each chunk.
  absl::Duration timeout = absl::Seconds(30);
};

class Staging {
 public:
  // Channel i watches its copies in queue i of `completion`. The device and `completion` must
  // outlive the result.
  static absl::StatusOr<std::unique_ptr<Staging>> Make(const Device* device,
                                                       CompletionPoller* completion,
                                                       StagingOptions options);
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging();

  absl::Status ToDevice(uint64_t to, const std::byte* from, int64_t bytes);
  absl::Status ToHost(std::byte* to, uint64_t from, int64_t bytes);

 private:
  struct Channel {
    int queue = 0;
    StreamHandle stream;
    std::byte* pinned = nullptr;
  };

  Staging(const Device* device, CompletionPoller* completion, StagingOptions options)
      : device_(device), completion_(completion), options_(options) {}
  absl::StatusOr<Channel*> TakeChannel() ABSL_LOCKS_EXCLUDED(mu_);
  // Calls `copy` for each chunk, on one channel.
  absl::Status CopyInChunks(
      int64_t bytes,
      absl::FunctionRef<absl::Status(Channel& channel, int64_t at, int64_t chunk)> copy)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Waits until the copies enqueued on the channel have ended.
  absl::Status Wait(Channel& channel);

  const Device* const device_;
  CompletionPoller* const completion_;
  const StagingOptions options_;
  std::vector<std::unique_ptr<Channel>> channels_;
  absl::Mutex mu_;
  std::vector<Channel*> free_channels_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera::worker::device
