// Marks values whose placement the user asked for. The mark is an op checkpoint_name whose name
// begins with kInspectedPrefix; the client finds the name in the plan. The policies of `checkpoint`
// ignore such names.
#pragma once
#include <string_view>

namespace tessera::ir {

inline constexpr std::string_view kInspectedPrefix = "inspect:";
inline bool IsInspected(std::string_view name) {
  return name.substr(0, kInspectedPrefix.size()) == kInspectedPrefix;
}

}  // namespace tessera::ir
