// Describes artifacts for InspectProgram and `tessera inspect`, and gives the importer the names of
// arguments and results. It must not fail on any artifact that was read, so it skips malformed
// parts.
#include "ir/stablehlo/inspect.h"

#include <algorithm>
#include <map>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "ir/op_def.h"
#include "ir/stablehlo/importer.h"

namespace tessera::ir::stablehlo {
namespace {

// Longer texts and lists are cut: an artifact may share one huge list among all its values.
constexpr size_t kListMax = 4096;  // values; names of ops
constexpr size_t kPartsMax = 64;   // dims, axes, meshes, entries of a dictionary
// The bytes of a text, after which no further part is appended.
constexpr size_t kShownMax = kValueNameMax;

// Returns a text of the artifact in a form that can be shown.
std::string Shown(std::string_view text) {
  std::string out(text.substr(0, kShownMax));
  for (char& c : out)
    if (!absl::ascii_isprint(c)) c = '_';
  return out;
}

class Inspector {
 public:
  explicit Inspector(const Artifact& artifact) : a_(artifact) {}

  Inspection Run() {
    Inspection out;
    out.producer = Shown(a_.code.producer);
    constexpr std::string_view kPrefix = "StableHLO_v";
    if (std::string_view(out.producer).substr(0, kPrefix.size()) == kPrefix)
      out.version = out.producer.substr(kPrefix.size());
    if (!a_.code.ops.empty()) out.name = Shown(Text(a_.Find(0, "sym_name")));
    ForEachSymbol([&](uint32_t op, const OpForm& form, std::string_view name) {
      if (form.dialect == "sdy" && form.name == "mesh" && out.meshes.size() < kPartsMax)
        out.meshes.emplace_back(Shown(name), MeshOf(a_.Find(op, "mesh")));
    });
    out.main = MainSignature();
    CountAll(&out);
    return out;
  }

  Signature MainSignature() const {
    Signature out;
    ForEachSymbol([&](uint32_t op, const OpForm& form, std::string_view name) {
      if (form.name == "func" && name == "main") out = SignatureOfFunction(op);
    });
    return out;
  }

 private:
  // Visits functions and meshes.
  template <typename F>
  void ForEachSymbol(F visit) const {
    const std::vector<RawOp>& ops = a_.code.ops;
    if (ops.empty() || ops[0].regions.size != 1) return;
    const RawRegion& module = a_.code.regions[ops[0].regions.begin];
    for (uint32_t i = module.begin; i < module.end; i = ops[i].end)
      visit(i, a_.form(ops[i]), Text(a_.Find(i, "sym_name")));
  }

  const Attr* FindAttr(uint32_t attr, AttrKind kind) const {
    return attr != kNone && a_.attrs[attr].kind == kind ? &a_.attrs[attr] : nullptr;
  }
  absl::Span<const uint32_t> Refs(const Fields& fields) const {
    return Slice(a_.refs, fields.refs);
  }
  absl::Span<const int64_t> Ints(const Fields& fields) const { return Slice(a_.ints, fields.ints); }

  std::string_view Text(uint32_t attr) const {
    const Attr* const text = FindAttr(attr, AttrKind::kString);
    return text == nullptr ? std::string_view() : text->text();
  }

  // ---- Types. -----------------------------------------------------------------------------------
  std::string ElementText(uint32_t type) const {
    const DecodedType& t = a_.types[type];
    if (t.kind == TypeKind::kScalar) return std::string(DTypeName(t.dtype));
    if (const std::optional<DType> storage = StorageOf(a_, t))
      return std::string(DTypeName(*storage));
    if (t.kind != TypeKind::kComplex) return "?";
    const DecodedType& part = a_.types[Refs(t)[0]];
    if (part.kind != TypeKind::kScalar) return "?";
    return part.dtype == DType::kF32 ? "c64" : part.dtype == DType::kF64 ? "c128" : "?";
  }

  std::string TypeText(uint32_t type) const {
    const DecodedType& t = a_.types[type];
    switch (t.kind) {
      case TypeKind::kTensor:
      case TypeKind::kEncodedTensor: {
        std::string shape;
        for (const int64_t dim : Ints(t).subspan(1, kPartsMax))
          absl::StrAppend(&shape, shape.empty() ? "" : ",", dim < 0 ? "?" : absl::StrCat(dim));
        return absl::StrCat(ElementText(Refs(t).back()), "[", shape, "]");
      }
      case TypeKind::kToken:
        return "token";
      case TypeKind::kTuple:
        return "tuple";
      default:
        return "?";
    }
  }

  // ---- Meshes and shardings. --------------------------------------------------------------------
  Mesh MeshOf(uint32_t attr) const {
    Mesh out;
    const Attr* const mesh = FindAttr(attr, AttrKind::kMesh);
    if (mesh == nullptr) return out;
    for (const uint32_t ref : Refs(*mesh).subspan(0, kPartsMax))
      if (const Attr* const axis = FindAttr(ref, AttrKind::kMeshAxis); axis != nullptr)
        out.axes.push_back({Shown(axis->text()), axis->ints.size == 0 ? 0 : Ints(*axis)[0]});
    return out;
  }

  // Returns "x", or "x:(2)4" for a part of an axis: the part of size 4 after parts whose sizes
  // multiply to 2.
  std::string AxisText(uint32_t attr) const {
    const Attr* const axis = FindAttr(attr, AttrKind::kAxisRef);
    if (axis == nullptr) return "?";
    std::string out = Shown(axis->text());
    const Attr* const sub = FindAttr(Refs(*axis)[0], AttrKind::kSubAxis);
    if (sub != nullptr) absl::StrAppend(&out, ":(", Ints(*sub)[0], ")", Ints(*sub)[1]);
    return out;
  }
  template <typename F>
  static std::string Joined(absl::Span<const uint32_t> refs, F text) {
    std::string out;
    for (size_t i = 0; i < refs.size() && out.size() < kShownMax; ++i)
      absl::StrAppend(&out, i == 0 ? "" : ", ", text(refs[i]));
    return out;
  }
  std::string AxesText(absl::Span<const uint32_t> axes) const {
    return absl::StrCat("{", Joined(axes, [&](uint32_t axis) { return AxisText(axis); }), "}");
  }
  std::string DimText(uint32_t attr) const {
    const Attr* const dim = FindAttr(attr, AttrKind::kDimensionSharding);
    if (dim == nullptr) return "?";
    const absl::Span<const int64_t> ints = Ints(*dim);  // axes, closed, priority
    const bool closed = ints[1] != 0;
    std::string out = AxesText(Refs(*dim));
    if (!closed) out.insert(out.size() - 1, out.size() > 2 ? ", ?" : "?");
    if (ints[2] != 0 && ints.size() > 3) absl::StrAppend(&out, "p", ints[3]);
    return out;
  }

  std::string ShardingText(uint32_t attr) const {
    // The sharding of GSPMD is already a text.
    if (const std::string_view text = Text(attr); !text.empty()) return Shown(text);
    const Attr* const sharding = FindAttr(attr, AttrKind::kTensorSharding);
    if (sharding == nullptr) return "";
    // The mesh is followed by lists whose lengths are the numbers: dims, replicated axes, unreduced
    // axes.
    absl::Span<const uint32_t> refs = Refs(*sharding);
    const Attr* const symbol = FindAttr(refs[0], AttrKind::kSymbol);
    std::string out = symbol == nullptr ? MeshOf(refs[0]).ToString()
                                        : absl::StrCat("@", Shown(Text(Refs(*symbol)[0])));
    refs.remove_prefix(1);
    constexpr const char* kLists[] = {"", "replicated=", "unreduced="};
    for (size_t i = 0; i < std::size(kLists) && i < Ints(*sharding).size(); ++i) {
      const absl::Span<const uint32_t> list =
          refs.subspan(0, std::min<size_t>(Ints(*sharding)[i], refs.size()));
      refs.remove_prefix(list.size());
      if (i == 0) {
        absl::StrAppend(&out, ", [", Joined(list, [&](uint32_t dim) { return DimText(dim); }), "]");
      } else if (!list.empty()) {
        absl::StrAppend(&out, ", ", kLists[i], AxesText(list));
      }
    }
    return out;
  }

  // ---- The signature. ---------------------------------------------------------------------------
  // `attrs` is an array of dictionaries, one for each value, or it is empty.
  ValueInfo InfoOf(uint32_t type, uint32_t attrs, size_t i) const {
    ValueInfo out;
    out.type = TypeText(type);
    const Attr* const dictionaries = FindAttr(attrs, AttrKind::kArray);
    if (dictionaries == nullptr || i >= Refs(*dictionaries).size()) return out;
    const uint32_t dictionary = Refs(*dictionaries)[i];
    out.name = Shown(Text(a_.InDictionary(dictionary, "jax.result_info")));
    out.sharding = ShardingText(a_.InDictionary(dictionary, "sdy.sharding"));
    if (out.sharding.empty())
      out.sharding = ShardingText(a_.InDictionary(dictionary, "mhlo.sharding"));
    out.donated = a_.InDictionary(dictionary, "tf.aliasing_output") != kNone ||
                  a_.InDictionary(dictionary, "jax.buffer_donor") != kNone;
    return out;
  }

  Signature SignatureOfFunction(uint32_t func) const {
    Signature out;
    const Attr* const attr = FindAttr(a_.Find(func, "function_type"), AttrKind::kType);
    const DecodedType* const type = attr == nullptr ? nullptr : &a_.types[Refs(*attr)[0]];
    if (type == nullptr || type->kind != TypeKind::kFunction) return out;
    const absl::Span<const uint32_t> types = Refs(*type);
    const size_t params = std::min<size_t>(Ints(*type)[0], types.size());
    for (size_t i = 0; i < std::min(params, kListMax); ++i)
      out.params.push_back(InfoOf(types[i], a_.Find(func, "arg_attrs"), i));
    for (size_t i = 0; params + i < types.size() && i < kListMax; ++i)
      out.results.push_back(InfoOf(types[params + i], a_.Find(func, "res_attrs"), i));
    const Range regions = a_.code.ops[func].regions;
    if (regions.size != 1) return out;
    const RawRegion& region = a_.code.regions[regions.begin];
    for (size_t i = 0; i < std::min<size_t>(out.params.size(), region.args.size); ++i) {
      const uint32_t location = a_.code.arg_locations[region.arg_locations + i];
      if (const Attr* const named = FindAttr(location, AttrKind::kNamed))
        out.params[i].name = Shown(Text(Refs(*named)[0]));
    }
    return out;
  }

  // ---- Ops. -------------------------------------------------------------------------------------
  static bool IsStructural(const OpForm& form) {
    return form.dialect == "builtin" || form.name == "func" || form.name == "return" ||
           (form.dialect == "sdy" && form.name == "mesh");
  }
  void CountAll(Inspection* out) const {
    std::map<std::string, int64_t> all, lacking;
    for (uint32_t i = 0; i < a_.code.ops.size(); ++i) {
      const OpForm& form = a_.form(a_.code.ops[i]);
      if (IsStructural(form)) continue;
      const std::string name = NameOf(form);
      ++all[name];
      if (FindImport(form.dialect, form.name) == nullptr) {
        ++lacking[name];
      } else if (form.name == "custom_call") {
        const std::string_view target = Text(a_.Find(i, "call_target_name"));
        if (!KnowsTarget(target) && lacking.size() < kListMax)
          ++lacking[absl::StrCat(name, " @", Shown(target))];
      }
    }
    out->ops = {all.begin(), all.end()};
    out->lacking = {lacking.begin(), lacking.end()};
  }

  const Artifact& a_;
};

void CountOps(const Function& f, std::map<std::string, int64_t>* counts) {
  for (const Op& op : f.ops) {
    ++(*counts)[std::string(op.def->name)];
    for (const FunctionRef& region : op.regions) CountOps(*region, counts);
  }
}

std::vector<ValueInfo> ValueInfosOf(const std::vector<Type>& types,
                                    const std::vector<std::string>& names,
                                    const std::vector<std::optional<PartitionSpec>>& shardings) {
  std::vector<ValueInfo> out(types.size());
  for (size_t i = 0; i < types.size(); ++i) {
    out[i].type = types[i].ToString();
    if (i < names.size()) out[i].name = names[i];
    if (i < shardings.size() && shardings[i]) out[i].sharding = shardings[i]->ToString();
  }
  return out;
}

}  // namespace

bool IsArtifact(std::string_view bytes) { return bytes.substr(0, 4) == "ML\xefR"; }

Signature SignatureOf(const Artifact& artifact) { return Inspector(artifact).MainSignature(); }

Inspection Inspect(const Artifact& artifact) { return Inspector(artifact).Run(); }

Inspection Inspect(const Program& program) {
  const Function& entry = *program.entry;
  Inspection out;
  out.name = entry.name;
  out.main = {ValueInfosOf(entry.param_types(), program.in_names, program.in_shardings),
              ValueInfosOf(entry.result_types(), program.out_names, program.out_shardings)};
  std::map<std::string, int64_t> counts;
  CountOps(entry, &counts);
  out.ops = {counts.begin(), counts.end()};
  if (!program.mesh().axes.empty()) out.meshes.emplace_back("", program.mesh());
  return out;
}

}  // namespace tessera::ir::stablehlo
