// A life is the time from one start of the coordinator to the next. A life has an epoch, which is
// its number, and a range of ids for the objects that it makes.
//
// No two lives assign the same id. So an id from an earlier life (of an array, executable,
// operation, session or communicator) leads to an error, and never to another object.
#pragma once
#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace tessera::server::core {

struct Life {
  uint64_t epoch = 1;     // number of the life, greater than earlier epochs of the same state
  uint64_t first_id = 0;  // lower bound: all ids of the life are greater
  uint64_t num_ids =
      uint64_t{1} << 62;  // number of ids after first_id that no earlier life has used
  // When the state began: when its folder was first used or, without a folder, when the process
  // started. It tells a coordinator that begins anew from one that was replaced and comes back.
  absl::Time state_began = absl::UnixEpoch();
};

// Starts are counted from 1. Each start gets 2^kIdBits ids, which is more than it can use, and the
// ids of kStartsMax starts fit into 62 bits. The ids of the first 512 starts are below 2^53, so
// that programs that read numbers in JSON as doubles read them exactly.
inline constexpr int kIdBits = 44;
inline constexpr uint64_t kStartsMax = uint64_t{1} << 18;

inline Life LifeOfStart(uint64_t start) { return {start, (start - 1) << kIdBits}; }

// Returns a life for a coordinator without persistent state, which cannot count its starts. The
// random number chooses the first id among 2^51 values; all ids are then exact in a double. The
// probability that the life's 2^36 ids overlap the ids of a given earlier life is at most 1 in
// 16,384.
inline Life RandomLife(uint64_t epoch, uint64_t random) {
  constexpr uint64_t kFirstIds = uint64_t{1} << 51;
  return {epoch, kFirstIds + random % kFirstIds, uint64_t{1} << 36};
}

// An executor and the ids of its devices. The coordinator gives these ids to no other device as
// long as it knows the worker.
struct KnownExecutor {
  std::string worker, device_kind;
  int32_t index = 0, num_devices = 0;
  int64_t first_device = 0;
  bool operator==(const KnownExecutor&) const = default;
};

}  // namespace tessera::server::core
