// Moves an array to another placement, slice by slice from executor to executor.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ir/api/service.h"

namespace tessera::server::scheduler {

class Machine;
struct Operation;

struct Transfer {
  static constexpr bool kUsesDevices = true;
  static constexpr bool kReadsPeers = true;
  std::vector<std::string> Executors(Machine& m, const Operation& op) const;
  void Send(Machine& m, Operation& op, const std::vector<std::string>& executors,
            const std::string& only);
};

// Returns whether each device of `wanted` already has exactly its shard of `array`, so that no
// bytes move.
bool BlocksMatch(const api::ArraySpec& array, const api::ArraySpec& wanted);
// A slice of a shard of `array`. SlicesOf returns the slices that make up the shard of `ordinal` of
// `wanted`; `source` is an ordinal of `array`. Among replicas, the one with the highest `prefer` is
// used.
struct ShardSlice {
  int64_t source = 0;
  ir::Dims source_starts, dest_starts, shape;
};
std::vector<ShardSlice> SlicesOf(const api::ArraySpec& array, const api::ArraySpec& wanted,
                                 int64_t ordinal, const std::function<int(int64_t source)>& prefer);

}  // namespace tessera::server::scheduler
