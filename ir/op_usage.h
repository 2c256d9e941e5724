// Ops in words: what docs/programs.md lists, and the names that somebody may have meant.
//
// Pure; any thread.
#pragma once
#include <string>
#include <string_view>

#include "absl/types/span.h"

namespace tessera::ir {

struct OpUsage {
  std::string_view name;      // on the wire and in text
  std::string_view operands;  // as people call them: "x, y"; "..." stands for more
  std::string_view sentence;
};
// In the order of AllOps().
absl::Span<const OpUsage> OpUsages();

// The tables of docs/programs.md, one per family.
std::string OpsMarkdown();

// What is said of a name that no op has: "; did you mean exponential? docs/programs.md lists the
// ops". lax's names are known, too.
std::string WhichOps(std::string_view unknown);

}  // namespace tessera::ir
