// How the transforms apply the rules of ops: an op as its rules see it, and the casts that give a
// derivative the type that it must have. Internal to ir/. Functions throw StatusException.
// Stateless; thread-safe.
#pragma once
#include <vector>

#include "ir/builder.h"
#include "ir/op_def.h"
#include "ir/program.h"

namespace tessera::ir::walk {

// Returns `op` of `f` as its rules see it, with operands and results mapped into `b`.
RuleContext RuleContextOf(Builder& b, const Function& f, const Op& op, std::vector<Value> in,
                          std::vector<Value> out);
// Emits `op` on mapped operands.
std::vector<Value> EmitPlain(Builder& b, const Op& op, Values in);

// MatchTangent casts `v` to the manual axes type of `want`: by `pvary` over axes along which only
// `want` varies, and by `psum` over axes along which only `v` varies (the transpose of an implicit
// pvary). MatchCotangent does so for the type of the cotangents of `primal`. An absent `v` stays
// absent.
Value MatchTangent(Value v, const Type& want);
Value MatchCotangent(Value v, const Type& primal);

}  // namespace tessera::ir::walk
