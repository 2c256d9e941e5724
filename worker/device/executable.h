// A program compiled for one device: its step program, code, constants and matmul plans, and the
// graphs captured from it. It is immutable once compiled, except for `graphs`, which only the
// enqueueing thread uses.
#pragma once
#include <algorithm>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <utility>
#include <vector>

#include "worker/codegen/device_code.h"
#include "worker/device/device_resources.h"
#include "worker/program/step_program.h"
#include "worker/runtime/backend.h"

namespace tessera::worker::device {

// The captured segments of a program, for each set of buffers with which it was launched more than
// once. A segment is a run of steps that fits into one graph.
class Graphs {
 public:
  using Key = std::vector<uint64_t>;                    // addresses of the buffers
  using GraphSegments = std::map<size_t, GraphHandle>;  // by index of the first step

  // Returns the graphs captured for these buffers. Segments that cannot be captured have empty
  // handles. When it sees the buffers for the first time, it only remembers them and
  // returns null, because they may never recur.
  GraphSegments* FindOrAdd(const Key& key) {
    for (auto it = graphs_.begin(); it != graphs_.end(); ++it) {
      if (it->first != key) continue;
      graphs_.splice(graphs_.begin(), graphs_, it);
      return &graphs_.front().second;
    }
    if (std::find(seen_keys_.begin(), seen_keys_.end(), key) == seen_keys_.end()) {
      seen_keys_.push_front(key);
      if (seen_keys_.size() > kSetsMax) seen_keys_.pop_back();
      return nullptr;
    }
    graphs_.emplace_front(key, GraphSegments());
    if (graphs_.size() > kSetsMax) graphs_.pop_back();
    return &graphs_.front().second;
  }

 private:
  // The number of sets of buffers that are remembered. A training loop alternates between two sets.
  static constexpr size_t kSetsMax = 8;

  std::list<std::pair<Key, GraphSegments>> graphs_;  // the most recently used first
  std::deque<Key> seen_keys_;                        // the most recent first
};

class DeviceExecutable final : public Executable {
 public:
  int64_t memory_bytes() const override { return memory_bytes_; }
  bool has_collectives() const override { return has_collectives_; }
  bool quick() const override { return false; }

  program::StepProgram program;
  codegen::DeviceCode code;
  ModuleHandle module;
  std::vector<AllocationRef> constants;
  std::map<MatmulShape, MatmulHandle> matmuls;
  // The parts of the scratch memory that follow the program's own arena (`program.arena_bytes`):
  // the workspace of matmuls, then aligned copies of unaligned operands.
  int64_t matmul_bytes = 0, realigned_bytes = 0;
  int64_t scratch_bytes() const {
    return Arena::RoundUp(program.arena_bytes) + matmul_bytes + realigned_bytes;
  }
  int64_t memory_bytes_ = 0;
  bool has_collectives_ = false;
  mutable Graphs graphs;
};

// Returns whether the address `offset` bytes into the slot may be less aligned than kernels
// (codegen/device_code.h) and matmuls (device_api.h) require.
inline bool MayBeUnaligned(const program::Slot& slot, int64_t offset = 0) {
  constexpr int64_t kAlignment = 16;
  if ((slot.offset + offset) % kAlignment != 0) return true;
  return std::any_of(slot.loop_strides.begin(), slot.loop_strides.end(),
                     [](const program::LoopStride& s) { return s.stride % kAlignment != 0; });
}

// The bytes of a slot that a matmul reads or writes, from the first element to the last.
struct SlotRange {
  int slot = 0;
  int64_t offset = 0, bytes = 0;
};
struct MatmulRanges {
  SlotRange a, b, c;
};
inline MatmulRanges RangesOf(const program::MatmulStep& step) {
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
