// Emits the ops of functions of arrays. Every op of a program is emitted by a function that calls
// Apply, Apply1 or ApplyArgs (operand.h).
//
// An op goes into the function that this thread records (client/trace/trace.h). Outside any trace,
// a program of the op is recorded, compiled and run at once. All throw tessera::Error. Used by the
// SDK only.
#pragma once
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "client/array.h"
#include "ir/builder.h"

namespace tessera::internal {

// Calls `body` in the current frame. Outside any trace, records `body` as a program, runs the
// program and returns its concrete results.
std::vector<Array> InProgram(std::string_view name, const Site& site,
                             const std::vector<Array>& inputs,
                             absl::FunctionRef<std::vector<Array>()> body);

// Emits one or more ops. The operands are lifted into the current frame, or into a new program.
using EmitFn = absl::FunctionRef<std::vector<ir::Value>(ir::Builder&, std::vector<ir::Value>)>;
std::vector<Array> Apply(std::string_view name, const Site& site, const std::vector<Array>& inputs,
                         EmitFn emit);
// Like Apply, but for an op with one result.
using Emit1Fn = absl::FunctionRef<ir::Value(ir::Builder&, std::vector<ir::Value>)>;
Array Apply1(std::string_view name, const Site& site, const std::vector<Array>& inputs,
             Emit1Fn emit);

// Calls `f`, a function of arrays such as take, on values inside an `emit`. Returns the value of
// the result of `f`.
ir::Value CallOnValues(const std::vector<ir::Value>& values, const Site& site,
                       absl::FunctionRef<Array(const std::vector<Array>&)> f);

// Returns whether this thread is recording a function.
bool IsTracing();

}  // namespace tessera::internal
