// A life is the time from a start of the coordinator to the next; it has an epoch and a range of
// ids.
//
// No two lives assign the same id, so that the id of an array, executable, operation, session or
// communicator of an earlier life is an error and not another object.
#pragma once
#include <cstdint>
#include <string>

namespace tessera::server::core {

struct Life {
  uint64_t epoch = 1;                // unique to the life, and greater than of earlier ones
  uint64_t first_id = 0;             // the life's ids are greater
  uint64_t ids = uint64_t{1} << 62;  // how many ids after first_id no earlier life has used
};

// Starts are counted from 1. Each has 2^44 ids, more than it can use, and all fit into 62 bits. Up
// to the 512th start ids are below 2^53, exact in a double, as JSON needs.
inline constexpr int kIdBits = 44;
inline constexpr uint64_t kStartsMax = uint64_t{1} << 18;

inline Life LifeOfStart(uint64_t start) { return {start, (start - 1) << kIdBits}; }

// A life without persistent state: its first id is one of 2^51, so that ids are exact in a double.
// The probability that its 2^36 ids overlap those of one earlier life is at most 1 in 16,384.
inline Life RandomLife(uint64_t epoch, uint64_t random) {
  constexpr uint64_t kFirstIds = uint64_t{1} << 51;
  return {epoch, kFirstIds + random % kFirstIds, uint64_t{1} << 36};
}

// An executor and the ids of its devices, which are reserved while its worker is known.
struct KnownExecutor {
  std::string worker, device_kind;
  int32_t index = 0, num_devices = 0;
  int64_t first_device = 0;
  bool operator==(const KnownExecutor&) const = default;
};

}  // namespace tessera::server::core
