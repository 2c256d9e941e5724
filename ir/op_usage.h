// A short description of each op for docs/programs.md, and suggestions for misspelt op names.
// Stateless; thread-safe.
#pragma once
#include <string>
#include <string_view>

#include "absl/types/span.h"

namespace tessera::ir {

struct OpUsage {
  std::string_view name;      // name on the wire and in text
  std::string_view operands;  // usual names of the operands: "x, y"; "..." stands for more
  std::string_view summary;
};
// Returns the descriptions in the order of AllOps().
absl::Span<const OpUsage> OpUsages();

// Returns the tables of docs/programs.md, one for each family.
std::string OpsMarkdown();

// Returns the hint for an unknown name: "; did you mean exponential? docs/programs.md lists the
// ops". The names of lax are recognised too.
std::string SuggestOps(std::string_view unknown);

}  // namespace tessera::ir
