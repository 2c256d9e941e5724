// A device program ready to run on one device: its code, its constants, its products' plans, and
// the graphs that became of it.
//
// Immutable once compiled, but for `graphs`, which are the enqueueing thread's.
#pragma once
#include <algorithm>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <utility>
#include <vector>

#include "worker/codegen/device_code.h"
#include "worker/device/core.h"
#include "worker/program/device_program.h"
#include "worker/runtime/backend.h"

namespace tessera::worker::device {

inline int64_t Rounded(int64_t bytes) {
  return (bytes + Arena::kAlignment - 1) / Arena::kAlignment * Arena::kAlignment;
}

// The stretches of a program as graphs, for each set of buffers that was launched more than once.
class Graphs {
 public:
  using Key = std::vector<uint64_t>;                // the addresses
  using Stretches = std::map<size_t, GraphHandle>;  // by the first step

  // For the buffers, with empty handles for what cannot be a graph. Null: they are new, or were
  // seen too long ago.
  Stretches* Find(const Key& key) {
    for (auto it = graphs_.begin(); it != graphs_.end(); ++it) {
      if (it->first != key) continue;
      graphs_.splice(graphs_.begin(), graphs_, it);
      return &graphs_.front().second;
    }
    if (std::find(seen_.begin(), seen_.end(), key) == seen_.end()) {
      seen_.push_front(key);
      if (seen_.size() > kSetsMax) seen_.pop_back();
      return nullptr;
    }
    graphs_.emplace_front(key, Stretches());
    if (graphs_.size() > kSetsMax) graphs_.pop_back();
    return &graphs_.front().second;
  }

 private:
  // A training loop alternates between two.
  static constexpr size_t kSetsMax = 8;

  std::list<std::pair<Key, Stretches>> graphs_;  // latest use first
  std::deque<Key> seen_;
};

class DeviceExecutable final : public Executable {
 public:
  int64_t memory_bytes() const override { return memory_bytes_; }
  bool has_collectives() const override { return has_collectives_; }
  bool quick() const override { return false; }

  program::DeviceProgram program;
  codegen::DeviceCode code;
  ModuleHandle module;
  std::vector<BlockRef> constants;
  std::map<MatmulShape, MatmulHandle> matmuls;
  // Behind the arena: what products need, then where slots of kernels and products are moved that
  // lie unaligned.
  int64_t product_bytes = 0, moved_bytes = 0;
  int64_t scratch_bytes() const {
    return Rounded(program.arena_bytes) + product_bytes + moved_bytes;
  }
  int64_t memory_bytes_ = 0;
  bool has_collectives_ = false;
  mutable Graphs graphs;
};

// Whether what lies `offset` bytes into the slot may lie where kernels (codegen/device_code.h) and
// products (device_api.h) do not take it.
inline bool MayBeUnaligned(const program::Slot& slot, int64_t offset = 0) {
  constexpr int64_t kAlignment = 16;
  if ((slot.offset + offset) % kAlignment != 0) return true;
  return std::any_of(slot.trips.begin(), slot.trips.end(),
                     [](const program::Trip& trip) { return trip.stride % kAlignment != 0; });
}

// What a product reads or writes, seen as bytes of a slot.
struct ProductPart {
  int slot = 0;
  int64_t offset = 0, bytes = 0;  // from the first element to the last
};
struct ProductParts {
  ProductPart a, b, c;
};
inline ProductParts PartsOf(const program::ContractStep& step) {
  const MatmulShape& s = step.shape;
  const int64_t in = ir::ByteWidth(s.in), out = ir::ByteWidth(s.out);
  const auto span = [&](const int64_t(&strides)[3], int64_t rows, int64_t columns) {
    if (s.batch == 0 || rows == 0 || columns == 0) return int64_t{0};
    return ((s.batch - 1) * strides[0] + (rows - 1) * strides[1] + (columns - 1) * strides[2] + 1) *
           in;
  };
  return {{step.a, step.a_offset * in, span(s.a_strides, s.m, s.k)},
          {step.b, step.b_offset * in, span(s.b_strides, s.k, s.n)},
          {step.c, 0, s.batch * s.m * s.n * out}};
}

}  // namespace tessera::worker::device
