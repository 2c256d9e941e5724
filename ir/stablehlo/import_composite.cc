// Imports composites that are one op here: our own, which ExportProgram writes with their
// decompositions for other readers, and chlo.top_k, which JAX exports for lax.top_k.
#include "ir/op_def.h"
#include "ir/ops.h"
#include "ir/registry.h"
#include "ir/stablehlo/importer.h"

namespace tessera::ir::stablehlo {
namespace {

// Returns an attribute of a composite as an attribute of the op, or nullopt if its kind differs.
std::optional<AttrValue> AttrValueOf(const Artifact& a, uint32_t attr, tessera::ir::AttrKind kind) {
  const Attr& value = a.attrs[attr];
  switch (kind) {
    case tessera::ir::AttrKind::kInt:
      if (value.kind == AttrKind::kInteger) return IntOf(a, attr, "composite");
      return std::nullopt;
    case tessera::ir::AttrKind::kBool:
      if (value.kind == AttrKind::kBool) return BoolOf(a, attr, "composite");
      return std::nullopt;
    case tessera::ir::AttrKind::kDType: {
      if (value.kind != AttrKind::kType) return std::nullopt;
      const DecodedType& type = a.types[a.refs[value.refs.begin]];
      if (type.kind == TypeKind::kScalar) return type.dtype;
      return std::nullopt;
    }
    default:
      return std::nullopt;
  }
}

std::optional<Attrs> AttrsOf(const Artifact& a, uint32_t dictionary, const OpDef& def) {
  Attrs attrs;
  for (const AttrSpec& spec : def.attrs) {
    const uint32_t attr = InDictionary(a, dictionary, spec.name);
    if (attr == kNone && !spec.required) continue;
    if (attr == kNone) return std::nullopt;
    std::optional<AttrValue> value = AttrValueOf(a, attr, spec.kind);
    if (!value) return std::nullopt;
    attrs.Set(spec.name, *std::move(value));
  }
  return attrs;
}

// An op and its attributes; `def` is null if the composite is not one of ours.
struct OpAndAttrs {
  const OpDef* def = nullptr;
  Attrs attrs;
};
std::optional<OpAndAttrs> TesseraOpOf(const OpReader& op, std::string_view name) {
  const OpDef* const def = FindOp(name);
  if (def == nullptr || !def->regions.empty() || def->lowering == Lowering::kCollective ||
      (def->num_operands != kAnyNumber && def->num_operands != op.num_operands()))
    return std::nullopt;
  std::optional<Attrs> attrs = AttrsOf(op.artifact(), op.Find("composite_attributes"), *def);
  if (!attrs) return std::nullopt;
  return OpAndAttrs{def, *std::move(attrs)};
}
// Returns the op for the k largest elements along the last dim.
std::optional<OpAndAttrs> TopKOf(const OpReader& op) {
  const Artifact& a = op.artifact();
  const uint32_t dictionary = op.Find("composite_attributes");
  const uint32_t k = InDictionary(a, dictionary, "k");
  // With other attributes the composite would mean something else.
  if (k == kNone || a.attrs[dictionary].refs.size != 2 || op.in.size() != 1 || op.in[0].rank() == 0)
    return std::nullopt;
  std::optional<AttrValue> value = AttrValueOf(a, k, tessera::ir::AttrKind::kInt);
  if (!value) return std::nullopt;
  Attrs attrs = {{"dimension", int64_t{op.in[0].rank() - 1}}};
  attrs.Set("k", *std::move(value));
  return OpAndAttrs{&ops::kTopK, std::move(attrs)};
}

}  // namespace

std::optional<std::vector<Value>> ImportKnownComposite(const OpReader& op) {
  constexpr std::string_view kOwn = "tessera.";
  const std::string_view name = op.Text("name");
  std::optional<OpAndAttrs> known;
  if (name.substr(0, kOwn.size()) == kOwn) {
    known = TesseraOpOf(op, name.substr(kOwn.size()));
  } else if (name == "chlo.top_k") {
    known = TopKOf(op);
  }
  if (!known) return std::nullopt;
  const absl::StatusOr<std::vector<Type>> types =
      InferTypes(*known->def, op.b().scope(), TypesOf(op.in), known->attrs, {});
  if (!types.ok() || static_cast<int>(types->size()) != op.num_results()) return std::nullopt;
  for (int r = 0; r < op.num_results(); ++r)
    if (!SameShapeAndDType((*types)[r], op.ResultType(r))) return std::nullopt;
  return op.b().Emit(*known->def, op.in, std::move(known->attrs));
}

}  // namespace tessera::ir::stablehlo
