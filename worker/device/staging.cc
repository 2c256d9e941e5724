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
    int64_t bytes,
    absl::FunctionRef<absl::Status(Channel& channel, int64_t at, int64_t chunk)> copy) {
  for (int64_t at = 0; at < bytes; at += options_.channel_bytes) {
    TESSERA_ASSIGN_OR_RETURN(Channel* const channel, TakeChannel());
    const absl::Status status = copy(*channel, at, std::min(options_.channel_bytes, bytes - at));
    GiveBackChannel(channel);
    TESSERA_RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

absl::Status Staging::ToDevice(uint64_t to, const std::byte* from, int64_t bytes) {
  return CopyInChunks(bytes, [&](Channel& channel, int64_t at, int64_t chunk) -> absl::Status {
    std::memcpy(channel.pinned, from + at, chunk);
    TESSERA_RETURN_IF_ERROR(device_->Check(
        device_->api().copy_to_device(channel.stream.get(), to + at, channel.pinned, chunk),
        "a copy to the device"));
    return Wait(channel);
  });
}

absl::Status Staging::ToHost(std::byte* to, uint64_t from, int64_t bytes) {
  return CopyInChunks(bytes, [&](Channel& channel, int64_t at, int64_t chunk) -> absl::Status {
    TESSERA_RETURN_IF_ERROR(device_->Check(
        device_->api().copy_to_host(channel.stream.get(), channel.pinned, from + at, chunk),
        "a copy from the device"));
    TESSERA_RETURN_IF_ERROR(Wait(channel));
    std::memcpy(to + at, channel.pinned, chunk);
    return absl::OkStatus();
  });
}

}  // namespace tessera::worker::device
