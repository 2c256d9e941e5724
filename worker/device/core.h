// The state that a device backend's launches and copies share.
//
// Owned by the backend. `scratch` and `positions` are the enqueueing thread's; the rest is
// thread-safe by itself or as its header says.
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
#include "worker/device/staging.h"

namespace tessera::worker::device {

using BlockRef = std::shared_ptr<const Block>;

// Not destroyed once the device is lost: threads may be stuck in calls of its library, and the
// process ends.
struct Core {
  std::unique_ptr<Device> device;
  std::unique_ptr<Arena> arena;
  std::unique_ptr<PinnedSlots> mirrors;
  // Everything that a launch does but its exchanges, in the order of Enqueue; and the exchanges. A
  // launch ends on `compute`, after its exchanges.
  StreamHandle compute, exchange;
  std::unique_ptr<GroupComms> group_comms;
  // The executables' scratch memory: one for all, since their work is in one order. Replaced by a
  // larger one when that is needed; launches hold the one they use.
  BlockRef scratch;
  std::map<int32_t, BlockRef> positions;  // an s32 of that value
  std::unique_ptr<AbortLadder> ladder;
  // Two threads: a callback at the end of a launch may make a copy, and wait for it.
  std::unique_ptr<Completion> launches, copies;
  std::unique_ptr<Staging> staging;  // Last: watches its copies in `copies`.
};

}  // namespace tessera::worker::device
