// The op debug_print. It has no results; evaluating it reports the values of its operands.
//
// A program that is sent to a server never contains debug_print, and the op is not in the table of
// ops. The client first makes a program that returns a record of what is to be printed
// (RecordEffects), and prints from the record. Reference: docs/decisions/0026.
#pragma once
#include <string>

#include "ir/builder.h"

namespace tessera::ir {

// Emits an op that prints `values` by `format` when it runs; the replacement fields "{}" in
// `format` stand for the values. In a batch it prints once for each member, and in a shard_map once
// on each device. A wrong `format` is not an error here, because `format` is not read until the op
// runs.
void DebugPrint(Builder& b, std::string format, Values values);

}  // namespace tessera::ir
