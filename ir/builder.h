// Builds functions; there is no other way to make a program. The builder infers the type of every
// op, checks it, and records the caller's file and line.
//
// `Emit` is strict: it inserts no casts. The functions of ops.h insert the implicit casts that
// users and rules rely on. A Builder belongs to one thread. Errors are thrown as StatusException,
// which never leaves ir's public functions (docs/decisions/0001): wrap calls in CatchStatus.
#pragma once
#include <deque>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/site.h"
#include "ir/program.h"
#include "ir/value.h"

namespace tessera::ir {

class Builder {
 public:
  explicit Builder(Scope scope, std::string name = "main");
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  const Scope& scope() const { return f_.scope; }
  const Mesh& mesh() const { return f_.scope.mesh; }
  // Adds a param. Params may be added at any time; Build() moves them to the front in the order in
  // which they were added.
  Value Param(Type type);
  // Infers the result types, checks them and appends the op. Throws errors that name the op and the
  // current source location.
  std::vector<Value> Emit(const OpDef& def, Values operands, Attrs attrs = {},
                          std::vector<FunctionRef> regions = {});
  // Like Emit, for an op with one result.
  Value Emit1(const OpDef& def, Values operands, Attrs attrs = {},
              std::vector<FunctionRef> regions = {});
  // The site that emitted ops get until SetSite changes it.
  const Site& site() const { return site_; }
  void SetSite(const Site& site) { site_ = site; }
  // Returns a reference that stays valid as long as the builder lives.
  const Type& type(ValueId id) const { return types_[id]; }
  int num_ops() const { return static_cast<int>(f_.ops.size()); }
  // Returns the op that made `v`, or null if `v` is a param.
  const Op* DefiningOp(Value v) const;
  // Finishes the function and drops dead ops that have no effects. Leaves the builder empty.
  FunctionRef Build(Values results);

 private:
  Function f_;  // the function so far; until Build its types are in types_
  std::deque<Type> types_;
  std::vector<ValueId> params_;
  std::vector<int> def_of_;  // per value: the index of its op, or -1 for a param
  Site site_;
};

// Sets a builder's site for a scope, if the new site is valid, and restores the previous one at the
// end.
class SiteScope {
 public:
  SiteScope(Builder& b, const Site& site) : b_(b), saved_(b.site()) {
    if (site.valid()) b_.SetSite(site);
  }
  ~SiteScope() { b_.SetSite(saved_); }

 private:
  Builder& b_;
  Site saved_;
};

// Copies the body of `f` into `b`, under b's mapped axes, with `args` in place of its params, and
// returns its results. The ops keep the sites that they have in `f`. Requires: one arg for each
// param, with the same type except for `weak`.
std::vector<Value> Inline(Builder& b, const Function& f, Values args);
// Returns the types of `values`.
std::vector<Type> TypesOf(Values values);
// Runs the op's inference, sharding and varying rules on operand types and returns the result types
// that Emit would give the op.
absl::StatusOr<std::vector<Type>> InferTypes(const OpDef& def, const Scope& scope,
                                             absl::Span<const Type> in, const Attrs& attrs,
                                             absl::Span<const FunctionRef> regions);

}  // namespace tessera::ir
