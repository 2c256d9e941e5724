// Decodes the quantized types of an artifact and checks them. The reader of ops asks for the
// quantization of each operand and result, and quantized.cc computes with it.
#include "ir/stablehlo/quantization.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "ir/array.h"
#include "ir/stablehlo/values.h"
#include "ir/type.h"

namespace tessera::ir::stablehlo {
namespace {

const DecodedType* ElementOf(const Artifact& a, uint32_t index) {
  const DecodedType& type = a.types[index];
  if (type.kind != TypeKind::kTensor && type.kind != TypeKind::kEncodedTensor) return nullptr;
  return &a.types[Slice(a.refs, type.refs).back()];
}

void CheckQuantization(const Quantization& q, const Type& type, std::string_view what) {
  if (!IsFloat(q.expressed) || !IsComputable(q.expressed))
    NotSupported(what, "is quantized, and stands for numbers of a type that Tessera lacks");
  const auto is_scale = [&](double s) { return IsScale(q.expressed, s); };
  if (!std::all_of(q.scales.begin(), q.scales.end(), is_scale))
    Malformed(what, "is quantized by a scale that is not above 0, or not in its numbers' type");
  const int bits = BitWidth(q.storage) - (IsSignedInt(q.storage) ? 1 : 0);
  const int64_t most = bits >= 63 ? std::numeric_limits<int64_t>::max() : (int64_t{1} << bits) - 1;
  const int64_t least = IsSignedInt(q.storage) ? -most - 1 : 0;
  if (q.min < least || q.min >= q.max || q.max > most)
    Malformed(what, "is quantized to an empty range, or to one that its integers do not have");
  const auto is_point = [&](int64_t z) { return q.min <= z && z <= q.max; };
  if (!std::all_of(q.zero_points.begin(), q.zero_points.end(), is_point))
    Malformed(what, "is quantized with a zero point that its integers do not have");
  if (q.dim >= type.rank()) Malformed(what, "is quantized along a dim that does not exist");
  const int64_t n = q.dim < 0 ? 1 : type.shape[q.dim];
  if (static_cast<int64_t>(q.scales.size()) != n || static_cast<int64_t>(q.zero_points.size()) != n)
    Malformed(what, absl::StrCat("is quantized by ", q.scales.size(), " scales and ",
                                 q.zero_points.size(), " zero points; expected ", n));
}

}  // namespace

bool IsScale(DType dtype, double scale) {
  const double rounded = Array::Scalar(dtype, scale).At(0);
  return std::isfinite(rounded) && rounded > 0;
}

bool operator==(const Quantization& a, const Quantization& b) {
  return a.storage == b.storage && a.expressed == b.expressed && a.scales == b.scales &&
         a.zero_points == b.zero_points && a.min == b.min && a.max == b.max;
}

bool IsQuantized(const Artifact& a, uint32_t index) {
  const DecodedType* const element = ElementOf(a, index);
  return element != nullptr &&
         (element->kind == TypeKind::kQuantized || element->kind == TypeKind::kQuantizedPerAxis);
}

// Decodes a quantized type and checks it, so that later code can rely on its scales, zero points
// and range. The numbers of a type are laid out as entries.def lists them, which differs for one
// scale and for scales along a dim.
std::optional<Quantization> QuantizationOf(const Artifact& a, uint32_t index,
                                           std::string_view what) {
  if (!IsQuantized(a, index)) return std::nullopt;
  const DecodedType& element = *ElementOf(a, index);
  const Type type = TensorType(a, index, what);
  const absl::Span<const int64_t> ints = Slice(a.ints, element.ints);
  const DecodedType& expressed = a.types[Slice(a.refs, element.refs)[1]];
  if (expressed.kind != TypeKind::kScalar)
    NotSupported(what, "is quantized, and stands for numbers of a type that Tessera lacks");
  Quantization out;
  out.storage = type.dtype;
  out.expressed = expressed.dtype;
  if (element.kind == TypeKind::kQuantized) {
    // The numbers after the flags are the scale, the zero point, and the range.
    out.scales = {std::bit_cast<double>(ints[1])};
    out.zero_points = {ints[2]};
    out.min = ints[3];
    out.max = ints[4];
  } else {
    // The numbers after the flags are the dim, the range, and two lists with their lengths before
    // them.
    out.dim = ints[1];
    out.min = ints[2];
    out.max = ints[3];
    absl::Span<const int64_t> lists = ints.subspan(4);
    for (const int64_t bits : lists.subspan(1, lists[0]))
      out.scales.push_back(std::bit_cast<double>(bits));
    lists = lists.subspan(1 + lists[0]);
    for (const int64_t point : lists.subspan(1, lists[0])) out.zero_points.push_back(point);
    if (out.dim < 0) Malformed(what, "is quantized along a dim that does not exist");
  }
  CheckQuantization(out, type, what);
  return out;
}

}  // namespace tessera::ir::stablehlo
