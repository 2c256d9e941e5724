// Copies between arrays of the host and memory of the device, by way of pinned memory.
//
// A copy is made in chunks. Each chunk uses one of a few channels, which have a stream and a pinned
// buffer each, so a small copy does not wait for the end of large ones. Blocking; thread-safe.
// Callers that wait for a channel get one in the order in which they came. If a chunk does not end
// within its timeout, the device is assumed to hang, and the copy fails with WORKER_LOST. A wait
// for a channel says nothing of the device: at its bound, the copy fails with QUEUE_FULL.
#pragma once
#include <cstdint>
#include <deque>
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
  absl::Duration chunk_timeout = absl::Seconds(30);
  // More than the chunks of all channels may take one after the other before the device is lost.
  absl::Duration channel_timeout = absl::Minutes(5);
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
  void GiveBackChannel(Channel* channel) ABSL_LOCKS_EXCLUDED(mu_);
  // Calls `copy` for each chunk, on the channel that is free first.
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
  // The callers that wait for a channel, by their numbers, in the order in which they came.
  std::deque<uint64_t> waiting_ ABSL_GUARDED_BY(mu_);
  uint64_t last_number_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace tessera::worker::device
