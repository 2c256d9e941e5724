// The types of array values: their queries, their text form, and the check that a type is well
// formed. InferTypes and the verifier check every type of a program here.
#include "ir/type.h"

#include <algorithm>
#include <cctype>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status.h"

namespace tessera::ir {
namespace {

absl::Status UnreadableType(std::string_view text) {
  return MakeError(ErrorKind::kMalformedProgram,
                   absl::StrCat("type: cannot read '", ToAbsl(text),
                                "'; expected a form like f32[8@data,512]{V:model}"));
}

absl::Status CheckAxis(const Type& t, const Mesh& mesh, const std::string& axis, AxisType want,
                       std::set<std::string>* seen) {
  if (!mesh.Has(axis))
    return MakeError(ErrorKind::kUnknownAxis,
                     absl::StrCat("type ", t.ToString(), ": axis '", axis, "' is not in the mesh ",
                                  mesh.ToString()));
  if (mesh.TypeOf(axis) != want)
    return MakeError(ErrorKind::kShardingTypeError,
                     absl::StrCat("type ", t.ToString(), ": axis '", axis, "' is ",
                                  ToAbsl(AxisTypeName(mesh.TypeOf(axis))), " here; expected ",
                                  ToAbsl(AxisTypeName(want))));
  if (!seen->insert(axis).second)
    return MakeError(ErrorKind::kShardingTypeError,
                     absl::StrCat("type ", t.ToString(), ": axis '", axis, "' appears twice"));
  return absl::OkStatus();
}

}  // namespace

int64_t Type::num_elements() const {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

const AxisList& Type::axes_of(int dim) const {
  static const AxisList kNone;
  return sharding.empty() ? kNone : sharding[dim];
}

void Type::set_axes_of(int dim, AxisList axes) {
  if (sharding.empty()) sharding.resize(shape.size());
  sharding[dim] = std::move(axes);
  Normalize(this);
}

AxisSet Type::NonInvaryingAxes() const {
  AxisSet all = varying;
  all.insert(unreduced.begin(), unreduced.end());
  all.insert(reduced.begin(), reduced.end());
  return all;
}

std::string Type::ToString() const {
  std::string out = absl::StrCat(ToAbsl(DTypeName(dtype)), "[");
  for (int i = 0; i < rank(); ++i) {
    absl::StrAppend(&out, i ? "," : "", shape[i]);
    for (const std::string& a : axes_of(i)) absl::StrAppend(&out, "@", a);
  }
  out += "]";
  std::vector<std::string> states;
  auto add = [&](const char* letter, const AxisSet& set) {
    if (!set.empty()) states.push_back(absl::StrCat(letter, ":", absl::StrJoin(set, ",")));
  };
  add("V", varying);
  add("U", unreduced);
  add("R", reduced);
  if (!states.empty()) absl::StrAppend(&out, "{", absl::StrJoin(states, ";"), "}");
  if (weak) out += "~";
  return out;
}

Type MakeType(DType dtype, Dims shape) {
  Type t;
  t.dtype = dtype;
  t.shape = std::move(shape);
  return t;
}

void Normalize(Type* type) {
  if (std::all_of(type->sharding.begin(), type->sharding.end(),
                  [](const AxisList& a) { return a.empty(); }))
    type->sharding.clear();
}

bool SameShapeAndDType(const Type& a, const Type& b) {
  return a.dtype == b.dtype && a.shape == b.shape;
}

bool EqualButWeak(const Type& a, const Type& b) {
  Type c = a;
  c.weak = b.weak;
  return c == b;
}

// Checks sizes first, so that the number of elements, and with up to 64 bytes for an element also
// the number of bytes, fits in an int64. All axis sets share one `seen`, since an axis can have
// only one role in a type. A type may come from a client, so each fault is an error with a reason
// and not a CHECK.
absl::Status CheckType(const Type& t, const Mesh& mesh) {
  int64_t elements = 1;
  for (int64_t d : t.shape) {
    if (d < 0 || (d > 0 && elements > std::numeric_limits<int64_t>::max() / 64 / d))
      return MakeError(ErrorKind::kValueError,
                       absl::StrCat("type: shape [", DimsToString(t.shape),
                                    "] has a negative dim or too many elements"));
    if (d > 0) elements *= d;
  }
  if (!t.sharding.empty() && t.sharding.size() != t.shape.size())
    return MakeError(ErrorKind::kValueError, absl::StrCat("type: sharding has ", t.sharding.size(),
                                                          " entries, rank is ", t.rank()));
  std::set<std::string> seen;
  for (size_t d = 0; d < t.sharding.size(); ++d) {
    for (const std::string& a : t.sharding[d])
      TESSERA_RETURN_IF_ERROR(CheckAxis(t, mesh, a, AxisType::kExplicit, &seen));
    if (int64_t n = mesh.SizeOf(t.sharding[d]); t.shape[d] % n != 0)
      return MakeError(ErrorKind::kIndivisible,
                       absl::StrCat("type ", t.ToString(), ": the sharding of dim ", d, " over {",
                                    absl::StrJoin(t.sharding[d], ","), "} (", n,
                                    " shards) does not evenly divide the dimension size ",
                                    t.shape[d], "; pad the dim or choose another axis"));
  }
  for (const AxisSet* set : {&t.varying, &t.unreduced, &t.reduced})
    for (const std::string& a : *set) {
      const bool is_explicit =
          set != &t.varying && mesh.Has(a) && mesh.TypeOf(a) == AxisType::kExplicit;
      TESSERA_RETURN_IF_ERROR(
          CheckAxis(t, mesh, a, is_explicit ? AxisType::kExplicit : AxisType::kManual, &seen));
    }
  return absl::OkStatus();
}

PartitionSpec SpecOf(const Type& type) {
  PartitionSpec spec;
  spec.dims = type.sharding;
  spec.dims.resize(type.shape.size());
  spec.unreduced.assign(type.unreduced.begin(), type.unreduced.end());
  spec.reduced.assign(type.reduced.begin(), type.reduced.end());
  return spec;
}

Type CotangentType(const Type& type) {
  Type t = type;
  t.weak = false;
  std::swap(t.unreduced, t.reduced);
  return t;
}

// Reads the form that ToString prints. It checks only the syntax: whether the axes exist and fit is
// left to CheckType, which knows the mesh. Every failure gives the same error with an example of
// the form.
absl::StatusOr<Type> ParseType(std::string_view text) {
  Type t;
  absl::string_view s = ToAbsl(text);
  if (absl::ConsumeSuffix(&s, "~")) t.weak = true;
  const size_t open = s.find('['), close = s.find(']');
  if (open == s.npos || close == s.npos || close < open) return UnreadableType(text);
  auto dtype = ParseDType(std::string_view(s.data(), open));
  if (!dtype) return UnreadableType(text);
  t.dtype = *dtype;
  absl::string_view dims = s.substr(open + 1, close - open - 1);
  if (!dims.empty()) {
    for (absl::string_view dim : absl::StrSplit(dims, ',')) {
      std::vector<std::string> parts = absl::StrSplit(dim, '@');
      int64_t n;
      if (!absl::SimpleAtoi(parts[0], &n) || n < 0) return UnreadableType(text);
      t.shape.push_back(n);
      t.sharding.emplace_back(parts.begin() + 1, parts.end());
    }
  }
  Normalize(&t);
  absl::string_view rest = s.substr(close + 1);
  if (rest.empty()) return t;
  if (!absl::ConsumePrefix(&rest, "{") || !absl::ConsumeSuffix(&rest, "}"))
    return UnreadableType(text);
  for (absl::string_view group : absl::StrSplit(rest, ';')) {
    if (group.size() < 3 || group[1] != ':') return UnreadableType(text);
    AxisSet* set = group[0] == 'V'   ? &t.varying
                   : group[0] == 'U' ? &t.unreduced
                   : group[0] == 'R' ? &t.reduced
                                     : nullptr;
    if (set == nullptr) return UnreadableType(text);
    for (absl::string_view a : absl::StrSplit(group.substr(2), ',')) set->emplace(a);
  }
  return t;
}

std::string TypesToString(absl::Span<const Type> types) {
  return absl::StrJoin(types, ", ", [](std::string* out, const Type& t) { *out += t.ToString(); });
}
std::string DimsToString(const Dims& dims) { return absl::StrJoin(dims, ","); }
std::string AxesToString(const AxisSet& axes) {
  return absl::StrCat("{", absl::StrJoin(axes, ","), "}");
}

}  // namespace tessera::ir
