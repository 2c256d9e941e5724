// The op debug_print. It has no results; evaluating it reports the values of its operands.
//
// A program that is sent to a server never contains debug_print, and the op is not in the table of
// ops. The client first splits the printing part off (PartialEval with `hold_effects`) and
// evaluates that part itself, using results of the remaining program. Reference:
// docs/decisions/0026.
#pragma once
#include <string>
#include <string_view>

#include "ir/builder.h"

namespace tessera::ir {

// Emits an op that prints `values` by `format` when it runs; the replacement fields "{}" in
// `format` stand for the values. In a batch it prints once for each member, and in a shard_map once
// on each device. A wrong `format` is not an error here, because `format` is not read until the op
// runs.
void DebugPrint(Builder& b, std::string format, Values values);

// The format of the line that replaces loop iterations which are not printed. The field in it shows
// their number.
inline constexpr std::string_view kIterationsLeftOut =
    "... and {} more iterations of this loop, then its last:";

}  // namespace tessera::ir
