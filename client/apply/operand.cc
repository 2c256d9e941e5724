// Converts the operands of an op, which are arrays and C++ numbers, into ir::Values of a common
// dtype and shape. The functions of numpy/ call ApplyArgs for nearly every op.
#include "client/apply/operand.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/sharding.h"

namespace tessera::internal {
namespace {

// Orders the kinds of dtypes: bool < integers < floats < complex.
int Category(DType d) {
  return ir::IsComplex(d) ? 3 : ir::IsFloat(d) ? 2 : ir::IsInteger(d) ? 1 : 0;
}

// Promotes integers of two widths or signs.
DType PromoteInts(DType a, DType b) {
  const int wa = ir::BitWidth(a), wb = ir::BitWidth(b);
  if (ir::IsSignedInt(a) == ir::IsSignedInt(b)) return wa > wb ? a : b;
  const DType s = ir::IsSignedInt(a) ? a : b, u = ir::IsSignedInt(a) ? b : a;
  if (ir::BitWidth(s) > ir::BitWidth(u)) return s;
  switch (ir::BitWidth(u)) {
    case 8:
      return DType::kS16;
    case 16:
      return DType::kS32;
    case 32:
      return DType::kS64;
    default:
      return DType::kF64;
  }
}

[[noreturn]] void ThrowNoPromotion(DType a, DType b, const Site& site) {
  const bool floats = ir::IsFloat(a) && ir::IsFloat(b);
  ThrowError(ErrorKind::kTypeError, site, "dtypes ", ToAbsl(ir::DTypeName(a)), " and ",
             ToAbsl(ir::DTypeName(b)),
             " have no implicit promotion path: ", floats ? "floats of 8 bits and fewer" : "these",
             " are not promoted; convert one with astype");
}

}  // namespace

std::optional<DType> Promote(DType a, DType b) {
  if (a == b) return a;
  if (Category(a) > Category(b)) std::swap(a, b);
  if (a == DType::kBool) return b;
  const int wa = ir::BitWidth(a), wb = ir::BitWidth(b);
  if (Category(a) == 1) {
    if (wa < 8 || (wb < 8 && Category(b) == 1)) return std::nullopt;
    return Category(b) == 1 ? PromoteInts(a, b) : b;
  }
  if (Category(a) == 2) {
    if (wa <= 8 || wb <= 8) return std::nullopt;
    if (Category(b) == 3) return wa == 64 ? DType::kC128 : b;
    if (wa == wb) return DType::kF32;  // bf16 with f16
  }
  return wa > wb ? a : b;
}

CommonType CommonTypeOf(const std::vector<Arg>& args) {
  std::optional<DType> strong, weak;
  const auto join = [&](std::optional<DType>& into, DType d) {
    const std::optional<DType> joined = into ? Promote(*into, d) : d;
    if (!joined) ThrowNoPromotion(*into, d, SiteOf(args));
    into = joined;
  };
  for (const Arg& a : args) {
    if (a.kind == Arg::kArray) {
      join(a.array->type().weak ? weak : strong, a.array->dtype());
    } else if (a.kind != Arg::kBoolean) {
      join(weak, a.kind == Arg::kReal ? DType::kF32 : DType::kS32);
    }
  }
  if (!weak) return {strong.value_or(DType::kBool), false};
  if (strong && Category(*strong) >= Category(*weak)) return {*strong, false};
  if (strong && ir::IsInteger(*strong) && ir::BitWidth(*strong) < 8)
    ThrowNoPromotion(*strong, *weak, SiteOf(args));
  return {*weak, true};
}

DType CommonDType(const std::vector<Arg>& args) { return CommonTypeOf(args).dtype; }

void CheckPreferredElementType(std::string_view op, DType operands,
                               std::optional<DType> preferred) {
  if (!preferred || !ir::IsInteger(operands) || !ir::IsInteger(*preferred) ||
      ir::BitWidth(*preferred) >= ir::BitWidth(operands))
    return;
  ThrowError(ErrorKind::kTypeError, {}, ToAbsl(op),
             ": preferred_element_type must not be narrower than the original type, got "
             "preferred_element_type of ",
             ToAbsl(ir::DTypeName(*preferred)), " for result type of ",
             ToAbsl(ir::DTypeName(operands)));
}

ir::Value ConvertTo(ir::Value x, const CommonType& type) {
  if (!type.weak) return ir::Convert(x, type.dtype);
  if (x.dtype() == type.dtype && x.type().weak) return x;
  return x.builder().Emit1(ir::ops::kConvert, {x}, {{"dtype", type.dtype}, {"weak", true}});
}

Site SiteOf(const std::vector<Arg>& args) {
  for (const Arg& a : args) {
    if (a.site.valid()) return a.site;
  }
  return {};
}

Dims BroadcastShapes(std::string_view op, const std::vector<Dims>& shapes, const Site& site) {
  size_t rank = 0;
  for (const Dims& s : shapes) rank = std::max(rank, s.size());
  Dims out(rank, 1);
  for (const Dims& s : shapes) {
    for (size_t d = 0; d < s.size(); ++d) {
      int64_t& o = out[rank - s.size() + d];
      if (s[d] != 1 && o != 1 && s[d] != o) {
        std::string all;
        for (const Dims& t : shapes)
          absl::StrAppend(&all, all.empty() ? "" : ", ", "(", ir::DimsToString(t), ")");
        ThrowError(ErrorKind::kTypeError, site, ToAbsl(op),
                   ": incompatible shapes for broadcasting: ", all,
                   ". Aligned at the right, sizes must be equal or 1");
      }
      if (s[d] != 1) o = s[d];
    }
  }
  return out;
}

ir::Value BroadcastTo(ir::Value x, const Dims& shape) {
  if (x.shape() == shape) return x;
  // First drop the dims of size 1 that are broadcast, so that broadcast_in_dim keeps the size of
  // each remaining dim.
  std::vector<int64_t> dropped, dims;
  const int offset = static_cast<int>(shape.size()) - x.rank();
  for (int d = 0; d < x.rank(); ++d) {
    if (x.dim(d) != shape[offset + d]) {
      dropped.push_back(d);
    } else {
      dims.push_back(offset + d);
    }
  }
  if (!dropped.empty()) x = ir::Squeeze(x, dropped);
  return ir::BroadcastInDim(x, shape, dims);
}

ir::Value WrapNegativeIndices(ir::Value indices, int64_t size) {
  if (ir::IsUnsignedInt(indices.dtype())) return indices;
  const ir::Value negative = ir::Compare(indices, ir::FullLike(indices, 0), "LT");
  const ir::Value moved = ir::Add(indices, ir::FullLike(indices, static_cast<double>(size)));
  return ir::Select(negative, moved, indices);
}

ir::Value Literal(ir::Builder& b, const Arg& a, DType dtype) {
  if (a.kind == Arg::kReal || ir::IsFloat(dtype)) return ir::Constant(b, dtype, a.number);
  return ir::Constant(b, ir::Array::ScalarInt(dtype, a.integer));
}

Array AsArray(const Arg& a, DType dtype) {
  if (a.kind == Arg::kArray) return *a.array;
  return Apply1("constant", a.site, {},
                [&](ir::Builder& b, std::vector<ir::Value>) { return Literal(b, a, dtype); });
}

// Emits the op `emit` on the operands, brought to a common dtype and shape first. Inputs are lifted
// before they are converted, so that conversions are ops of the same frame and are differentiated.
Array ApplyArgs(std::string_view name, const std::vector<Arg>& args, Operands how, Emit1Fn emit,
                std::optional<DType> dtype) {
  const Site site = SiteOf(args);
  CommonType common = CommonTypeOf(args);
  if (dtype) common.dtype = *dtype;
  std::vector<Array> arrays;
  std::vector<Dims> shapes;
  for (const Arg& a : args) {
    if (a.kind != Arg::kArray) continue;
    arrays.push_back(*a.array);
    shapes.push_back(a.array->shape());
  }
  CheckVaryAlike(name, arrays, site);
  const Dims shape =
      how == Operands::kPromote || shapes.empty() ? BroadcastShapes(name, shapes, site) : shapes[0];
  return Apply1(name, site, arrays, [&](ir::Builder& b, std::vector<ir::Value> values) {
    // Match the axes before broadcasting: the derivative then sums over the broadcast dims on each
    // device first, and the devices exchange only these sums.
    if (how == Operands::kPromote) values = ir::MatchVarying(std::move(values));
    std::vector<ir::Value> in;
    size_t next = 0;
    ir::AxisSet reduced;  // a number beside reduced arrays is reduced as well
    for (const ir::Value& v : values)
      reduced.insert(v.type().reduced.begin(), v.type().reduced.end());
    for (const Arg& a : args) {
      if (a.kind != Arg::kArray) {
        const ir::Value number = ConvertTo(Literal(b, a, common.dtype), common);
        in.push_back(BroadcastTo(ir::ReducedAlong(number, reduced), shape));
      } else if (how == Operands::kPromote) {
        in.push_back(BroadcastTo(ConvertTo(values[next++], common), shape));
      } else {
        in.push_back(values[next++]);
      }
    }
    return emit(b, std::move(in));
  });
}

}  // namespace tessera::internal
