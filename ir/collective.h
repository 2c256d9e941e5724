// The kinds of collectives and of reductions, as enumerations and as a table. A block is the part
// of an array that one device of the group sends to, or receives from, one other device.
#pragma once
#include <cstdint>
#include <string_view>

namespace tessera::ir {

enum class ReduceKind : uint8_t { kNone, kSum, kProd, kMax, kMin, kAnd, kOr, kArgMax, kArgMin };
std::string_view ReduceKindName(ReduceKind kind);

enum class CollectiveKind : uint8_t {
#define TESSERA_COLLECTIVE_KIND(symbol, ...) k##symbol,
#include "base/collective_kinds.def"
#undef TESSERA_COLLECTIVE_KIND
  kAxisIndex,  // axis_index: exchanges no data
  kNone,
};
// The number of kinds that exchange data; they are the rows of the table and come first in the
// enum.
inline constexpr int kNumCollectiveKinds = static_cast<int>(CollectiveKind::kAxisIndex);

enum class BlockCount : uint8_t { kOne, kEach };
// A row of base/collective_kinds.def. That file explains the columns.
struct CollectiveInfo {
  std::string_view name;
  BlockCount in = BlockCount::kOne, out = BlockCount::kOne;
  bool combines = false, paired = false;
};
inline constexpr CollectiveInfo kCollectiveInfos[] = {
#define TESSERA_COLLECTIVE_KIND(symbol, name, in, out, combines, paired) \
  {name, BlockCount::in, BlockCount::out, combines, paired},
#include "base/collective_kinds.def"
#undef TESSERA_COLLECTIVE_KIND
    {"position"},
    {"none"},
};
constexpr const CollectiveInfo& InfoOf(CollectiveKind kind) {
  return kCollectiveInfos[static_cast<int>(kind)];
}

}  // namespace tessera::ir
