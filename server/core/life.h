// A life is the time from one start of the coordinator to the next. It has an epoch and a range of
// ids.
//
// No two lives assign the same id. So an id from an earlier life (of an array, executable,
// operation, session or communicator) leads to an error, and never to another object.
#pragma once
#include <cstdint>
#include <string>

namespace tessera::server::core {

struct Life {
  uint64_t epoch = 1;                // unique number of the life, greater than earlier epochs
  uint64_t first_id = 0;             // lower bound: all ids of the life are greater
  uint64_t ids = uint64_t{1} << 62;  // number of ids after first_id that no earlier life has used
};

// Starts are counted from 1. Each start gets 2^44 ids, which is more than it can use, and all ids
// fit into 62 bits. Up to the 512th start ids are below 2^53. JSON needs this, because it stores
// numbers as doubles, which are exact up to there.
inline constexpr int kIdBits = 44;
inline constexpr uint64_t kStartsMax = uint64_t{1} << 18;

inline Life LifeOfStart(uint64_t start) { return {start, (start - 1) << kIdBits}; }

// Returns a life without persistent state. The first id is chosen among 2^51 values, so that ids
// are exact in a double. The probability that its 2^36 ids overlap the ids of a given earlier life
// is at most 1 in 16,384.
inline Life RandomLife(uint64_t epoch, uint64_t random) {
  constexpr uint64_t kFirstIds = uint64_t{1} << 51;
  return {epoch, kFirstIds + random % kFirstIds, uint64_t{1} << 36};
}

// An executor and the ids of its devices. The ids stay reserved while its worker is known.
struct KnownExecutor {
  std::string worker, device_kind;
  int32_t index = 0, num_devices = 0;
  int64_t first_device = 0;
  bool operator==(const KnownExecutor&) const = default;
};

}  // namespace tessera::server::core
