// The resources of a device that its launches and copies share. The backend owns them. Only the
// enqueueing thread, which calls Backend::Enqueue, uses `axis_indices`; the rest is thread-safe.
#pragma once
#include <cstdint>
#include <map>
#include <memory>

#include "worker/device/arena.h"
#include "worker/device/completion.h"
#include "worker/device/device.h"
#include "worker/device/group_comms.h"
#include "worker/device/launch.h"
#include "worker/device/pinned_slots.h"
#include "worker/device/scratch.h"
#include "worker/device/staging.h"

namespace tessera::worker::device {

// The resources are leaked once the device is lost, because threads may be stuck in calls of its
// library, and the process ends anyway.
struct DeviceResources {
  std::unique_ptr<Device> device;
  std::unique_ptr<Arena> arena;
  std::unique_ptr<PinnedSlots> inline_slots;
  // Collectives of launches run on their own stream. Everything else runs on `compute_stream`, in
  // the order of Enqueue. A launch ends on `compute_stream`, after its collectives.
  StreamHandle compute_stream, collective_stream;
  std::unique_ptr<GroupComms> group_comms;
  std::unique_ptr<Scratch> scratch;
  // The results of axis_index: an s32 in device memory for each value that has been needed.
  std::map<int32_t, AllocationRef> axis_indices;
  std::unique_ptr<CollectiveAborter> aborter;
  // There are two threads, because a callback at the end of a launch may wait for a copy.
  std::unique_ptr<CompletionPoller> launches, copies;
  // This member is the last one, so that it is destroyed before `copies`, which it uses.
  std::unique_ptr<Staging> staging;
};

}  // namespace tessera::worker::device
