// The part of closure_convert that is no template: traces the function once, and splits its
// captures into hoisted values and values that stay captured.
#include "client/transform/closure_convert.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/apply/apply.h"
#include "client/apply/operand.h"
#include "ir/ops.h"

namespace tessera::internal {
namespace {

// Returns `a` as an argument of type `want`, made weakly typed if `want` is weak. Throws if the
// types differ in anything else.
Array CheckedArgument(const Array& a, const Type& want, const std::string& path, const Site& site) {
  ThrowIfNoValue(a, site);
  const Type& got = a.type();
  if (!ir::EqualButWeak(got, want)) {
    const std::string hint = PcastHint(got, want);
    ThrowError(ErrorKind::kTypeError, site, "closure_convert: ", path, " has type ", got.ToString(),
               ", but the function was converted for ", want.ToString(),
               hint.empty() ? ". Call closure_convert with an example of this type"
                            : absl::StrCat(". Apply ", hint, " to it"));
  }
  if (got.weak == want.weak) return a;
  return Apply1("convert", site, {a}, [&](ir::Builder&, const std::vector<ir::Value>& in) {
    return ConvertTo(in[0], {want.dtype, want.weak});
  });
}

}  // namespace

ClosureFlat ConvertClosure(const FlatArgs& args, const Site& site, FlatBody body) {
  auto closure = std::make_shared<Closure>();
  closure->args = args.tree;
  closure->types = TypesOf(args.leaves);
  closure->site = site;
  if (CurrentFrame()) {
    TracedFunction n = TraceFlat(CurrentScope(), closure->types, "closure_convert", site, body);
    closure->fn = std::move(n.fn);
    closure->captures = std::move(n.captures);
  } else {
    std::vector<Array> abstract;
    for (const Type& type : closure->types) abstract.push_back(abstract_of(type));
    TracedProgram traced = TraceProgram("closure_convert", site, abstract, body, args.leaves);
    closure->fn = traced.fn();
    closure->captures = std::move(traced.captures);
  }
  ClosureFlat out;
  for (Array& a : closure->captures) {
    if (!AsTraced(a) || !ir::IsInexact(a.dtype())) continue;
    closure->types.push_back(a.type());
    out.hoisted.push_back(std::exchange(a, Array()));
  }
  out.closure = std::move(closure);
  return out;
}

// Checks the arguments against the recorded types, and puts the hoisted values in the places of the
// captures that they replace. The recorded function is inlined or run; the user's function is not
// called again.
std::vector<Array> CallClosure(const Closure& closure, const FlatArgs& args,
                               const std::vector<Array>& hoisted) {
  const Site& site = closure.site;
  CheckSameStructure(closure.args, args.tree, "args", ErrorKind::kTypeError,
                     "The inputs to the closure produced by closure_convert must have the same "
                     "Pytree structure as the example arguments passed when closure_convert was "
                     "called; ",
                     site);
  const size_t num_args = args.leaves.size(), expected = closure.types.size() - num_args;
  if (hoisted.size() != expected) {
    ThrowError(
        ErrorKind::kTypeError, site, "closure_convert: the function is called with ",
        hoisted.size(), " hoisted values, but ", expected,
        " are expected: the values that closure_convert returned, or others of the same types");
  }
  std::vector<Array> all = Concat(args.leaves, closure.captures);
  return InProgram("closure_convert", site, Concat(args.leaves, hoisted), [&] {
    const std::vector<std::string> paths = args.paths();
    for (size_t i = 0; i < num_args; ++i)
      all[i] = CheckedArgument(all[i], closure.types[i], paths[i], site);
    size_t next = 0;
    for (size_t i = num_args; i < all.size(); ++i) {
      if (all[i].valid()) continue;
      all[i] = CheckedArgument(hoisted[next], closure.types[num_args + next],
                               absl::StrCat("hoisted[", next, "]"), site);
      ++next;
    }
    return CallFunction(closure.fn, all, "closure_convert", site);
  });
}

}  // namespace tessera::internal
