// A life is one incarnation of the coordinator, from a start to the next: its epoch, its range of
// ids, and what it knows from earlier ones.
//
// Ids of arrays, executables, operations, sessions and communicators are invalid in another life,
// so no two lives assign the same.
#pragma once
#include <cstdint>
#include <string>

namespace tessera::server::core {

struct Life {
  uint64_t epoch = 1;                // unique to the life
  uint64_t first_id = 0;             // the life's ids are greater
  uint64_t ids = uint64_t{1} << 62;  // how many ids after first_id no earlier life has used
};

// Starts are counted from 1: each has more ids than can be used up, and all fit into 62 bits.  Up
// to the 512th start, ids are exact in a double.
inline constexpr int kIdBits = 44;
inline constexpr uint64_t kStartsMax = uint64_t{1} << 18;

inline Life LifeOfStart(uint64_t start) { return {start, (start - 1) << kIdBits}; }

// A life without persistent state: its first id is random among 2^51, so that ids are exact in a
// double.  The probability that the next 2^36 overlap an earlier life's is 1 in 32,768.
inline Life LifeByChance(uint64_t epoch, uint64_t chance) {
  constexpr uint64_t kPlaces = uint64_t{1} << 51;
  return {epoch, kPlaces + chance % kPlaces, uint64_t{1} << 36};
}

// An executor and the ids of its devices, which are reserved while its worker is known.
struct KnownExecutor {
  std::string worker, device_kind;
  int32_t index = 0, num_devices = 0;
  int64_t first_device = 0;
  bool operator==(const KnownExecutor&) const = default;
};

}  // namespace tessera::server::core
