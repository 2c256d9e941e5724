// numpy's functions: operands are promoted and broadcast (operand.h, reductions.h), then ops are
// emitted. Most other files of the SDK compute with these functions.
#include "client/numpy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/apply/apply.h"
#include "client/apply/dot.h"
#include "client/apply/operand.h"
#include "client/apply/reshard.h"
#include "client/numpy/reductions.h"
#include "client/sharding.h"
#include "ir/ops.h"

namespace tessera {
namespace {

using internal::Apply1;
using internal::ApplyArgs;
using internal::Binary;
using internal::BroadcastTo;
using internal::InexactOf;
using internal::KeptDims;
using internal::MeanOf;
using internal::NormalizeAxes;
using internal::NormalizeAxis;
using internal::NumReduced;
using internal::Operands;
using internal::RankOf;
using internal::Reduce;
using internal::ThrowError;
using internal::Unary;
using internal::UnaryInexact;
using ir::Value;
using Vs = std::vector<Value>;

Value ToBool(Value x) {
  return x.dtype() == DType::kBool ? x : ir::Compare(x, ir::FullLike(x, 0), "NE");
}

}  // namespace

// ---- Arithmetic. --------------------------------------------------------------------------------

Array operator-(const Arg& x) { return Unary("neg", x, ir::Neg); }
// For bools, + is a logical or, and * a logical and.
Array operator+(const Arg& x, const Arg& y) {
  return Binary("add", x, y, [](Value a, Value b) {
    return a.dtype() == DType::kBool ? ir::Or(a, b) : ir::Add(a, b);
  });
}
Array operator-(const Arg& x, const Arg& y) { return Binary("sub", x, y, ir::Sub); }
Array operator*(const Arg& x, const Arg& y) {
  return Binary("mul", x, y, [](Value a, Value b) {
    return a.dtype() == DType::kBool ? ir::And(a, b) : ir::Mul(a, b);
  });
}
Array operator/(const Arg& x, const Arg& y) {
  return Binary("div", x, y, ir::Div, InexactOf(internal::CommonDType({x, y})));
}

#define TESSERA_DEFINE_COMPARE(function, name, direction)                                     \
  Array function(const Arg& x, const Arg& y) {                                                \
    return Binary(name, x, y, [](Value a, Value b) { return ir::Compare(a, b, direction); }); \
  }
TESSERA_DEFINE_COMPARE(operator<, "lt", "LT")
TESSERA_DEFINE_COMPARE(operator<=, "le", "LE")
TESSERA_DEFINE_COMPARE(operator>, "gt", "GT")
TESSERA_DEFINE_COMPARE(operator>=, "ge", "GE")
TESSERA_DEFINE_COMPARE(equal, "eq", "EQ")
TESSERA_DEFINE_COMPARE(not_equal, "ne", "NE")
#undef TESSERA_DEFINE_COMPARE

Array maximum(const Arg& x, const Arg& y) { return Binary("max", x, y, ir::Max); }
Array minimum(const Arg& x, const Arg& y) { return Binary("min", x, y, ir::Min); }
Array power(const Arg& x, const Arg& y) { return Binary("pow", x, y, ir::Pow); }
Array remainder(const Arg& x, const Arg& y) {
  return Binary("rem", x, y, [](Value a, Value b) {
    const Value zero = ir::FullLike(b, 0);
    if (!ir::IsInexact(b.dtype())) {
      const Value by_zero = ir::Compare(b, zero, "EQ");
      b = ir::Select(by_zero, ir::FullLike(b, 1), b);
    }
    const Value r = ir::Rem(a, b);
    const Value r_negative = ir::Compare(r, zero, "LT");
    const Value signs_differ = ir::Compare(r_negative, ir::Compare(b, zero, "LT"), "NE");
    const Value not_zero = ir::Compare(r, zero, "NE");
    const Value adjust = ir::And(signs_differ, not_zero);
    return ir::Select(adjust, ir::Add(r, b), r);
  });
}
Array logical_and(const Arg& x, const Arg& y) {
  return Binary("and", x, y, [](Value a, Value b) {
    const Value left = ToBool(a);
    return ir::And(left, ToBool(b));
  });
}
Array logical_or(const Arg& x, const Arg& y) {
  return Binary("or", x, y, [](Value a, Value b) {
    const Value left = ToBool(a);
    return ir::Or(left, ToBool(b));
  });
}
Array logical_not(const Arg& x) {
  return Unary("not", x, [](Value v) { return ir::Not(ToBool(v)); });
}

// Unlike ApplyArgs, promotes only two of three operands. A scalar is broadcast with the sharding of
// an array of the full shape, because select wants operands with equal shardings.
Array where(const Arg& condition, const Arg& x, const Arg& y) {
  const internal::CommonType common = internal::CommonTypeOf({x, y});
  // The condition keeps its dtype: only the two values are promoted.
  const Site site = internal::SiteOf({condition, x, y});
  std::vector<Array> arrays;
  std::vector<Dims> shapes;
  for (const Arg* a : {&condition, &x, &y}) {
    if (a->kind != Arg::kArray) continue;
    arrays.push_back(*a->array);
    shapes.push_back(a->array->shape());
  }
  const Dims shape = internal::BroadcastShapes("where", shapes, site);
  internal::CheckVaryAlike("select_n", arrays, site);
  return Apply1("where", site, arrays, [&](ir::Builder& b, Vs v) {
    // A scalar gets the sharding of the arrays.
    const auto like = std::find_if(v.begin(), v.end(), [&](const Value& a) {
      return a.shape() == shape && a.type().is_sharded();
    });
    size_t next = 0;
    auto take = [&](const Arg& a, DType dtype) {
      const Value x = a.kind == Arg::kArray ? v[next++] : internal::Literal(b, a, dtype);
      if (x.rank() > 0 || like == v.end()) return BroadcastTo(x, shape);
      return b.Emit1(ir::ops::kBroadcastInDim, {x},
                     {{"shape", shape},
                      {"broadcast_dimensions", std::vector<int64_t>{}},
                      {"out_sharding", ir::SpecOf(like->type())}});
    };
    const Value c = ToBool(take(condition, DType::kBool));
    const Value t = internal::ConvertTo(take(x, common.dtype), common);
    return ir::Select(c, t, internal::ConvertTo(take(y, common.dtype), common));
  });
}

Array clip(const Arg& x, const Arg& low, const Arg& high) {
  return ApplyArgs("clip", {x, low, high}, Operands::kPromote,
                   [](ir::Builder&, Vs v) { return ir::Min(ir::Max(v[0], v[1]), v[2]); });
}

#define TESSERA_DEFINE_INEXACT(name, Symbol) \
  Array name(const Arg& x) { return UnaryInexact(#name, x, ir::Symbol); }
TESSERA_DEFINE_INEXACT(exp, Exp)
TESSERA_DEFINE_INEXACT(expm1, Expm1)
TESSERA_DEFINE_INEXACT(log, Log)
TESSERA_DEFINE_INEXACT(log1p, Log1p)
TESSERA_DEFINE_INEXACT(sin, Sin)
TESSERA_DEFINE_INEXACT(cos, Cos)
TESSERA_DEFINE_INEXACT(sqrt, Sqrt)
TESSERA_DEFINE_INEXACT(rsqrt, Rsqrt)
TESSERA_DEFINE_INEXACT(tanh, Tanh)
TESSERA_DEFINE_INEXACT(exp2, Exp2)
TESSERA_DEFINE_INEXACT(tan, Tan)
TESSERA_DEFINE_INEXACT(arcsin, Asin)
TESSERA_DEFINE_INEXACT(arccos, Acos)
TESSERA_DEFINE_INEXACT(arctan, Atan)
TESSERA_DEFINE_INEXACT(sinh, Sinh)
TESSERA_DEFINE_INEXACT(cosh, Cosh)
TESSERA_DEFINE_INEXACT(arcsinh, Asinh)
TESSERA_DEFINE_INEXACT(arccosh, Acosh)
TESSERA_DEFINE_INEXACT(arctanh, Atanh)
TESSERA_DEFINE_INEXACT(cbrt, Cbrt)
#undef TESSERA_DEFINE_INEXACT

Array arctan2(const Arg& y, const Arg& x) {
  return Binary("arctan2", y, x, ir::Atan2, InexactOf(internal::CommonDType({y, x})));
}
Array nextafter(const Arg& x, const Arg& y) {
  return Binary("nextafter", x, y, ir::Nextafter, InexactOf(internal::CommonDType({x, y})));
}

// floor, ceil and round return integers unchanged, and is_finite is true for them.
Array floor(const Arg& x) {
  return Unary("floor", x, [](Value v) { return ir::IsInexact(v.dtype()) ? ir::Floor(v) : v; });
}
Array ceil(const Arg& x) {
  return Unary("ceil", x, [](Value v) { return ir::IsInexact(v.dtype()) ? ir::Ceil(v) : v; });
}
Array round(const Arg& x) {
  return Unary("round", x,
               [](Value v) { return ir::IsInexact(v.dtype()) ? ir::RoundNearestEven(v) : v; });
}
Array is_finite(const Arg& x) {
  return Unary("is_finite", x, [](Value v) {
    return ir::IsInexact(v.dtype()) ? ir::IsFinite(v) : ir::Compare(v, v, "EQ");
  });
}

// ---- Reductions. --------------------------------------------------------------------------------

namespace {
// Bools and narrow integers are summed as integers of 32 bits.
Value WidenForSum(Value v) {
  const bool narrow = ir::IsInteger(v.dtype()) && ir::BitWidth(v.dtype()) < 32;
  if (v.dtype() != DType::kBool && !narrow) return v;
  return ir::Convert(v, ir::IsUnsignedInt(v.dtype()) ? DType::kU32 : DType::kS32);
}
}  // namespace

Array sum(const Arg& x, const Axes& axes, bool keepdims) {
  return Reduce("sum", x, axes, keepdims, [](Value v, const std::vector<int64_t>& d) {
    return ir::ReduceSum(WidenForSum(v), d);
  });
}
Array prod(const Arg& x, const Axes& axes, bool keepdims) {
  return Reduce("prod", x, axes, keepdims, [](Value v, const std::vector<int64_t>& d) {
    return ir::ReduceProd(WidenForSum(v), d);
  });
}
namespace {
void CheckNotEmpty(std::string_view name, const Arg& x, const Axes& axes) {
  const Dims shape = x.kind == Arg::kArray ? x.array->shape() : Dims{};
  if (NumReduced(shape, NormalizeAxes(name, axes, RankOf(x), x.site)) > 0) return;
  ThrowError(ErrorKind::kValueError, x.site, "zero-size array to reduction operation ",
             ToAbsl(name), " which has no identity: ", x.array->type().ToString());
}
}  // namespace

Array max(const Arg& x, const Axes& axes, bool keepdims) {
  CheckNotEmpty("max", x, axes);
  return Reduce("max", x, axes, keepdims,
                [](Value v, const std::vector<int64_t>& d) { return ir::ReduceMax(v, d); });
}
Array min(const Arg& x, const Axes& axes, bool keepdims) {
  CheckNotEmpty("min", x, axes);
  return Reduce("min", x, axes, keepdims,
                [](Value v, const std::vector<int64_t>& d) { return ir::ReduceMin(v, d); });
}
Array all(const Arg& x, const Axes& axes, bool keepdims) {
  return Reduce("all", x, axes, keepdims,
                [](Value v, const std::vector<int64_t>& d) { return ir::ReduceAnd(ToBool(v), d); });
}
Array any(const Arg& x, const Axes& axes, bool keepdims) {
  return Reduce("any", x, axes, keepdims,
                [](Value v, const std::vector<int64_t>& d) { return ir::ReduceOr(ToBool(v), d); });
}
Array mean(const Arg& x, const Axes& axes, bool keepdims) {
  return Reduce("mean", x, axes, keepdims, MeanOf);
}
namespace {
Array ArgExtreme(std::string_view name, const Arg& x, std::optional<int> axis, bool keepdims,
                 absl::FunctionRef<Value(Value, int)> op) {
  const int rank = RankOf(x);
  const int dim = axis ? NormalizeAxis(name, *axis, rank, x.site) : 0;
  return Unary(name, x, [&](Value v) {
    const Dims shape = v.shape();
    if (!axis) v = ir::Reshape(v, {v.type().num_elements()});
    const Value r = op(v, dim);
    if (!keepdims) return r;
    return ir::Reshape(r, axis ? KeptDims(shape, {dim}) : Dims(shape.size(), 1));
  });
}
}  // namespace

Array argmax(const Arg& x, std::optional<int> axis, bool keepdims) {
  return ArgExtreme("argmax", x, axis, keepdims, [](Value v, int d) { return ir::ArgMax(v, d); });
}
Array argmin(const Arg& x, std::optional<int> axis, bool keepdims) {
  return ArgExtreme("argmin", x, axis, keepdims, [](Value v, int d) { return ir::ArgMin(v, d); });
}

namespace {

// Applies a function along an axis, or to the flattened array.
Array ApplyAlongAxis(std::string_view name, const Arg& x, std::optional<int> axis,
                     absl::FunctionRef<Value(Value, int)> op) {
  const int dim = axis ? NormalizeAxis(name, *axis, RankOf(x), x.site) : 0;
  return ApplyArgs(name, {x}, Operands::kPromote, [&](ir::Builder&, Vs v) {
    Value flat = axis ? v[0] : ir::Reshape(v[0], {v[0].type().num_elements()});
    if (flat.dtype() == DType::kBool) flat = ir::Convert(flat, DType::kS32);
    return op(flat, dim);
  });
}

}  // namespace

Array cumsum(const Arg& x, std::optional<int> axis) {
  return ApplyAlongAxis("cumsum", x, axis, [](Value v, int dim) { return ir::Cumsum(v, dim); });
}
Array cumprod(const Arg& x, std::optional<int> axis) {
  return ApplyAlongAxis("cumprod", x, axis, [](Value v, int dim) { return ir::Cumprod(v, dim); });
}

Array sort(const Arg& x, int axis) {
  const int dim = NormalizeAxis("sort", axis, RankOf(x), x.site);
  return Unary("sort", x, [&](Value v) { return ir::Sort({v}, dim)[0]; });
}
Array argsort(const Arg& x, int axis) {
  const int dim = NormalizeAxis("argsort", axis, RankOf(x), x.site);
  return Unary("argsort", x, [&](Value v) {
    const DType index_dtype =
        v.dim(dim) > std::numeric_limits<int32_t>::max() ? DType::kS64 : DType::kS32;
    const Value positions = internal::Resharded(
        "argsort", ir::Iota(v.builder(), index_dtype, v.shape(), dim),
        v.type().is_sharded() ? OutSharding(ir::SpecOf(v.type())) : std::nullopt, x.site);
    return ir::Sort({v, positions}, dim)[1];
  });
}

// ---- Contractions. ------------------------------------------------------------------------------

// Emits one dot_general, whose batch dims are the leading dims. The operands' own shapes decide
// what is broadcast, because dot_general broadcasts nothing.
Array matmul(const Arg& x, const Arg& y, const lax::DotOptions& options) {
  const Site site = internal::SiteOf({x, y});
  if (RankOf(x) == 0 || RankOf(y) == 0) {
    ThrowError(ErrorKind::kTypeError, site,
               "matmul input operand must have ndim at least 1, but one has ndim 0. Use *");
  }
  const Dims &xs = x.array->shape(), &ys = y.array->shape();
  const bool x_vector = xs.size() == 1, y_vector = ys.size() == 1;
  const int64_t k = xs.back(), k2 = y_vector ? ys[0] : ys[ys.size() - 2];
  if (k != k2) {
    ThrowError(ErrorKind::kTypeError, site, "matmul: contracting sizes differ: lhs ",
               x.array->type().ToString(), " has ", k, ", rhs ", y.array->type().ToString(),
               " has ", k2);
  }
  const DType dtype = internal::CommonDType({x, y});
  internal::CheckVaryAlike("dot_general", {*x.array, *y.array}, site);
  return Apply1("matmul", site, {*x.array, *y.array}, [&](ir::Builder&, Vs v) {
    internal::CheckPreferredElementType("matmul", dtype, options.preferred_element_type);
    Value a = ir::Convert(v[0], dtype), b = ir::Convert(v[1], dtype);
    const Dims lead_a(xs.begin(), xs.end() - (x_vector ? 1 : 2));
    const Dims lead_b(ys.begin(), ys.end() - (y_vector ? 1 : 2));
    // If the right operand has no leading dims, nothing is broadcast: the leading dims of the left
    // operand are then dims of one product, like its rows.
    const Dims lead =
        lead_b.empty() ? Dims{} : internal::BroadcastShapes("matmul", {lead_a, lead_b}, site);
    const int64_t nb = static_cast<int64_t>(lead.size());
    ir::DotDims dims;
    for (int64_t d = 0; d < nb; ++d) {
      dims.lhs_batch.push_back(d);
      dims.rhs_batch.push_back(d);
    }
    if (nb > 0) {
      Dims batched_shape = lead;
      batched_shape.insert(batched_shape.end(), xs.end() - (x_vector ? 1 : 2), xs.end());
      a = BroadcastTo(a, batched_shape);
      batched_shape = lead;
      batched_shape.insert(batched_shape.end(), ys.end() - 2, ys.end());
      b = BroadcastTo(b, batched_shape);
    }
    dims.lhs_contract = {a.rank() - 1};
    dims.rhs_contract = {nb};
    return internal::DotWithPrecision(a, b, dims, options.out_sharding,
                                      options.preferred_element_type, options.precision, site);
  });
}

Array dot(const Arg& x, const Arg& y, const lax::PrecisionLike& precision,
          const OutSharding& out_sharding) {
  if (RankOf(x) == 0 || RankOf(y) == 0) {
    const Array product = x * y;
    return out_sharding ? reshard(product, *out_sharding) : product;
  }
  return matmul(x, y,
                {.precision = precision, .out_sharding = out_sharding ? &*out_sharding : nullptr});
}

namespace {

// A value and the einsum letters of its dims.
struct EinsumTerm {
  Value value;
  std::string letters;
};

// Sums over the dims whose letters are not in `keep`.
void SumOut(EinsumTerm* x, const std::string& keep) {
  std::vector<int64_t> summed_dims;
  std::string kept_letters;
  for (size_t i = 0; i < x->letters.size(); ++i) {
    if (keep.find(x->letters[i]) == std::string::npos) {
      summed_dims.push_back(static_cast<int64_t>(i));
    } else {
      kept_letters += x->letters[i];
    }
  }
  if (!summed_dims.empty()) *x = {ir::ReduceSum(x->value, summed_dims), kept_letters};
}

// Returns the sharding that the caller requested for a term with these letters, or nullopt if the
// caller requested none.
using ShardingOf = absl::FunctionRef<std::optional<PartitionSpec>(const std::string& letters)>;

// Multiplies two terms, and sums over the letters that are not in `later`. `later` has the letters
// of the result and of the terms that follow.
EinsumTerm Contract(EinsumTerm x, EinsumTerm y, const std::string& later,
                    const lax::PrecisionLike& precision, const ShardingOf& sharding_of,
                    const Site& site) {
  SumOut(&x, later + y.letters);
  SumOut(&y, later + x.letters);
  ir::DotDims dims;
  std::string batch, free_x, free_y;
  for (size_t i = 0; i < x.letters.size(); ++i) {
    const char c = x.letters[i];
    const size_t j = y.letters.find(c);
    if (j == std::string::npos) {
      free_x += c;
    } else if (later.find(c) != std::string::npos) {
      dims.lhs_batch.push_back(static_cast<int64_t>(i));
      dims.rhs_batch.push_back(static_cast<int64_t>(j));
      batch += c;
    } else {
      dims.lhs_contract.push_back(static_cast<int64_t>(i));
      dims.rhs_contract.push_back(static_cast<int64_t>(j));
    }
  }
  for (char c : y.letters) {
    if (x.letters.find(c) == std::string::npos) free_y += c;
  }
  const std::string letters = batch + free_x + free_y;
  const std::optional<PartitionSpec> spec = sharding_of(letters);
  const Value product = internal::DotWithPrecision(x.value, y.value, dims, spec ? &*spec : nullptr,
                                                   {}, precision, site);
  return {product, letters};
}

}  // namespace

// Checks the spec, then contracts the operands from left to right with one dot_general each.
// Letters are summed over as soon as no later term has them, which keeps the intermediate terms
// small.
Array einsum(std::string_view spec, const std::vector<Arg>& operands,
             const lax::PrecisionLike& precision, const OutSharding& out_sharding) {
  const Site site = internal::SiteOf(operands);
  const auto refuse = [&](const std::string& why) {
    ThrowError(ErrorKind::kValueError, site, "einsum(\"", ToAbsl(spec), "\"): ", why);
  };
  std::string text(spec);
  std::erase(text, ' ');
  const std::vector<std::string> sides = absl::StrSplit(text, "->");
  const std::vector<std::string> terms = absl::StrSplit(sides[0], ',');
  if (sides.size() > 2 || terms.size() != operands.size()) {
    refuse(absl::StrCat(terms.size(), " terms for ", operands.size(), " operands"));
  }
  std::map<char, int64_t> sizes;
  std::map<char, int> uses;
  std::vector<Array> arrays;
  for (size_t i = 0; i < terms.size(); ++i) {
    if (operands[i].kind != Arg::kArray) refuse("operands must be arrays");
    const Array& a = *operands[i].array;
    if (static_cast<int>(terms[i].size()) != a.rank()) {
      refuse(absl::StrCat("term ", terms[i], " names ", terms[i].size(), " dims of ",
                          a.type().ToString()));
    }
    std::set<char> seen;
    for (size_t d = 0; d < terms[i].size(); ++d) {
      const char c = terms[i][d];
      if (!seen.insert(c).second) refuse(absl::StrCat("term ", terms[i], " repeats a letter"));
      ++uses[c];
      const auto [it, added] = sizes.try_emplace(c, a.shape()[d]);
      if (!added && it->second != a.shape()[d]) {
        refuse(absl::StrCat("letter ", std::string(1, c), " is both ", it->second, " and ",
                            a.shape()[d]));
      }
    }
    arrays.push_back(a);
  }
  std::string out = sides.size() == 2 ? sides[1] : "";
  if (sides.size() == 1) {
    for (const auto& [c, n] : uses) {
      if (n == 1) out += c;
    }
  }
  for (char c : out) {
    if (!sizes.contains(c) || std::count(out.begin(), out.end(), c) != 1) {
      refuse(absl::StrCat("result letter ", std::string(1, c), " must name one operand dim"));
    }
  }
  const DType dtype = internal::CommonDType(operands);
  internal::CheckVaryAlike("dot_general", arrays, site);
  return Apply1("einsum", site, arrays, [&](ir::Builder&, Vs v) {
    EinsumTerm acc{ir::Convert(v[0], dtype), terms[0]};
    for (size_t i = 1; i < v.size(); ++i) {
      std::string later = out;
      for (size_t j = i + 1; j < v.size(); ++j) later += terms[j];
      // The last product has all letters of the result.
      const auto sharding_of = [&](const std::string& letters) -> std::optional<PartitionSpec> {
        if (!out_sharding || i + 1 < v.size()) return std::nullopt;
        const PartitionSpec of_result =
            internal::FitToRank("einsum", *out_sharding, static_cast<int>(out.size()), site);
        PartitionSpec of_product;
        for (char c : letters) of_product.dims.push_back(of_result.dims[out.find(c)]);
        return of_product;
      };
      acc =
          Contract(acc, {ir::Convert(v[i], dtype), terms[i]}, later, precision, sharding_of, site);
    }
    SumOut(&acc, out);
    std::vector<int64_t> order;
    for (char c : out) order.push_back(static_cast<int64_t>(acc.letters.find(c)));
    const Value result = acc.letters == out ? acc.value : ir::Transpose(acc.value, order);
    return internal::Resharded("einsum", result, out_sharding, site);
  });
}

// ---- Shapes. ------------------------------------------------------------------------------------

Array reshape(const Arg& x, Dims shape, const OutSharding& out_sharding) {
  if (x.kind == Arg::kArray) return x.array->reshape(std::move(shape), out_sharding, x.site);
  return Unary("reshape", x, [&](Value v) { return ir::Reshape(v, shape); });
}
Array transpose(const Arg& x, std::vector<int64_t> permutation) {
  if (permutation.empty()) {
    permutation.resize(RankOf(x));
    std::iota(permutation.rbegin(), permutation.rend(), 0);
  }
  return Unary("transpose", x, [&](Value v) { return ir::Transpose(v, permutation); });
}
Array swapaxes(const Arg& x, int a, int b) {
  std::vector<int64_t> order(RankOf(x));
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[NormalizeAxis("swapaxes", a, RankOf(x), x.site)],
            order[NormalizeAxis("swapaxes", b, RankOf(x), x.site)]);
  return transpose(x, order);
}
Array expand_dims(const Arg& x, int axis) {
  const int64_t d = NormalizeAxis("expand_dims", axis, RankOf(x) + 1, x.site);
  return Unary("expand_dims", x, [&](Value v) { return ir::ExpandDims(v, {d}); });
}
Array squeeze(const Arg& x, const Axes& axes) {
  return Unary("squeeze", x, [&](Value v) {
    std::vector<int64_t> dims;
    if (axes.list) {
      dims = NormalizeAxes("squeeze", axes, v.rank(), x.site);
    } else {
      for (int d = 0; d < v.rank(); ++d) {
        if (v.dim(d) == 1) dims.push_back(d);
      }
    }
    return ir::Squeeze(v, dims);
  });
}
Array broadcast_to(const Arg& x, Dims shape) {
  if (x.kind == Arg::kArray &&
      internal::BroadcastShapes("broadcast_to", {x.array->shape(), shape}, x.site) != shape) {
    ThrowError(ErrorKind::kValueError, x.site,
               "broadcast_to: Incompatible shapes for broadcasting: ", x.array->type().ToString(),
               " and requested shape (", ir::DimsToString(shape), ")");
  }
  return Unary("broadcast_to", x, [&](Value v) { return BroadcastTo(v, shape); });
}

namespace {
Array Join(std::string_view name, const std::vector<Array>& xs, int axis, bool new_dim,
           const Site& site) {
  if (xs.empty()) {
    ThrowError(ErrorKind::kValueError, site, ToAbsl(name), ": Need at least one array to ",
               ToAbsl(name));
  }
  const int d = NormalizeAxis(name, axis, xs[0].rank() + (new_dim ? 1 : 0), site);
  std::vector<Arg> args;
  for (const Array& x : xs) args.emplace_back(x, site);
  const internal::CommonType common = internal::CommonTypeOf(args);
  internal::CheckVaryAlike("concatenate", xs, site);
  return Apply1(name, site, xs, [&](ir::Builder&, Vs v) {
    for (Value& x : v) {
      x = internal::ConvertTo(x, common);
      if (new_dim) x = ir::ExpandDims(x, {d});
    }
    return ir::Concatenate(v, d);
  });
}
}  // namespace

Array concatenate(const std::vector<Array>& xs, int axis, Site site) {
  return Join("concatenate", xs, axis, /*new_dim=*/false, site);
}
Array stack(const std::vector<Array>& xs, int axis, Site site) {
  return Join("stack", xs, axis, /*new_dim=*/true, site);
}
Array flip(const Arg& x, const Axes& axes) {
  const std::vector<int64_t> dims = NormalizeAxes("flip", axes, RankOf(x), x.site);
  return Unary("flip", x, [&](Value v) { return ir::Reverse(v, dims); });
}

// ---- Making arrays. -----------------------------------------------------------------------------

namespace {

Array CheckedIndices(std::string_view op, const Arg& indices) {
  const Array at = ApplyArgs(
      op, {indices}, Operands::kStrict, [](ir::Builder&, Vs v) { return v[0]; }, DType::kS32);
  if (!ir::IsInteger(at.dtype())) {
    ThrowError(ErrorKind::kTypeError, indices.site, ToAbsl(op), ": indices are of type ",
               ToAbsl(ir::DTypeName(at.dtype())), "; expected an integer type");
  }
  return at;
}

}  // namespace

Array take(const Arg& x, const Arg& indices, std::optional<int> axis, lax::GatherScatterMode mode,
           const OutSharding& out_sharding) {
  const int dim = axis ? NormalizeAxis("take", *axis, RankOf(x), x.site) : 0;
  const Array at = CheckedIndices("take", indices);
  return ApplyArgs("take", {x, Arg(at, indices.site)}, Operands::kStrict, [&](ir::Builder&, Vs v) {
    const Value from = axis ? v[0] : ir::Reshape(v[0], {v[0].type().num_elements()});
    const Value index = internal::WrapNegativeIndices(v[1], from.dim(dim));
    ir::GatherDimensionNumbers dims;
    dims.collapsed_slice_dims = {dim};
    dims.start_index_map = {dim};
    Dims sizes = from.shape();
    sizes[dim] = std::min<int64_t>(sizes[dim], 1);
    for (int d = 0; d < from.rank() + index.rank(); ++d)
      if (d < dim || d > dim + index.rank()) dims.offset_dims.push_back(d < dim ? d : d - 1);
    lax::GatherScatterOptions options{.mode = mode};
    std::optional<PartitionSpec> spec;
    if (out_sharding) {
      spec = internal::FitToRank("take", *out_sharding, from.rank() - 1 + index.rank(), x.site);
      options.out_sharding = &*spec;
    }
    return ir::Gather(from, ir::ExpandDims(index, {index.rank()}), dims, sizes, options);
  });
}

Array take_along_axis(const Arg& x, const Arg& indices, int axis, lax::GatherScatterMode mode) {
  const int dim = NormalizeAxis("take_along_axis", axis, RankOf(x), x.site);
  const Array at = CheckedIndices("take_along_axis", indices);
  if (at.rank() != RankOf(x)) {
    ThrowError(ErrorKind::kValueError, indices.site, "take_along_axis: indices are ",
               at.type().ToString(), ", the array has rank ", RankOf(x), "; expected equal ranks");
  }
  return ApplyArgs("take_along_axis", {x, Arg(at, indices.site)}, Operands::kStrict,
                   [&](ir::Builder&, Vs v) {
                     const Value index = internal::WrapNegativeIndices(v[1], v[0].dim(dim));
                     ir::GatherDimensionNumbers dims;
                     dims.collapsed_slice_dims = {dim};
                     dims.start_index_map = {dim};
                     Dims single;
                     for (int d = 0; d < v[0].rank(); ++d) {
                       single.push_back(std::min<int64_t>(v[0].dim(d), 1));
                       if (d == dim) continue;
                       dims.operand_batching_dims.push_back(d);
                       dims.start_indices_batching_dims.push_back(d);
                     }
                     return ir::Gather(v[0], ir::ExpandDims(index, {index.rank()}), dims,
                                       std::move(single), {.mode = mode});
                   });
}

Array zeros(Dims shape, DType dtype, Site site) {
  return lax::full(std::move(shape), 0, dtype, site);
}
Array ones(Dims shape, DType dtype, Site site) {
  return lax::full(std::move(shape), 1, dtype, site);
}
Array full(Dims shape, double value, DType dtype, Site site) {
  return lax::full(std::move(shape), value, dtype, site);
}
Array zeros(Dims shape, DType dtype, const OutSharding& out_sharding, Site site) {
  return full(std::move(shape), 0, dtype, out_sharding, site);
}
Array ones(Dims shape, DType dtype, const OutSharding& out_sharding, Site site) {
  return full(std::move(shape), 1, dtype, out_sharding, site);
}
Array full(Dims shape, double value, DType dtype, const OutSharding& out_sharding, Site site) {
  return Apply1("full", site, {}, [&](ir::Builder& b, Vs) {
    return internal::Resharded("full", ir::Full(b, dtype, shape, value), out_sharding, site);
  });
}
Array zeros_like(const Arg& x) { return lax::full_like(x, 0); }
Array ones_like(const Arg& x) { return lax::full_like(x, 1); }

Array arange(int64_t stop, DType dtype, Site site) {
  return lax::iota(dtype, {std::max<int64_t>(stop, 0)}, 0, site);
}
Array arange(int64_t stop, DType dtype, const OutSharding& out_sharding, Site site) {
  return Apply1("arange", site, {}, [&](ir::Builder& b, Vs) {
    const Value i = ir::Iota(b, dtype, {std::max<int64_t>(stop, 0)}, 0);
    return internal::Resharded("arange", i, out_sharding, site);
  });
}
Array arange(double start, double stop, double step, DType dtype, Site site) {
  if (step == 0) ThrowError(ErrorKind::kValueError, site, "arange: the step must not be 0");
  const int64_t n = std::max<int64_t>(0, static_cast<int64_t>(std::ceil((stop - start) / step)));
  return Apply1("arange", site, {}, [&](ir::Builder& b, Vs) {
    const Value i = ir::Iota(b, dtype, {n}, 0);
    return i * ir::FullLike(i, step) + ir::FullLike(i, start);
  });
}
Array eye(int64_t n, DType dtype, Site site) {
  return Apply1("eye", site, {}, [&](ir::Builder& b, Vs) {
    return ir::Convert(
        ir::Compare(ir::Iota(b, DType::kS32, {n, n}, 0), ir::Iota(b, DType::kS32, {n, n}, 1), "EQ"),
        dtype);
  });
}

}  // namespace tessera
