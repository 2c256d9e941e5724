// Copies between host arrays and device memory. device_backend.cc calls ToDevice and ToHost for
// arrays, constants and host steps. The device interface copies only from and to pinned memory, and
// pinning every array would be slow, so the copies go through a few buffers that stay pinned.
#include "worker/device/staging.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/status.h"

namespace tessera::worker::device {
namespace {

// The end of one copy. It is shared, because the caller may stop waiting for it.
struct CopyEnd {
  absl::Notification notification;
  absl::Status status;
};

}  // namespace

// ---- The rows of a block. -----------------------------------------------------------------------

BlockRows::BlockRows(int64_t width, const ir::Dims& array_shape, const ir::Dims& starts,
                     const ir::Dims& shape)
    : row_bytes_(width) {
  // Whether the block has all of the inner dimensions, so that this one is a part of the row.
  bool in_row = true;
  int64_t stride_bytes = width;
  for (size_t d = shape.size(); d-- > 0;) {
    first_offset_ += starts[d] * stride_bytes;
    if (in_row) {
      row_bytes_ *= shape[d];
    } else {
      num_rows_ *= shape[d];
      outer_dims_.push_back({shape[d], stride_bytes});
    }
    in_row = in_row && shape[d] == array_shape[d];
    stride_bytes *= array_shape[d];
  }
}

int64_t BlockRows::OffsetOf(int64_t row) const {
  int64_t offset = first_offset_;
  for (const OuterDim& dim : outer_dims_) {
    offset += row % dim.size * dim.stride_bytes;
    row /= dim.size;
  }
  return offset;
}

// ---- The copies. --------------------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<Staging>> Staging::Make(const Device* device,
                                                       CompletionPoller* completion,
                                                       StagingOptions options) {
  std::unique_ptr<Staging> staging(new Staging(device, completion, options));
  for (int i = 0; i < options.num_channels; ++i) {
    auto channel = std::make_unique<Channel>();
    channel->queue = i;
    TESSERA_ASSIGN_OR_RETURN(channel->stream, device->NewStream(/*high_priority=*/true));
    void* pinned = nullptr;
    TESSERA_RETURN_IF_ERROR(device->Check(
        device->api().allocate_host(device->context(), options.channel_bytes, &pinned),
        "pinned memory for copies"));
    channel->pinned = static_cast<std::byte*>(pinned);
    absl::MutexLock lock(&staging->mu_);
    staging->free_channels_.push_back(channel.get());
    staging->channels_.push_back(std::move(channel));
  }
  return staging;
}

Staging::~Staging() {
  for (const auto& channel : channels_) {
    static_cast<void>(device_->api().free_host(device_->context(), channel->pinned));
  }
}

absl::StatusOr<Staging::Channel*> Staging::TakeChannel() {
  absl::MutexLock lock(&mu_);
  const uint64_t number = ++last_number_;
  waiting_.push_back(number);
  const auto is_next = [this, number]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return !free_channels_.empty() && waiting_.front() == number;
  };
  if (!mu_.AwaitWithTimeout(absl::Condition(&is_next), options_.channel_timeout)) {
    waiting_.erase(std::find(waiting_.begin(), waiting_.end(), number));
    return MakeError(
        ErrorKind::kQueueFull,
        absl::StrCat(device_->name(), ": ", waiting_.size(), " other copies wait for one of ",
                     channels_.size(), " channels, and none came free for this one within ",
                     absl::FormatDuration(options_.channel_timeout), "; wait and retry"));
  }
  waiting_.pop_front();
  Channel* channel = free_channels_.back();
  free_channels_.pop_back();
  return channel;
}

void Staging::GiveBackChannel(Channel* channel) {
  absl::MutexLock lock(&mu_);
  free_channels_.push_back(channel);
}

absl::Status Staging::Wait(Channel& channel) {
  TESSERA_ASSIGN_OR_RETURN(EventHandle event, device_->RecordEvent(channel.stream));
  const auto end = std::make_shared<CopyEnd>();
  completion_->Add(channel.queue, [device = device_, event = std::move(event), end](absl::Time) {
    const absl::StatusOr<bool> reached = device->IsReached(event);
    if (reached.ok() && !*reached) return false;
    end->status = reached.status();
    end->notification.Notify();
    return true;
  });
  if (end->notification.WaitForNotificationWithTimeout(options_.chunk_timeout)) return end->status;
  return MakeError(ErrorKind::kWorkerLost,
                   absl::StrCat(device_->name(), ": a copy did not end within ",
                                absl::FormatDuration(options_.chunk_timeout)));
}

absl::Status Staging::CopyInChunks(
    int64_t bytes, absl::FunctionRef<absl::StatusOr<int64_t>(Channel& channel, int64_t at)> copy) {
  for (int64_t at = 0; at < bytes;) {
    TESSERA_ASSIGN_OR_RETURN(Channel* const channel, TakeChannel());
    const absl::StatusOr<int64_t> copied = copy(*channel, at);
    GiveBackChannel(channel);
    TESSERA_RETURN_IF_ERROR(copied.status());
    at += *copied;
  }
  return absl::OkStatus();
}

absl::Status Staging::ToDevice(uint64_t to, const std::byte* from, int64_t bytes) {
  return CopyInChunks(bytes, [&](Channel& channel, int64_t at) -> absl::StatusOr<int64_t> {
    const int64_t chunk = std::min(options_.channel_bytes, bytes - at);
    std::memcpy(channel.pinned, from + at, chunk);
    TESSERA_RETURN_IF_ERROR(device_->Check(
        device_->api().copy_to_device(channel.stream.get(), to + at, channel.pinned, chunk),
        "a copy to the device"));
    TESSERA_RETURN_IF_ERROR(Wait(channel));
    return chunk;
  });
}

absl::Status Staging::ToHost(std::byte* to, uint64_t from, const BlockRows& rows) {
  return CopyInChunks(rows.num_bytes(), [&](Channel& channel, int64_t at) {
    return CopyRows(channel, to, from, rows, at);
  });
}

// Copies from the device to the channel's buffer, and then the rows from there to their places.
// Rows that are close to each other in the array come with one copy, together with what lies
// between them. The channel is not given back while a copy to its buffer goes on, even if a later
// copy fails.
absl::StatusOr<int64_t> Staging::CopyRows(Channel& channel, std::byte* to, uint64_t from,
                                          const BlockRows& rows, int64_t at) {
  constexpr size_t kPartsMax = 4096;  // bounds the memory for `parts`
  // A part of a row in the channel's buffer, and its place in the block.
  struct Part {
    int64_t buffer_at = 0, to = 0, bytes = 0;
  };
  std::vector<Part> parts;
  // The range of the array that the next copy takes, and its place in the channel's buffer.
  int64_t copy_begin = 0, copy_end = 0, copy_at = 0;
  absl::Status status;
  const auto copy = [&] {
    if (copy_begin == copy_end) return;
    status.Update(
        device_->Check(device_->api().copy_to_host(channel.stream.get(), channel.pinned + copy_at,
                                                   from + copy_begin, copy_end - copy_begin),
                       "a copy from the device"));
  };
  const int64_t begin = at;
  while (at < rows.num_bytes() && parts.size() < kPartsMax && status.ok()) {
    const int64_t in_row = at % rows.row_bytes();
    const int64_t source = rows.OffsetOf(at / rows.row_bytes()) + in_row;
    const bool joins = !parts.empty() && source - copy_end <= BlockRows::kGapBytesMax;
    const int64_t used = copy_at + (copy_end - copy_begin);
    const int64_t buffer_at = joins ? used + (source - copy_end) : used;
    const int64_t bytes = std::min(rows.row_bytes() - in_row, options_.channel_bytes - buffer_at);
    if (bytes <= 0) break;
    if (!joins) {
      copy();
      copy_begin = source;
      copy_at = buffer_at;
    }
    copy_end = source + bytes;
    parts.push_back({buffer_at, at, bytes});
    at += bytes;
  }
  copy();
  status.Update(Wait(channel));
  TESSERA_RETURN_IF_ERROR(status);
  for (const Part& part : parts)
    std::memcpy(to + part.to, channel.pinned + part.buffer_at, part.bytes);
  return at - begin;
}

}  // namespace tessera::worker::device
