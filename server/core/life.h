// Which life of the coordinator this is, from one start to the next, which ids belong to it, and
// what it has from the lives before.
//
// Ids of arrays, executables, operations, sessions and communicators mean nothing to another life,
// so no two lives give out the same.  Values; any thread.
#pragma once
#include <cstdint>
#include <string>

namespace tessera::server::core {

struct Life {
  uint64_t epoch = 1;                // no other life has it
  uint64_t first_id = 0;             // the life's ids are greater
  uint64_t ids = uint64_t{1} << 62;  // so many after first_id are of no life before
};

// Of a life whose starts are counted, from 1: more ids than can be given out, and so many starts
// that all of them fit into 62 bits.  Up to the 512th, ids are exact in a double.
inline constexpr int kIdBits = 44;
inline constexpr uint64_t kStartsMax = uint64_t{1} << 18;

inline Life LifeOfStart(uint64_t start) { return {start, (start - 1) << kIdBits}; }

// Of a life that remembers none before it: where its ids begin is left to chance, among 2^51 places
// and so that they are exact in a double.  That one of a life before is among the next 2^36 is as
// unlikely as one in 32,768.
inline Life LifeByChance(uint64_t epoch, uint64_t chance) {
  constexpr uint64_t kPlaces = uint64_t{1} << 51;
  return {epoch, kPlaces + chance % kPlaces, uint64_t{1} << 36};
}

// An executor and the ids of its devices, which stay its own while its worker is known.
struct KnownExecutor {
  std::string worker, device_kind;
  int32_t index = 0, num_devices = 0;
  int64_t first_device = 0;
  bool operator==(const KnownExecutor&) const = default;
};

}  // namespace tessera::server::core
