// Copies between arrays of the host and memory of the device, by way of pinned memory.
//
// A copy is made in chunks. Each chunk uses one of a few channels, which have a stream and a pinned
// buffer each, so a small copy does not wait for the end of large ones. Blocking; thread-safe.
// Callers that wait for a channel get one in the order in which they came. If a chunk does not end
// within its timeout, the device is assumed to hang, and the copy fails with WORKER_LOST. A wait
// for a channel says nothing of the device: at its bound, the copy fails with QUEUE_FULL.
//
// A copy of a block leaves out the rest of the array, except gaps of at most
// BlockRows::kGapBytesMax between two rows of the block.
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
#include "ir/type.h"
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

// A block of a dense array, as rows: pieces of the same size that are contiguous in the array.
class BlockRows {
 public:
  // The largest gap between two rows that is copied together with the rows. Two copies would take
  // longer than one copy with the gap.
  static constexpr int64_t kGapBytesMax = 16 << 10;

  // The whole of an array with this many bytes.
  explicit BlockRows(int64_t bytes) : row_bytes_(bytes) {}
  // The block at `starts` with `shape`, which lies inside an array of `array_shape` whose elements
  // have `width` bytes.
  BlockRows(int64_t width, const ir::Dims& array_shape, const ir::Dims& starts,
            const ir::Dims& shape);

  int64_t row_bytes() const { return row_bytes_; }
  int64_t num_bytes() const { return row_bytes_ * num_rows_; }
  // Returns the offset of a row in the array, in bytes. Offsets grow with the rows.
  int64_t OffsetOf(int64_t row) const;

 private:
  // A dimension along which the rows lie.
  struct OuterDim {
    int64_t size = 0, stride_bytes = 0;
  };
  int64_t row_bytes_ = 0, num_rows_ = 1, first_offset_ = 0;
  std::vector<OuterDim> outer_dims_;  // the innermost first
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
  // `from` is the address of the array of which `rows` is a block.
  absl::Status ToHost(std::byte* to, uint64_t from, const BlockRows& rows);

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
      int64_t bytes, absl::FunctionRef<absl::StatusOr<int64_t>(Channel& channel, int64_t at)> copy)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Copies as many bytes of the block, from the offset `at` on, as the channel takes at a time.
  absl::StatusOr<int64_t> CopyRows(Channel& channel, std::byte* to, uint64_t from,
                                   const BlockRows& rows, int64_t at);
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
