// The transform that takes the effects out of a program, so that the program can be sent: the
// values that the effects read become results of the program. Stateless; thread-safe.
#pragma once
#include "absl/status/statusor.h"
#include "ir/program.h"
#include "ir/transform/effect_record.h"

namespace tessera::ir {

// A function without effects, whose last results are the record of the effects that the original
// function has. EffectReplay has the effects.
struct FunctionWithRecord {
  FunctionRef function;
  RecordedEffects effects;
};
// Records the effects of `f`, an entry function without derivative rules (DropRules in
// transform.h).
//
// An op with an effect that stands in a loop gets a log: a counter, and for each operand an array
// with a row for each run of the op. The loops carry the log. A run of the op writes the row that
// the counter gives, so an op in a branch takes a row only in those iterations in which it runs. An
// operand that is the same in all iterations is no part of the log, but a result of its own.
//
// Errors: NOT_IMPLEMENTED for an effect in the predicate of a loop, or in a function of scalars
// such as a comparator.
absl::StatusOr<FunctionWithRecord> RecordEffects(const Function& f,
                                                 const RecordLimits& limits = {});

}  // namespace tessera::ir
