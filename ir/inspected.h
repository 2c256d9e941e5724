// Values whose placement somebody asked for: a checkpoint_name whose name begins so marks one, for
// the client to find in the plan. Policies of checkpoint know nothing of it.
#pragma once
#include <string_view>

namespace tessera::ir {

inline constexpr std::string_view kInspectedPrefix = "inspect:";
inline bool IsInspected(std::string_view name) {
  return name.substr(0, kInspectedPrefix.size()) == kInspectedPrefix;
}

}  // namespace tessera::ir
