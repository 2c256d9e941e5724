// Moves of an array to another placement, block by block from executor to executor.
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
  void Send(Machine& m, Operation& op, const std::vector<std::string>& executors);
};

// ---- Pure geometry. ----
// Whether each device of `wanted` holds exactly its block of `array` already, so that no bytes
// move.
bool BlocksMatch(const api::ArraySpec& array, const api::ArraySpec& wanted);
// The pieces that make the block of `ordinal` of `wanted` out of blocks of `array`; a source is
// given as ordinal of `array`.  Of the replicas of a block the one that `prefer` puts highest is
// taken.
struct SourcePiece {
  int64_t source = 0;
  ir::Dims source_starts, dest_starts, shape;
};
std::vector<SourcePiece> PiecesOf(const api::ArraySpec& array, const api::ArraySpec& wanted,
                                  int64_t ordinal,
                                  const std::function<int(int64_t source)>& prefer);

}  // namespace tessera::server::scheduler
