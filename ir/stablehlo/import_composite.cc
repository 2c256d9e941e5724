// Composites of our own ops, which ExportProgram writes with their decompositions for others.
#include "ir/ops.h"
#include "ir/stablehlo/importer.h"

namespace tessera::ir::stablehlo {
namespace {

// An attribute of a composite as one of the op's; nullopt for one of another kind.
std::optional<AttrValue> ValueOf(const Artifact& a, uint32_t attr, tessera::ir::AttrKind kind) {
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
      const TypeOf& type = a.types[a.refs[value.refs.begin]];
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
    std::optional<AttrValue> value = ValueOf(a, attr, spec.kind);
    if (!value) return std::nullopt;
    attrs.Set(spec.name, *std::move(value));
  }
  return attrs;
}

}  // namespace

std::optional<std::vector<Value>> ImportOwnComposite(const OpReader& op) {
  constexpr std::string_view kPrefix = "tessera.";
  const std::string_view name = op.Text("name");
  if (name.substr(0, kPrefix.size()) != kPrefix) return std::nullopt;
  const OpDef* const def = FindOp(name.substr(kPrefix.size()));
  if (def == nullptr || !def->regions.empty() || def->lowering == Lowering::kCollective ||
      (def->num_operands != kAnyNumber && def->num_operands != op.num_operands()))
    return std::nullopt;
  const std::optional<Attrs> attrs = AttrsOf(op.artifact(), op.Find("composite_attributes"), *def);
  if (!attrs) return std::nullopt;
  const absl::StatusOr<std::vector<Type>> types =
      InferTypes(*def, op.b().scope(), TypesOf(op.in), *attrs, {});
  if (!types.ok() || static_cast<int>(types->size()) != op.num_results()) return std::nullopt;
  for (int r = 0; r < op.num_results(); ++r)
    if (!SameShapeAndDType((*types)[r], op.ResultType(r))) return std::nullopt;
  return op.b().Emit(*def, op.in, *attrs);
}

}  // namespace tessera::ir::stablehlo
