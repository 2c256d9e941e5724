// A short description of each op for docs/programs.md, and suggestions for misspelt op names.
// Stateless; thread-safe.
#pragma once
#include <string>
#include <string_view>

#include "absl/types/span.h"

namespace tessera::ir {

struct OpUsage {
  std::string_view name;      // on the wire and in text
  std::string_view operands;  // their usual names: "x, y"; "..." stands for more
  std::string_view summary;
};
// In the order of AllOps().
absl::Span<const OpUsage> OpUsages();

// The tables of docs/programs.md, one per family.
std::string OpsMarkdown();

// The hint for an unknown name: "; did you mean exponential? docs/programs.md lists the ops".
// Knows lax's names, too.
std::string SuggestOps(std::string_view unknown);

}  // namespace tessera::ir
