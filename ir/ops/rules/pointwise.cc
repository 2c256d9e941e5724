// The checks and rules of elementwise ops that do not depend on the op's lambda: inference of dtype
// and shape with lax's error texts, and sums of tangents. The op constants in elementwise.cc and
// functions.cc refer to them through the templates of pointwise.h.
#include "ir/ops/rules/pointwise.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tessera::ir::ops {
namespace {

std::string_view DomainText(int domain) {
  switch (domain) {
    case scalar::kFloats:
      return "a floating dtype";
    case scalar::kInts:
      return "an integer dtype";
    case scalar::kUnsignedInts:
      return "an unsigned integer dtype";
    case scalar::kBits:
      return "an integer or bool dtype";
    case scalar::kNumbers:
      return "an integer or floating dtype";
    case scalar::kSignedNumbers:
      return "a signed integer or floating dtype";
    default:
      return "a bool, integer or floating dtype";
  }
}

bool InDomain(DType d, int domain) {
  return (d == DType::kBool && (domain & scalar::kBools)) ||
         (IsSignedInt(d) && (domain & scalar::kSignedInts)) ||
         (IsUnsignedInt(d) && (domain & scalar::kUnsignedInts)) ||
         (IsFloat(d) && (domain & scalar::kFloats));
}

}  // namespace

std::string TupleOf(const Dims& dims) {
  return absl::StrCat("(", absl::StrJoin(dims, ", "), dims.size() == 1 ? ",)" : ")");
}

absl::Status CheckDomain(const InferContext& c, int domain) {
  for (const Type& t : c.in) {
    if (!InDomain(t.dtype, domain))
      return TypeError(c, "requires ", ToAbsl(DomainText(domain)), ", got ",
                       ToAbsl(DTypeName(t.dtype)), "; convert it with convert_element_type");
    TESSERA_RETURN_IF_ERROR(CheckComputable(c, t.dtype));
  }
  return absl::OkStatus();
}

absl::Status CheckSameDType(const InferContext& c, absl::Span<const Type> types) {
  for (const Type& t : types)
    if (t.dtype != types[0].dtype)
      return TypeError(c, "dtypes differ: ", ToAbsl(DTypeName(types[0].dtype)), " and ",
                       ToAbsl(DTypeName(t.dtype)), "; convert one with convert_element_type");
  return absl::OkStatus();
}

absl::Status CheckSameShape(const InferContext& c, absl::Span<const Type> types) {
  for (const Type& t : types)
    if (t.shape != types[0].shape)
      return TypeError(c, "got incompatible shapes for broadcasting: ",
                       absl::StrJoin(types, ", ",
                                     [](std::string* out, const Type& type) {
                                       absl::StrAppend(out, TupleOf(type.shape));
                                     }),
                       "; they must be equal, broadcast one with broadcast_in_dim");
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Type>> InferSame(const InferContext& c, int domain) {
  TESSERA_RETURN_IF_ERROR(CheckDomain(c, domain));
  TESSERA_RETURN_IF_ERROR(CheckSameDType(c, c.in));
  TESSERA_RETURN_IF_ERROR(CheckSameShape(c, c.in));
  Type out = MakeType(c.in[0].dtype, c.in[0].shape);
  out.weak = true;
  for (const Type& t : c.in) out.weak = out.weak && t.weak;
  return std::vector<Type>{out};
}

std::vector<Value> ZeroTangents(const RuleContext& c, Values) {
  return std::vector<Value>(c.out_types.size());
}

Value AddTangents(Value a, Value b, const Type& type) {
  if (a && b) return a + b;
  if (!a && !b) return {};
  return ShardedLike(a ? a : b, type);
}

}  // namespace tessera::ir::ops
