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

// Returns whether the shard of `array` on each device of `wanted` is exactly the device's shard of
// `wanted`, so that no bytes need to move.
bool BlocksMatch(const api::ArraySpec& array, const api::ArraySpec& wanted);
// A slice of the shard with ordinal `source` of `array`: where it begins there, where it begins in
// the shard of `wanted` that it becomes a part of, and its shape. SlicesOf returns the slices that
// together are shard `ordinal` of `wanted`. Of several replicas of a source shard it takes the one
// with the highest `prefer`.
struct ShardSlice {
  int64_t source = 0;
  ir::Dims source_starts, dest_starts, shape;
};
std::vector<ShardSlice> SlicesOf(const api::ArraySpec& array, const api::ArraySpec& wanted,
                                 int64_t ordinal, const std::function<int(int64_t source)>& prefer);

}  // namespace tessera::server::scheduler
