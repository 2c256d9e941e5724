// The op debug_print: it has no results, and tells whoever evaluates it its operands.
//
// No program that is sent has one, and it is not in the op table: the client splits what is printed
// off first (PartialEval with `hold_effects`), and evaluates that part itself, on results of the
// rest.
#pragma once
#include <string>
#include <string_view>

#include "ir/builder.h"

namespace tessera::ir {

// Prints `values` by `format`, whose replacement fields "{}" name them, when it runs; in a batch,
// once for each member, and in a shard_map on each device. Errors: none, `format` is not looked at.
void DebugPrint(Builder& b, std::string format, Values values);

// The format of the line that stands for turns of a loop which are not told; it shows their number.
inline constexpr std::string_view kTurnsLeftOut =
    "... and {} more iterations of this loop, then its last:";

}  // namespace tessera::ir
