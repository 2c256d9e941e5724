#include "client/control_flow.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "client/operand.h"
#include "ir/ops.h"

namespace tessera::internal {
namespace {

// `type` that varies where either does.
Type UnionOfVarying(Type type, const Type& other) {
  type.varying.insert(other.varying.begin(), other.varying.end());
  return type;
}

int64_t ScanLength(const ScanFlat& call, const Site& site) {
  int64_t length = call.length;
  for (size_t i = 0; i < call.xs.leaves.size(); ++i) {
    const Type& t = call.xs.leaves[i].type();
    if (t.rank() == 0) {
      ThrowError(ErrorKind::kValueError, site,
                 "scan got value with no leading axis to scan over: ", call.xs.path(i), " is ",
                 t.ToString());
    }
    if (call.length >= 0 && call.length != t.shape[0]) {
      ThrowError(ErrorKind::kValueError, site, "scan got `length` argument of ", call.length,
                 " which disagrees with leading axis sizes: ", call.xs.path(i), " is ",
                 t.ToString());
    }
    if (length >= 0 && length != t.shape[0]) {
      ThrowError(ErrorKind::kValueError, site,
                 "scan got values with different leading axis sizes: ", call.xs.path(i), " is ",
                 t.ToString(), " but ", length, " steps are expected");
    }
    length = t.shape[0];
  }
  if (length < 0) {
    ThrowError(ErrorKind::kValueError, site,
               "scan: xs holds no array, so the number of steps must be given as length");
  }
  return length;
}

void CheckCarry(std::string_view what, const FlatArgs& carry, const ir::Function& f,
                const Site& site) {
  std::string wrong;
  for (size_t i = 0; i < carry.leaves.size(); ++i) {
    const Type &in = carry.leaves[i].type(), &out = f.type(f.results[i]);
    if (ir::EqualButWeak(in, out)) continue;
    const std::string hint = PcastHint(in, out);
    absl::StrAppend(&wrong, "\n  * the input carry component ", carry.path(i), " has type ",
                    in.ToString(), " but the corresponding output carry component has type ",
                    out.ToString());
    if (!hint.empty()) {
      absl::StrAppend(&wrong,
                      ", so the varying manual axes do not match. This might be fixed by "
                      "applying ",
                      hint, " to the initial carry value corresponding to ", carry.path(i));
    }
  }
  if (!wrong.empty()) {
    ThrowError(ErrorKind::kTypeError, site, ToAbsl(what),
               " function carry input and carry output must have equal types (e.g. "
               "shapes and dtypes of arrays), but they differ:",
               wrong);
  }
}

// The function with its captures as the first params: as an op wants its constants.
ir::FunctionRef CapturesFirst(const Nested& n, const Site& site) {
  std::vector<int> order;
  const int declared = n.fn->num_params - static_cast<int>(n.captures.size());
  for (int i = declared; i < n.fn->num_params; ++i) order.push_back(i);
  for (int i = 0; i < declared; ++i) order.push_back(i);
  return ConvertExceptions(site, [&] { return ReorderParams(*n.fn, order); });
}

}  // namespace

std::vector<Array> RunScan(const ScanFlat& call, const Site& site, FlatBody body) {
  const int64_t length = ScanLength(call, site);
  const std::vector<Array> args = Concat(call.carry.leaves, call.xs.leaves);
  return InProgram("scan", site, args, [&] {
    std::vector<Type> params = TypesOf(call.carry.leaves);
    for (const Array& x : call.xs.leaves) params.push_back(WithoutDim(x.type(), 0));
    const Nested n = TraceFlat(CurrentScope(), params, "scan", site, body);
    CheckCarry("scan", call.carry, *n.fn, site);
    const ir::FunctionRef fn = CapturesFirst(n, site);
    return Apply(
        "scan", site, Concat(n.captures, args), [&](ir::Builder& b, std::vector<ir::Value> in) {
          return ir::Scan(b, fn, in, static_cast<int>(n.captures.size()),
                          static_cast<int>(call.carry.leaves.size()), length, call.reverse);
        });
  });
}

std::vector<Array> RunWhile(const FlatArgs& carry, const Site& site, FlatBody predicate,
                            FlatBody body) {
  return InProgram("while_loop", site, carry.leaves, [&] {
    const std::vector<Type> params = TypesOf(carry.leaves);
    const Nested p = TraceFlat(CurrentScope(), params, "cond_fun", site, predicate);
    const Type& holds = p.fn->type(p.fn->results[0]);
    if (holds.rank() != 0 || holds.dtype != DType::kBool) {
      ThrowError(ErrorKind::kTypeError, site,
                 "while_loop: cond_fun must return a boolean scalar, but got output type ",
                 holds.ToString());
    }
    const Nested n = TraceFlat(CurrentScope(), params, "body_fun", site, body);
    CheckCarry("while_loop body", carry, *n.fn, site);
    const ir::FunctionRef predicate_fn = CapturesFirst(p, site), body_fn = CapturesFirst(n, site);
    return Apply("while_loop", site, Concat(Concat(p.captures, n.captures), carry.leaves),
                 [&](ir::Builder& b, std::vector<ir::Value> in) {
                   return ir::While(b, predicate_fn, body_fn, in,
                                    static_cast<int>(p.captures.size()),
                                    static_cast<int>(n.captures.size()));
                 });
  });
}

namespace {

void CheckBranches(const char* name, const std::vector<Nested>& branches,
                   absl::FunctionRef<std::vector<std::string>()> out_paths, const Site& site) {
  const std::vector<Type> first = branches[0].fn->result_types();
  std::string wrong;
  for (size_t k = 1; k < branches.size(); ++k) {
    const std::vector<Type> other = branches[k].fn->result_types();
    for (size_t r = 0; r < first.size(); ++r) {
      if (ir::EqualButWeak(first[r], other[r])) continue;
      absl::StrAppend(&wrong, "\n  * ", out_paths()[r], " has type ", first[r].ToString(),
                      " of branch 0 and ", other[r].ToString(), " of branch ", k);
      const std::string hints[] = {PcastHint(first[r], UnionOfVarying(first[r], other[r])),
                                   PcastHint(other[r], UnionOfVarying(other[r], first[r]))};
      if (hints[0].empty() && hints[1].empty()) continue;
      wrong += ", so the varying manual axes do not match";
      for (int i : {0, 1})
        if (!hints[i].empty())
          absl::StrAppend(&wrong, ". This might be fixed by applying ", hints[i],
                          " to the output of branch ", i == 0 ? 0 : k);
    }
  }
  if (!wrong.empty()) {
    ThrowError(ErrorKind::kTypeError, site, name,
               " branches must have equal output types but they differ:", wrong);
  }
}

}  // namespace

std::vector<Array> RunBranches(const char* name, const Array& index, const FlatArgs& args,
                               const Site& site, const std::vector<FlatBody>& branches,
                               absl::FunctionRef<std::vector<std::string>()> out_paths) {
  const std::vector<Array> inputs = Concat({index}, args.leaves);
  return InProgram(name, site, inputs, [&] {
    const std::vector<Type> params = TypesOf(args.leaves);
    std::vector<Nested> nested;
    std::vector<Array> operands = inputs;
    for (const FlatBody& branch : branches) {
      nested.push_back(TraceFlat(CurrentScope(), params, name, site, branch));
      operands = Concat(operands, nested.back().captures);
    }
    CheckBranches(name, nested, out_paths, site);
    // Every branch takes the captures of all.
    std::vector<ir::FunctionRef> fns;
    for (size_t k = 0; k < nested.size(); ++k)
      fns.push_back(ConvertExceptions(site, [&] {
        ir::Builder b(nested[k].fn->scope, name);
        std::vector<ir::Value> in;
        for (const Type& t : params) in.push_back(b.Param(t));
        for (size_t j = 0; j < nested.size(); ++j)
          for (size_t i = params.size(); i < static_cast<size_t>(nested[j].fn->num_params); ++i) {
            const ir::Value capture = b.Param(nested[j].fn->types[i]);
            if (j == k) in.push_back(capture);
          }
        return b.Build(ir::Inline(b, *nested[k].fn, in));
      }));
    return Apply(name, site, operands, [&](ir::Builder&, std::vector<ir::Value> in) {
      return ir::Case(in[0], fns, absl::MakeConstSpan(in).subspan(1));
    });
  });
}

ForiBounds CheckedBounds(const Arg& lower, const Arg& upper) {
  ForiBounds out;
  out.site = lower.site;
  for (const Arg* bound : {&lower, &upper}) {
    const bool integer =
        bound->kind == Arg::kInteger || (bound->kind == Arg::kArray && bound->array->rank() == 0 &&
                                         ir::IsInteger(bound->array->dtype()));
    if (!integer) {
      ThrowError(ErrorKind::kTypeError, bound->site,
                 "fori_loop: a bound must be an integer scalar, got ",
                 bound->kind == Arg::kArray ? bound->array->type().ToString()
                                            : absl::StrCat(bound->number));
    }
    if (bound->kind == Arg::kInteger && (bound->integer < std::numeric_limits<int32_t>::min() ||
                                         bound->integer > std::numeric_limits<int32_t>::max())) {
      ThrowError(ErrorKind::kValueError, bound->site, "fori_loop: the bound ", bound->integer,
                 " is beyond what an s32 holds; give it as an array of s64");
    }
  }
  const Arg& like = lower.array ? lower : upper;
  const DType dtype = like.array ? like.array->dtype() : DType::kS32;
  const auto array_of = [&](const Arg& bound) {
    return bound.array
               ? *bound.array
               : FullArray(ir::MakeType(dtype, {}), static_cast<double>(bound.integer), bound.site);
  };
  out.lower = array_of(lower);
  out.upper = array_of(upper);
  if (!like.array) out.count = std::max<int64_t>(upper.integer - lower.integer, 0);
  return out;
}

Array IndexOfPredicate(const Arg& pred) {
  return ApplyArgs("cond", {pred}, Operands::kStrict, [&](ir::Builder&, std::vector<ir::Value> in) {
    const ir::Value p = in[0];
    if (p.rank() != 0) {
      ThrowError(ErrorKind::kTypeError, pred.site, "cond: Pred must be a scalar, got ",
                 p.type().ToString());
    }
    const bool holds = p.dtype() == DType::kBool;
    return ir::Convert(holds ? p : ir::Compare(p, ir::FullLike(p, 0), "NE"), DType::kS32);
  });
}

Array IndexOfBranch(const Arg& index, size_t size) {
  return ApplyArgs("switch", {index}, Operands::kStrict,
                   [&](ir::Builder&, std::vector<ir::Value> in) {
                     ir::Value i = in[0];
                     if (i.rank() != 0 || !ir::IsInteger(i.dtype())) {
                       ThrowError(ErrorKind::kTypeError, index.site,
                                  "switch: Index type must be an integer, of a scalar, got ",
                                  i.type().ToString());
                     }
                     if (ir::ByteWidth(i.dtype()) < ir::ByteWidth(DType::kS32))
                       i = ir::Convert(i, DType::kS32);
                     const ir::Value first = ir::FullLike(i, 0);
                     const ir::Value last = ir::FullLike(i, static_cast<double>(size - 1));
                     return ir::Convert(ir::Clamp(first, i, last), DType::kS32);
                   });
}

}  // namespace tessera::internal
