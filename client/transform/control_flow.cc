// The part of loops and branches that is no template: traces the bodies, checks that their types
// fit, and emits scan, while and case ops. A region of these ops is closed, so captures become
// operands.
#include "client/transform/control_flow.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "client/apply/apply.h"
#include "client/apply/operand.h"
#include "client/trace/strict.h"
#include "ir/ops.h"

namespace tessera::internal {
namespace {

// Returns `type`, varying along every axis along which `type` or `other` varies.
Type UnionOfVarying(Type type, const Type& other) {
  type.varying.insert(other.varying.begin(), other.varying.end());
  return type;
}

// Returns the number of steps. Throws unless the given length and the leading dims of all arrays in
// xs agree. The error texts are JAX's.
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
  std::string mismatches;
  for (size_t i = 0; i < carry.leaves.size(); ++i) {
    const Type &in = carry.leaves[i].type(), &out = f.type(f.results[i]);
    if (ir::EqualButWeak(in, out)) continue;
    const std::string hint = PcastHint(in, out);
    absl::StrAppend(&mismatches, "\n  * the input carry component ", carry.path(i), " has type ",
                    in.ToString(), " but the corresponding output carry component has type ",
                    out.ToString());
    if (!hint.empty()) {
      absl::StrAppend(&mismatches,
                      ", so the varying manual axes do not match. This might be fixed by "
                      "applying ",
                      hint, " to the initial carry value corresponding to ", carry.path(i));
    }
  }
  if (!mismatches.empty()) {
    ThrowError(ErrorKind::kTypeError, site, ToAbsl(what),
               " function carry input and carry output must have equal types (e.g. "
               "shapes and dtypes of arrays), but they differ:",
               mismatches);
  }
}

// Returns the function with its captures as the first params, where the ops expect constants.
ir::FunctionRef CapturesFirst(const TracedFunction& n, const Site& site) {
  std::vector<int> order;
  const int declared = n.fn->num_params - static_cast<int>(n.captures.size());
  for (int i = declared; i < n.fn->num_params; ++i) order.push_back(i);
  for (int i = 0; i < declared; ++i) order.push_back(i);
  return ConvertExceptions(site, [&] { return ReorderParams(*n.fn, order); });
}

}  // namespace

namespace {

// Returns a function that takes `count` steps of a scan. The function takes the constants, the
// carry, and a block of `count` rows of each of xs. It returns the carry and a block of `count`
// rows of each of ys.
ir::FunctionRef MergeSteps(const ir::Function& step, int num_consts, int num_carry, int64_t count,
                           bool reverse) {
  ir::Builder b(step.scope, step.name);
  std::vector<ir::Value> consts, carry, xs;
  for (int i = 0; i < step.num_params; ++i) {
    Type type = step.types[i];
    if (i < num_consts) {
      consts.push_back(b.Param(type));
    } else if (i < num_consts + num_carry) {
      carry.push_back(b.Param(type));
    } else {
      xs.push_back(b.Param(WithLeadingDim(std::move(type), count)));
    }
  }
  std::vector<std::vector<ir::Value>> ys(step.results.size() - num_carry);
  for (int64_t k = 0; k < count; ++k) {
    const int64_t at = reverse ? count - 1 - k : k;
    std::vector<ir::Value> in = consts;
    in.insert(in.end(), carry.begin(), carry.end());
    for (const ir::Value& x : xs) in.push_back(ir::Squeeze(ir::SliceInDim(x, 0, at, at + 1), {0}));
    const std::vector<ir::Value> out = ir::Inline(b, step, in);
    carry.assign(out.begin(), out.begin() + num_carry);
    for (size_t i = 0; i < ys.size(); ++i) {
      const ir::Value row = ir::ExpandDims(out[num_carry + i], {0});
      ys[i].insert(reverse ? ys[i].begin() : ys[i].end(), row);
    }
  }
  for (const std::vector<ir::Value>& rows : ys) carry.push_back(ir::Concatenate(rows, 0));
  return b.Build(carry);
}

// Scans like ir::Scan, but takes `unroll` steps in each turn of the loop, and the remaining steps
// after the loop. Operands are the constants, the carry, then xs; results are the carry, then ys.
std::vector<ir::Value> UnrolledScan(ir::Builder& b, const ir::FunctionRef& step,
                                    const std::vector<ir::Value>& operands, int num_consts,
                                    int num_carry, int64_t length, bool reverse, int64_t unroll) {
  const int64_t num_turns = length / unroll, num_rest = length % unroll,
                num_looped = num_turns * unroll;
  // A reverse scan takes the first rows last, so these rows remain after the loop.
  const int64_t first_looped = reverse ? num_rest : 0, first_rest = reverse ? 0 : num_looped;
  const std::vector<ir::Value> consts(operands.begin(), operands.begin() + num_consts);
  std::vector<ir::Value> carry(operands.begin() + num_consts,
                               operands.begin() + num_consts + num_carry);
  const std::vector<ir::Value> xs(operands.begin() + num_consts + num_carry, operands.end());
  const auto operands_with = [&](std::vector<ir::Value> rows) {
    std::vector<ir::Value> in = consts;
    in.insert(in.end(), carry.begin(), carry.end());
    in.insert(in.end(), rows.begin(), rows.end());
    return in;
  };
  const ir::FunctionRef steps = MergeSteps(*step, num_consts, num_carry, unroll, reverse);
  std::vector<ir::Value> rows;
  for (const ir::Value& x : xs) {
    const ir::Value part = ir::SliceInDim(x, 0, first_looped, first_looped + num_looped);
    Dims shape = part.shape();
    shape[0] = unroll;
    if (num_turns > 1) shape.insert(shape.begin(), num_turns);
    rows.push_back(ir::Reshape(part, shape));
  }
  std::vector<ir::Value> out = num_turns > 1 ? ir::Scan(b, steps, operands_with(rows), num_consts,
                                                        num_carry, num_turns, reverse)
                                             : ir::Inline(b, *steps, operands_with(rows));
  carry.assign(out.begin(), out.begin() + num_carry);
  std::vector<ir::Value> ys(out.begin() + num_carry, out.end());
  for (ir::Value& y : ys) {
    if (num_turns == 1) continue;
    Dims shape = y.shape();
    shape.erase(shape.begin());
    shape[0] = num_looped;
    y = ir::Reshape(y, shape);
  }
  if (num_rest > 0) {
    rows.clear();
    for (const ir::Value& x : xs)
      rows.push_back(ir::SliceInDim(x, 0, first_rest, first_rest + num_rest));
    out = ir::Inline(b, *MergeSteps(*step, num_consts, num_carry, num_rest, reverse),
                     operands_with(rows));
    carry.assign(out.begin(), out.begin() + num_carry);
    for (size_t i = 0; i < ys.size(); ++i) {
      const ir::Value last = out[num_carry + i];
      ys[i] = reverse ? ir::Concatenate({last, ys[i]}, 0) : ir::Concatenate({ys[i], last}, 0);
    }
  }
  carry.insert(carry.end(), ys.begin(), ys.end());
  return carry;
}

}  // namespace

std::vector<Array> RunScan(const ScanFlat& call, const Site& site, FlatBody body) {
  const int64_t length = ScanLength(call, site);
  if (call.unroll < 0) {
    ThrowError(ErrorKind::kValueError, site,
               "scan: `unroll` must be a `bool` or a non-negative `int`, got ", call.unroll);
  }
  const int64_t unroll = call.unroll == 0 ? length : std::min(call.unroll, length);
  const std::vector<Array> args = Concat(call.carry.leaves, call.xs.leaves);
  return InProgram("scan", site, args, [&] {
    std::vector<Type> params = TypesOf(call.carry.leaves);
    for (const Array& x : call.xs.leaves) params.push_back(WithoutDim(x.type(), 0));
    const TracedFunction n = TraceFlat(CurrentScope(), params, "scan", site, body);
    CheckCarry("scan", call.carry, *n.fn, site);
    const ir::FunctionRef fn = CapturesFirst(n, site);
    return Apply(
        "scan", site, Concat(n.captures, args), [&](ir::Builder& b, std::vector<ir::Value> in) {
          const auto num_consts = static_cast<int>(n.captures.size());
          const auto num_carry = static_cast<int>(call.carry.leaves.size());
          if (unroll > 1)
            return UnrolledScan(b, fn, in, num_consts, num_carry, length, call.reverse, unroll);
          return ir::Scan(b, fn, in, num_consts, num_carry, length, call.reverse);
        });
  });
}

std::vector<Array> RunWhile(const FlatArgs& carry, const Site& site, FlatBody predicate,
                            FlatBody body) {
  return InProgram("while_loop", site, carry.leaves, [&] {
    const std::vector<Type> params = TypesOf(carry.leaves);
    const TracedFunction p = TraceFlat(CurrentScope(), params, "cond_fun", site, predicate);
    const Type& predicate_type = p.fn->type(p.fn->results[0]);
    if (predicate_type.rank() != 0 || predicate_type.dtype != DType::kBool) {
      ThrowError(ErrorKind::kTypeError, site,
                 "while_loop: cond_fun must return a boolean scalar, but got output type ",
                 predicate_type.ToString());
    }
    const TracedFunction n = TraceFlat(CurrentScope(), params, "body_fun", site, body);
    CheckCarry("while_loop body", carry, *n.fn, site);
    CheckPredicate("while_loop", predicate_type, {p.fn, n.fn}, site);
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

void CheckBranches(const char* name, const std::vector<TracedFunction>& branches,
                   absl::FunctionRef<std::vector<std::string>()> out_paths, const Site& site) {
  const std::vector<Type> first = branches[0].fn->result_types();
  std::string mismatches;
  for (size_t k = 1; k < branches.size(); ++k) {
    const std::vector<Type> other = branches[k].fn->result_types();
    for (size_t r = 0; r < first.size(); ++r) {
      if (ir::EqualButWeak(first[r], other[r])) continue;
      absl::StrAppend(&mismatches, "\n  * ", out_paths()[r], " has type ", first[r].ToString(),
                      " in branch 0 and ", other[r].ToString(), " in branch ", k);
      const std::string hints[] = {PcastHint(first[r], UnionOfVarying(first[r], other[r])),
                                   PcastHint(other[r], UnionOfVarying(other[r], first[r]))};
      if (hints[0].empty() && hints[1].empty()) continue;
      mismatches += ", so the varying manual axes do not match";
      for (int i : {0, 1})
        if (!hints[i].empty())
          absl::StrAppend(&mismatches, ". This might be fixed by applying ", hints[i],
                          " to the output of branch ", i == 0 ? 0 : k);
    }
  }
  if (!mismatches.empty()) {
    ThrowError(ErrorKind::kTypeError, site, name,
               " branches must have equal output types but they differ:", mismatches);
  }
}

}  // namespace

// Traces all branches, because the index that selects one is known only when the program runs. The
// branches of a case op have common operands, so every branch gets the captures of all as params.
std::vector<Array> RunBranches(const char* name, const Array& index, const FlatArgs& args,
                               const Site& site, const std::vector<FlatBody>& branches,
                               absl::FunctionRef<std::vector<std::string>()> out_paths) {
  const std::vector<Array> inputs = Concat({index}, args.leaves);
  return InProgram(name, site, inputs, [&] {
    const std::vector<Type> params = TypesOf(args.leaves);
    std::vector<TracedFunction> nested;
    std::vector<Array> operands = inputs;
    for (const FlatBody& branch : branches) {
      nested.push_back(TraceFlat(CurrentScope(), params, name, site, branch));
      operands = Concat(operands, nested.back().captures);
    }
    CheckBranches(name, nested, out_paths, site);
    // Every branch takes the captures of all branches.
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
    CheckPredicate(name, index.type(), fns, site);
    return Apply(name, site, operands, [&](ir::Builder&, std::vector<ir::Value> in) {
      return ir::Case(in[0], fns, absl::MakeConstSpan(in).subspan(1));
    });
  });
}

// Brings both bounds to one dtype. Two numbers give a count, so that the caller can use scan, which
// can be differentiated in reverse.
ForiBounds CheckedBounds(const Arg& lower, const Arg& upper) {
  ForiBounds out;
  out.site = lower.site;
  for (const Arg* bound : {&lower, &upper}) {
    const bool is_integer =
        bound->kind == Arg::kInteger || (bound->kind == Arg::kArray && bound->array->rank() == 0 &&
                                         ir::IsInteger(bound->array->dtype()));
    if (!is_integer) {
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
  // Arrays whose contents exist when the loop is traced are treated like numbers if an s32 can hold
  // them.
  const auto is_known = [](const Arg& bound) {
    if (!bound.array) return true;
    const DType d = bound.array->dtype();
    return !AsTraced(*bound.array) && d != DType::kU32 && ir::ByteWidth(d) <= 4;
  };
  const bool known = is_known(lower) && is_known(upper);
  const Arg& like = lower.array ? lower : upper;
  const DType dtype = like.array && !known ? like.array->dtype() : DType::kS32;
  const auto array_of = [&](const Arg& bound) {
    if (bound.array && !known) return *bound.array;
    std::vector<Array> in;
    if (bound.array) in.push_back(*bound.array);
    return Apply1("constant", bound.site, in, [&](ir::Builder& b, std::vector<ir::Value> v) {
      return ConvertTo(v.empty() ? Literal(b, bound, dtype) : v[0], {dtype, known});
    });
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
    const bool is_bool = p.dtype() == DType::kBool;
    return ir::Convert(is_bool ? p : ir::Compare(p, ir::FullLike(p, 0), "NE"), DType::kS32);
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

// ---- associative_scan, lax::map. ----

namespace {

using Arrays = std::vector<Array>;
using Combine = absl::FunctionRef<Arrays(const Arrays&, const Arrays&)>;

// Returns every `stride`-th element of each array along `axis`, from `start` on. The last
// `skip_last` elements of the arrays are left out.
Arrays SliceEach(const Arrays& xs, int axis, int64_t start, int64_t stride, int64_t skip_last,
                 const Site& site) {
  Arrays out;
  for (const Array& x : xs)
    out.push_back(Apply1("slice", site, {x}, [&](ir::Builder&, std::vector<ir::Value> in) {
      Dims from(x.rank(), 0), to = x.shape(), strides(x.rank(), 1);
      from[axis] = start;
      to[axis] -= skip_last;
      strides[axis] = stride;
      return ir::Slice(in[0], from, to, strides);
    }));
  return out;
}
Array Joined(const Arrays& parts, int axis, const Site& site) {
  return Apply1("concatenate", site, parts,
                [&](ir::Builder&, std::vector<ir::Value> in) { return ir::Concatenate(in, axis); });
}
// Returns arrays in which the elements of `even` and `odd` along `axis` alternate. `even` may have
// one element more than `odd`.
Arrays Interleaved(const Arrays& even, const Arrays& odd, int axis, const Site& site) {
  Arrays out;
  for (size_t i = 0; i < even.size(); ++i) {
    const int64_t pairs = odd[i].dim(axis), rest = even[i].dim(axis) - pairs;
    const Array first = SliceEach({even[i]}, axis, 0, 1, rest, site)[0];
    Array all =
        Apply1("interleave", site, {first, odd[i]}, [&](ir::Builder&, std::vector<ir::Value> in) {
          Dims one = first.shape();
          one.insert(one.begin() + axis + 1, 1);
          const ir::Value evens = ir::Reshape(in[0], one), odds = ir::Reshape(in[1], one);
          Dims both = first.shape();
          both[axis] *= 2;
          return ir::Reshape(ir::Concatenate({evens, odds}, axis + 1), both);
        });
    if (rest > 0) all = Joined({all, SliceEach({even[i]}, axis, pairs, 1, 0, site)[0]}, axis, site);
    out.push_back(all);
  }
  return out;
}

// Scans recursively: combines neighbours to pairs and scans the pairs, which gives the results at
// odd positions. The result at an even position is the result before it, combined with the element
// of xs at this position.
Arrays ScanByPairs(const Arrays& xs, int axis, const Site& site, Combine combine) {
  const int64_t n = xs[0].dim(axis);
  if (n < 2) return xs;
  const Arrays left = SliceEach(xs, axis, 0, 2, 1, site),
               right = SliceEach(xs, axis, 1, 2, 0, site);
  const Arrays odd = ScanByPairs(combine(left, right), axis, site, combine);
  Arrays even = SliceEach(xs, axis, 0, 1, n - 1, site);
  if (n > 2) {
    const Arrays before = n % 2 == 0 ? SliceEach(odd, axis, 0, 1, 1, site) : odd;
    const Arrays even_after_first = combine(before, SliceEach(xs, axis, 2, 2, 0, site));
    for (size_t i = 0; i < even.size(); ++i)
      even[i] = Joined({even[i], even_after_first[i]}, axis, site);
  }
  return Interleaved(even, odd, axis, site);
}

}  // namespace

// Checks the axis of every leaf, then scans recursively. A reverse scan is a scan of the reversed
// arrays.
std::vector<Array> AssociativeScanFlat(const FlatArgs& elems, bool reverse, int axis,
                                       const Site& site, Combine combine) {
  if (elems.leaves.empty()) return {};
  Arrays xs = elems.leaves;
  std::vector<int> axes;
  for (size_t i = 0; i < xs.size(); ++i) {
    const Type& type = xs[i].type();
    const int at = axis < 0 ? axis + type.rank() : axis;
    if (at < 0 || at >= type.rank()) {
      ThrowError(ErrorKind::kValueError, site, "associative_scan: axis ", axis,
                 " is out of bounds for ", elems.path(i), ", a ", type.ToString());
    }
    if (type.shape[at] != xs[0].dim(axes.empty() ? at : axes[0])) {
      ThrowError(ErrorKind::kValueError, site,
                 "Array inputs to associative_scan must have the same first dimension. (saw: ",
                 xs[0].type().ToString(), " and ", type.ToString(), " along axis ", axis, ")");
    }
    axes.push_back(at);
  }
  // The axis must be the same dim of all arrays.
  const bool same_dim = std::all_of(axes.begin(), axes.end(), [&](int a) { return a == axes[0]; });
  if (!same_dim) {
    ThrowError(ErrorKind::kNotImplemented, site, "associative_scan: axis ", axis,
               " counts from the end of arrays of different ranks; give an axis that counts from "
               "the front");
  }
  return InProgram("associative_scan", site, xs, [&] {
    const auto flipped = [&](Arrays all) {
      for (Array& x : all)
        x = Apply1("reverse", site, {x}, [&](ir::Builder&, std::vector<ir::Value> in) {
          return ir::Reverse(in[0], {axes[0]});
        });
      return all;
    };
    return reverse ? flipped(ScanByPairs(flipped(xs), axes[0], site, combine))
                   : ScanByPairs(xs, axes[0], site, combine);
  });
}

int64_t LeadingSize(const FlatArgs& xs, const Site& site) {
  return ScanLength({{}, xs, -1, false}, site);
}

Array LeadingPart(const Array& x, int64_t first, int64_t last, int64_t row_size, const Site& site) {
  return Apply1("map", site, {x}, [&](ir::Builder&, std::vector<ir::Value> in) {
    const ir::Value part = ir::SliceInDim(in[0], 0, first, last);
    if (row_size == 0) return part;
    Dims shape = part.shape();
    shape[0] = row_size;
    shape.insert(shape.begin(), (last - first) / row_size);
    return ir::Reshape(part, shape);
  });
}

Array JoinedParts(const Array& parts, const Array& rest, const Site& site) {
  std::vector<Array> in = {parts};
  if (rest.valid()) in.push_back(rest);
  return Apply1("map", site, in, [&](ir::Builder&, std::vector<ir::Value> in) {
    Dims shape = in[0].shape();
    shape[1] *= shape[0];
    shape.erase(shape.begin());
    const ir::Value joined = ir::Reshape(in[0], shape);
    return in.size() == 1 ? joined : ir::Concatenate({joined, in[1]}, 0);
  });
}

}  // namespace tessera::internal
