// Chooses the program's mesh from an artifact and translates every sharding of the artifact to its
// axes. The importer makes one Shardings for each artifact and asks it for each value and op.
#include "ir/stablehlo/shardings.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_exception.h"
#include "ir/stablehlo/values.h"

namespace tessera::ir::stablehlo {
namespace {

constexpr size_t kAxesMax = 32;
constexpr size_t kMeshesMax = 64;
constexpr size_t kTextsMax = 1024;
constexpr size_t kTextBytesMax = size_t{64} << 20;
constexpr int64_t kDimsMax = 64;
constexpr size_t kPartsMax = 256;  // parts of axes, which cut the mesh

// Returns the number of devices in a step along axis `i`.
int64_t StrideOf(const Mesh& mesh, size_t i) {
  int64_t stride = 1;
  for (size_t k = i + 1; k < mesh.axes.size(); ++k) stride *= mesh.axes[k].size;
  return stride;
}

}  // namespace

bool IsUnconstrained(const PartitionSpec& spec) {
  return !spec.dims.empty() && spec.open.size() == spec.dims.size() &&
         std::all_of(spec.open.begin(), spec.open.end(), [](bool open) { return open; }) &&
         std::all_of(spec.dims.begin(), spec.dims.end(),
                     [](const AxisList& axes) { return axes.empty(); });
}

uint32_t InDictionary(const Artifact& a, uint32_t dictionary, std::string_view name) {
  if (dictionary == kNone || a.attrs[dictionary].kind != AttrKind::kDictionary) return kNone;
  if (const size_t entries = a.attrs[dictionary].refs.size / 2; entries > kDictionaryMax)
    Throw(ErrorKind::kLimitExceeded, absl::StrCat("StableHLO: a dictionary of attributes has ",
                                                  entries, " entries; at most ", kDictionaryMax));
  return a.InDictionary(dictionary, name);
}

// ---- Meshes. ------------------------------------------------------------------------------------
Shardings::Shardings(const Artifact& artifact) : a_(artifact) {
  if (a_.code.ops.empty()) return;
  const auto count = [&](std::string_view name) -> std::optional<int64_t> {
    const uint32_t attr = InDictionary(a_, a_.code.ops[0].attrs, name);
    if (attr == kNone) return std::nullopt;
    return std::max<int64_t>(IntOf(a_, attr, name), 1);
  };
  num_replicas_ = count("mhlo.num_replicas").value_or(1);
  num_partitions_ = count("mhlo.num_partitions");
  ReadMeshes();
  // Take the mesh with the most axes, so that the axes of the others lie along its axes. A mesh
  // whose devices are in another order is used only for arguments if there are other meshes.
  const DeclaredMesh* most = nullptr;
  for (const auto& [name, mesh] : declared_) {
    if (mesh.mesh.empty()) continue;
    const auto rank = [](const DeclaredMesh& m) {
      return std::pair(m.device_ids.empty(), m.mesh.axes.size());
    };
    if (most == nullptr || rank(mesh) > rank(*most)) most = &mesh;
  }
  if (most != nullptr) {
    mesh_ = most->mesh;
    device_ids_ = most->device_ids;
  }
  if (mesh_.empty()) {
    DeriveMesh();
  } else {
    CutMesh();
  }
  position_of_.assign(device_ids_.size(), -1);
  for (size_t i = 0; i < device_ids_.size(); ++i) position_of_[device_ids_[i]] = i;
}

void Shardings::CheckDeclaredMesh(std::string_view what, DeclaredMesh* declared) {
  const Mesh& mesh = declared->mesh;
  if (mesh.axes.size() > kAxesMax)
    NotSupported(what, absl::StrCat("has more than ", kAxesMax, " axes; use fewer"));
  ThrowIfError(CheckMesh(mesh));
  std::vector<int64_t>& ids = declared->device_ids;
  std::vector<int64_t> sorted = ids;
  std::sort(sorted.begin(), sorted.end());
  bool in_order = true,
       ids_fit = mesh.empty() || static_cast<int64_t>(ids.size()) == mesh.num_devices();
  for (size_t i = 0; i < ids.size(); ++i) {
    ids_fit &= mesh.empty() || sorted[i] == static_cast<int64_t>(i);
    in_order &= ids[i] == static_cast<int64_t>(i);
  }
  if (!ids.empty() && !ids_fit)
    Malformed(what, "has device ids that are not a permutation of 0, 1, ...");
  if (in_order && !mesh.empty()) ids.clear();
}

void Shardings::Declare(std::string name, DeclaredMesh mesh) {
  const std::string what = absl::StrCat("the mesh ", Quoted(name));
  if (declared_.size() == kMeshesMax)
    NotSupported(what, absl::StrCat("is one of more than ", kMeshesMax, "; use one"));
  CheckDeclaredMesh(what, &mesh);
  if (!declared_.emplace(std::move(name), std::move(mesh)).second)
    Malformed(what, "is declared twice");
}

Shardings::DeclaredMesh Shardings::MeshOf(uint32_t attr, std::string_view what) const {
  const Attr& mesh = AttrOf(a_, attr, AttrKind::kMesh, what);
  const absl::Span<const int64_t> ints = Slice(a_.ints, mesh.ints);
  DeclaredMesh out;
  // A mesh of Shardy has axes, then ids. A mesh of VHLO has two attributes.
  if (ints.empty())
    NotSupported(what, "is a mesh of VHLO, which Tessera does not read; export with Shardy");
  for (const uint32_t ref : Slice(a_.refs, mesh.refs)) {
    const Attr& axis = AttrOf(a_, ref, AttrKind::kMeshAxis, what);
    if (axis.refs.size != 0)
      NotSupported(what, "is a mesh of VHLO, which Tessera does not read; export with Shardy");
    out.mesh.axes.push_back({std::string(axis.text()), a_.ints[axis.ints.begin]});
  }
  out.device_ids.assign(ints.begin() + 2, ints.end());
  return out;
}

const Shardings::DeclaredMesh& Shardings::InlineMesh(uint32_t attr, std::string_view what) const {
  if (const auto known = inline_meshes_.find(attr); known != inline_meshes_.end())
    return known->second;
  if (inline_meshes_.size() == kMeshesMax)
    NotSupported(what, "has one of too many meshes that are not declared; declare one mesh");
  DeclaredMesh mesh = MeshOf(attr, what);
  CheckDeclaredMesh(what, &mesh);
  return inline_meshes_[attr] = std::move(mesh);
}

void Shardings::ReadMeshes() {
  const std::vector<RawOp>& ops = a_.code.ops;
  if (ops[0].regions.size == 1) {
    const RawRegion& module = a_.code.regions[ops[0].regions.begin];
    for (uint32_t i = module.begin; i < module.end; i = ops[i].end)
      if (a_.form(ops[i]).dialect == "sdy" && a_.form(ops[i]).name == "mesh")
        Declare(std::string(TextOf(a_, a_.Find(i, "sym_name"), "mesh: sym_name")),
                MeshOf(a_.Find(i, "mesh"), "mesh"));
  }
  const uint32_t text = FrontendAttr(ops[0].attrs, "xla.sdy.meshes");
  if (text == kNone || !declared_.empty()) return;
  for (NamedMesh& mesh : ParseMeshes(TextOf(a_, text, "xla.sdy.meshes"), "xla.sdy.meshes"))
    Declare(std::move(mesh.name), {Mesh{std::move(mesh.axes)}, std::move(mesh.device_ids)});
}

const TiledSharding& Shardings::ParsedTiled(std::string_view text, std::string_view what) const {
  if (const auto known = tiled_by_text_.find(text); known != tiled_by_text_.end())
    return known->second;
  if (tiled_by_text_.size() == kTextsMax)
    NotSupported("mhlo.sharding", "has too many different texts; export with Shardy");
  // A text that does not parse is parsed again each time.
  ChargeText(text);
  return tiled_by_text_[text] = ParseTiled(text, what);
}

// Makes a mesh for an artifact of GSPMD, which declares none. The number of devices comes from
// mhlo.num_partitions or the largest tiling. The boundaries of all axes that the texts and the
// replica groups need cut the row of devices into the axes of the new mesh; they must divide each
// other.
void Shardings::DeriveMesh() {
  int64_t devices = num_partitions_.value_or(1);
  if (num_partitions_ == 1) return;
  for (size_t i = 0; i < a_.attrs.size(); ++i) {
    const uint32_t attr = InDictionary(a_, i, "mhlo.sharding");
    if (attr == kNone) continue;
    // A text that is wrong is an error where it is used.
    int64_t tiles = 1;
    const absl::Status read = CatchStatus(
        [&] { tiles = ParsedTiled(TextOf(a_, attr, "mhlo.sharding"), "mhlo.sharding").devices; });
    if (read.ok() && !num_partitions_) devices = std::max(devices, tiles);
  }
  if (devices == 1) return;
  if (devices > kTiledDevicesMax)
    NotSupported(
        "mhlo.num_partitions",
        "is more than a program without a mesh may have; export with Shardy, which declares one");
  std::vector<AxisRange> ranges;
  for (const auto& [text, tiled] : tiled_by_text_) {
    if (tiled.devices != devices) continue;
    ranges.insert(ranges.end(), tiled.manual.begin(), tiled.manual.end());
    for (const std::vector<AxisRange>& dim : tiled.dims)
      ranges.insert(ranges.end(), dim.begin(), dim.end());
  }
  std::set<uint32_t> seen;
  for (uint32_t op = 0; op < a_.code.ops.size(); ++op) {
    const uint32_t attr = a_.Find(op, "replica_groups");
    if (attr == kNone || a_.attrs[attr].kind != AttrKind::kDense || !seen.insert(attr).second)
      continue;
    const Tensor groups = TensorOf(a_, attr, "replica_groups");
    std::vector<int64_t> group = IntsOf(a_, attr, "replica_groups");
    if (groups.type.rank() == 2 && groups.type.shape[0] > 0) group.resize(groups.type.shape[1]);
    std::vector<AxisRange> along;
    if (FindGroupRanges(group, &along)) ranges.insert(ranges.end(), along.begin(), along.end());
  }
  std::set<int64_t> cuts = {1, devices};
  for (const AxisRange& range : ranges) {
    cuts.insert(range.stride);
    cuts.insert(range.stride * range.size);
  }
  int64_t before = 1;
  for (const int64_t cut : cuts) {
    if (cut % before != 0 || cut > devices)
      NotSupported("mhlo.sharding",
                   "has texts that do not lie along the axes of a single mesh; shard by the axes "
                   "of one mesh");
    if (cut > before) mesh_.axes.insert(mesh_.axes.begin(), {"", cut / before});
    before = cut;
  }
  for (size_t i = 0; i < mesh_.axes.size(); ++i) mesh_.axes[i].name = absl::StrCat("axis", i);
}

// Refines the mesh. Every axis of another mesh, and every part of an axis that a sharding names,
// has two boundaries in the row of devices. Boundaries that fit become cuts, and an axis with cuts
// inside is replaced by several. The names of the new axes must not clash with declared ones.
void Shardings::CutMesh() {
  const int64_t devices = mesh_.num_devices();
  // The positions, in devices, where axes begin. A position that does not fit the earlier ones is
  // left out; it is then an error where it is needed.
  std::set<int64_t> cuts = {1, devices};
  const auto cut = [&](int64_t at) {
    const auto above = cuts.upper_bound(at);
    if (above == cuts.begin() || above == cuts.end()) return;
    if (*above % at == 0 && at % *std::prev(above) == 0) cuts.insert(at);
  };
  for (size_t i = 0; i < mesh_.axes.size(); ++i) cut(StrideOf(mesh_, i));
  for (const auto& [name, declared] : declared_)
    if (HasOurDevices(declared))
      for (size_t i = 0; i < declared.mesh.axes.size(); ++i) cut(StrideOf(declared.mesh, i));
  size_t parts = 0;
  for (uint32_t attr = 0; attr < a_.attrs.size() && parts < kPartsMax; ++attr) {
    if (a_.attrs[attr].kind != AttrKind::kAxisRef) continue;
    AxisPart part;
    if (!CatchStatus([&] { part = AxisOf(attr, "an axis"); }).ok() || part.size == 0) continue;
    ++parts;
    for (const auto& [name, declared] : declared_) {
      if (!HasOurDevices(declared)) continue;
      const std::optional<AxisRange> range = RangeOf(declared.mesh, part);
      if (!range) continue;
      cut(range->stride);
      cut(range->stride * range->size);
    }
  }
  Mesh finer;
  for (size_t i = 0; i < mesh_.axes.size(); ++i) {
    const MeshAxis& axis = mesh_.axes[i];
    const int64_t stride = StrideOf(mesh_, i);
    std::vector<int64_t> within(cuts.lower_bound(stride), cuts.upper_bound(stride * axis.size));
    if (within.size() <= 2) {
      finer.axes.push_back(axis);
      continue;
    }
    int next = 0;
    for (size_t k = within.size() - 1; k > 0; --k) {
      std::string name;
      do name = absl::StrCat(axis.name, "_", next++);
      while (mesh_.Has(name) || finer.Has(name));
      finer.axes.push_back({std::move(name), within[k] / within[k - 1]});
    }
  }
  mesh_ = std::move(finer);
}

int64_t Shardings::PositionOf(int64_t device) const {
  if (device < 0 || device >= mesh_.num_devices()) return -1;
  return device_ids_.empty() ? device : position_of_[device];
}

const Shardings::DeclaredMesh& Shardings::MeshNamed(std::string_view name,
                                                    std::string_view what) const {
  const auto found = declared_.find(name);
  if (found == declared_.end()) Malformed(what, absl::StrCat("has no mesh ", Quoted(name)));
  return found->second;
}

// ---- Axes. --------------------------------------------------------------------------------------
std::optional<AxisList> Shardings::AxesAt(const AxisRange& range) const {
  AxisList out;
  int64_t size = 1;
  for (size_t i = 0; i < mesh_.axes.size(); ++i) {
    const int64_t stride = StrideOf(mesh_, i), n = mesh_.axes[i].size;
    if (n == 1 || stride < range.stride || stride * n > range.stride * range.size) continue;
    out.push_back(mesh_.axes[i].name);
    size *= n;
  }
  if (size != range.size) return std::nullopt;
  return out;
}

std::optional<AxisRange> Shardings::RangeOf(const Mesh& mesh, const AxisPart& axis) {
  const int i = mesh.IndexOf(axis.name);
  if (i < 0) return std::nullopt;
  const int64_t stride = StrideOf(mesh, i), size = mesh.axes[i].size;
  if (axis.size == 0) return AxisRange{stride, size};
  if (axis.before < 1 || axis.size < 1 || axis.before > size || axis.size > size ||
      size % (axis.before * axis.size) != 0)
    return std::nullopt;
  return AxisRange{stride * (size / (axis.before * axis.size)), axis.size};
}

bool Shardings::HasOurDevices(const DeclaredMesh& mesh) const {
  return mesh.mesh.num_devices() == mesh_.num_devices() && mesh.device_ids == device_ids_;
}

void Shardings::AddAxis(const DeclaredMesh& mesh, const AxisPart& axis, AxisList* out,
                        std::string_view what) const {
  const std::optional<AxisRange> range = RangeOf(mesh.mesh, axis);
  if (!range)
    Malformed(what, absl::StrCat("is sharded along ", Quoted(axis.name), ", which is not an axis",
                                 axis.size == 0 ? "" : ", or has no such part"));
  if (axis.size == 0 && mesh.mesh.SameShape(mesh_) && mesh.device_ids == device_ids_) {
    out->push_back(axis.name);
    return;
  }
  if (!HasOurDevices(mesh))
    NotSupported(what, absl::StrCat("is sharded along ", Quoted(axis.name), " of the mesh ",
                                    mesh.mesh.ToString(), ", which does not have the devices of ",
                                    mesh_.ToString(), " in the same order; use one mesh"));
  const std::optional<AxisList> axes = AxesAt(*range);
  if (!axes)
    NotSupported(
        what,
        absl::StrCat("is sharded along ", Quoted(axis.name), " of the mesh ", mesh.mesh.ToString(),
                     ", which is not an axis of the program's mesh, ", mesh_.ToString(),
                     axis.size == 0 ? "; use one mesh"
                                    : ": a part of an axis; declare a mesh with axes for it"));
  out->insert(out->end(), axes->begin(), axes->end());
}

AxisPart Shardings::AxisOf(uint32_t attr, std::string_view what) const {
  const Attr& axis = AttrOf(a_, attr, AttrKind::kAxisRef, what);
  const absl::Span<const uint32_t> refs = Slice(a_.refs, axis.refs);
  AxisPart out;
  // An axis of Shardy has a text; one of VHLO has an attribute.
  out.name = refs.size() == 1 ? axis.text() : TextOf(a_, refs[0], what);
  if (refs.back() == kNone) return out;
  const Attr& part = AttrOf(a_, refs.back(), AttrKind::kSubAxis, what);
  out.before = a_.ints[part.ints.begin];
  out.size = a_.ints[part.ints.begin + 1];
  if (out.before < 1 || out.size < 1) Malformed(what, "has a part of an axis that is empty");
  return out;
}

const Shardings::DeclaredMesh& Shardings::ReferredMesh(uint32_t attr, std::string_view what) const {
  return a_.attrs[attr].kind == AttrKind::kMesh ? InlineMesh(attr, what)
                                                : MeshNamed(TextOf(a_, attr, what), what);
}

AxisList Shardings::TranslateAxes(const DeclaredMesh* mesh, const std::vector<AxisPart>& axes,
                                  std::string_view what) const {
  AxisList out;
  for (const AxisPart& axis : axes) {
    const auto has = [&](const auto& declared) { return declared.second.mesh.Has(axis.name); };
    const auto found = std::find_if(declared_.begin(), declared_.end(), has);
    if (mesh != nullptr) {
      AddAxis(*mesh, axis, &out, what);
    } else if (mesh_.Has(axis.name) && axis.size == 0) {
      out.push_back(axis.name);
    } else if (found != declared_.end()) {
      AddAxis(found->second, axis, &out, what);
    } else {
      Malformed(what, absl::StrCat("is along ", Quoted(axis.name), ", which is not an axis"));
    }
  }
  return out;
}
AxisList Shardings::InMeshOrder(const AxisList& axes) const {
  AxisList out;
  for (const MeshAxis& axis : mesh_.axes)
    if (std::find(axes.begin(), axes.end(), axis.name) != axes.end()) out.push_back(axis.name);
  return out;
}

AxisList Shardings::ManualAxes(uint32_t attr, absl::Span<const uint32_t> boundary,
                               std::string_view what) const {
  const Attr& list = AttrOf(a_, attr, AttrKind::kManualAxes, what);
  if (list.refs.size > kAxesMax) Malformed(what, "are too many");
  std::vector<AxisPart> axes;
  for (const uint32_t ref : Slice(a_.refs, list.refs))
    axes.push_back({std::string(TextOf(a_, ref, what))});
  // All shardings of a boundary are of one mesh. That mesh may use a name for another axis than
  // other meshes do.
  const DeclaredMesh* mesh = nullptr;
  for (const uint32_t of_values : boundary) {
    const Attr& each = AttrOf(a_, of_values, AttrKind::kShardingPerValue, what);
    if (mesh != nullptr || each.refs.size == 0) continue;
    const Attr& first = AttrOf(a_, Slice(a_.refs, each.refs)[0], AttrKind::kTensorSharding, what);
    mesh = &ReferredMesh(Slice(a_.refs, first.refs)[0], what);
  }
  return InMeshOrder(TranslateAxes(mesh, axes, what));
}

AxisList Shardings::GroupAxes(uint32_t attr, std::string_view what) const {
  const Attr& groups = AttrOf(a_, attr, AttrKind::kReplicaGroupMeshAxes, what);
  const absl::Span<const uint32_t> refs = Slice(a_.refs, groups.refs);
  const Attr& list = AttrOf(a_, refs.back(), AttrKind::kArray, what);
  if (list.refs.size > kAxesMax) Malformed(what, "have too many axes");
  std::vector<AxisPart> axes;
  for (const uint32_t ref : Slice(a_.refs, list.refs)) axes.push_back(AxisOf(ref, what));
  const bool is_named = a_.attrs[refs[0]].kind == AttrKind::kSymbol;
  return TranslateAxes(is_named ? &ReferredMesh(refs[0], what) : nullptr, axes, what);
}

// ---- Shardings. ---------------------------------------------------------------------------------
PartitionSpec Shardings::SpecOf(const NamedSharding& sharding, const DeclaredMesh& mesh,
                                std::string_view what) const {
  if (mesh.mesh.empty() && mesh.device_ids.size() == 1 && mesh_.num_devices() > 1)
    NotSupported(what,
                 "lies on one device of several, which Tessera's shardings cannot say; leave its "
                 "sharding out");
  PartitionSpec spec;
  for (const std::vector<AxisPart>& axes : sharding.dims)
    spec.dims.push_back(TranslateAxes(&mesh, axes, what));
  spec.unreduced = InMeshOrder(TranslateAxes(&mesh, sharding.unreduced, what));
  const AxisList replicated = TranslateAxes(&mesh, sharding.replicated, what);
  std::set<std::string_view> seen;
  for (const AxisList& axes : spec.dims)
    for (const std::string& axis : axes)
      if (!seen.insert(axis).second)
        Malformed(what, absl::StrCat("is sharded along ", Quoted(axis), " twice"));
  spec.open = sharding.open;
  // An open dim is closed if no axis may be used there. Otherwise the planner may also use the
  // replicated axes.
  const auto may_use = [&](const MeshAxis& axis) {
    return !spec.Mentions(axis.name) &&
           std::find(replicated.begin(), replicated.end(), axis.name) == replicated.end();
  };
  if (!sharding.replicated.empty() && std::none_of(mesh_.axes.begin(), mesh_.axes.end(), may_use))
    spec.open.clear();
  // A pending sum keeps its open dims, since its reader may leave all of them open.
  if (spec.unreduced.empty() &&
      std::find(spec.open.begin(), spec.open.end(), true) == spec.open.end()) {
    spec.open.clear();
    while (!spec.dims.empty() && spec.dims.back().empty()) spec.dims.pop_back();
  }
  return spec;
}

NamedSharding Shardings::NamedShardingOf(uint32_t attr, std::string_view what) const {
  const Attr& sharding = AttrOf(a_, attr, AttrKind::kTensorSharding, what);
  const absl::Span<const uint32_t> refs = Slice(a_.refs, sharding.refs);
  const absl::Span<const int64_t> counts = Slice(a_.ints, sharding.ints);
  NamedSharding out;
  size_t next = 1;
  if (counts[0] > kDimsMax || refs.size() > 2 * kDimsMax) Malformed(what, "has too many dims");
  for (int64_t d = 0; d < counts[0]; ++d) {
    const Attr& dim = AttrOf(a_, refs[next++], AttrKind::kDimensionSharding, what);
    const absl::Span<const int64_t> ints = Slice(a_.ints, dim.ints);  // axes, closed, priority
    std::vector<AxisPart>& axes = out.dims.emplace_back();
    if (dim.refs.size > kAxesMax) Malformed(what, "has too many axes");
    for (const uint32_t ref : Slice(a_.refs, dim.refs)) axes.push_back(AxisOf(ref, what));
    out.open.push_back(ints[1] == 0);
  }
  for (int64_t i = 0; i < counts[1]; ++i) out.replicated.push_back(AxisOf(refs[next++], what));
  // The pending reduction, if it is not a sum, comes after the counts.
  if (next < refs.size() && counts.size() > 3 && counts[3] != 0)
    NotSupported(
        what,
        "has unreduced axes of a reduction other than a sum; reduce the value along them first");
  while (next < refs.size()) out.unreduced.push_back(AxisOf(refs[next++], what));
  return out;
}

PartitionSpec Shardings::Spec(uint32_t attr, std::string_view what) const {
  const NamedSharding named = NamedShardingOf(attr, what);
  return SpecOf(named, ReferredMesh(Slice(a_.refs, a_.attrs[attr].refs)[0], what), what);
}

std::vector<PartitionSpec> Shardings::Specs(uint32_t attr, size_t n, std::string_view what) const {
  std::vector<PartitionSpec> out;
  if (AttrOf(a_, attr, AttrKind::kShardingPerValue, what).refs.size != n)
    Malformed(what, "do not have one sharding for each value");
  for (const uint32_t ref :
       Slice(a_.refs, AttrOf(a_, attr, AttrKind::kShardingPerValue, what).refs))
    out.push_back(Spec(ref, absl::StrCat(ToAbsl(what), "[", out.size(), "]")));
  return out;
}

// Translates a tiled sharding to axes. It works only if the tiles are for the devices of the
// program's mesh in their order, because a tiling counts devices and does not name axes. Trailing
// dims without axes are dropped, so that equal shardings have one form.
PartitionSpec Shardings::SpecFromText(std::string_view text, std::string_view what) const {
  const TiledSharding& tiled = ParsedTiled(text, what);
  PartitionSpec spec;
  if (tiled.kind == TiledSharding::kReplicated) return spec;
  if (tiled.kind == TiledSharding::kManual)
    NotSupported(what, "is manual, outside of a manual computation; export with Shardy");
  if (tiled.kind == TiledSharding::kMaximal) {
    if (mesh_.num_devices() == 1) return spec;
    NotSupported(what,
                 "lies on one device of several, which Tessera's shardings cannot say; leave its "
                 "sharding out");
  }
  for (const std::vector<AxisRange>& ranges : tiled.dims) {
    AxisList& dim = spec.dims.emplace_back();
    for (const AxisRange& range : ranges) {
      const std::optional<AxisList> axes =
          tiled.devices == mesh_.num_devices() && device_ids_.empty() ? AxesAt(range)
                                                                      : std::nullopt;
      if (!axes)
        NotSupported(what, absl::StrCat("has the sharding ", Quoted(text),
                                        ", which lies along no axes of the mesh ", mesh_.ToString(),
                                        "; shard by whole axes"));
      dim.insert(dim.end(), axes->begin(), axes->end());
    }
  }
  while (!spec.dims.empty() && spec.dims.back().empty()) spec.dims.pop_back();
  return spec;
}

AxisList Shardings::ManualAxesFromText(std::string_view text, std::string_view what) const {
  const TiledSharding& tiled = ParsedTiled(text, what);
  AxisList out;
  if (tiled.kind == TiledSharding::kManual)
    for (const MeshAxis& axis : mesh_.axes) out.push_back(axis.name);
  for (const AxisRange& range : tiled.manual) {
    const std::optional<AxisList> axes = AxesAt(range);
    if (!axes) NotSupported(what, "is manual along no axes of the mesh; make whole axes manual");
    out.insert(out.end(), axes->begin(), axes->end());
  }
  return out;
}

// ---- What ops and values carry. -----------------------------------------------------------------
uint32_t Shardings::FrontendAttr(uint32_t dictionary, std::string_view name) const {
  return InDictionary(a_, InDictionary(a_, dictionary, "mhlo.frontend_attributes"), name);
}

std::string_view Shardings::FrontendText(uint32_t attr, std::string_view what) const {
  const std::string_view text = TextOf(a_, attr, what);
  ChargeText(text);
  return text;
}

void Shardings::ChargeText(std::string_view text) const {
  text_bytes_ += text.size();
  if (text_bytes_ > kTextBytesMax)
    Throw(ErrorKind::kLimitExceeded, "StableHLO: the texts of shardings are too long");
}

std::vector<PartitionSpec> Shardings::CarriedSpecs(uint32_t dictionary, std::string_view name,
                                                   std::string_view what) const {
  std::vector<PartitionSpec> out;
  const std::string_view text = FrontendText(FrontendAttr(dictionary, name), what);
  for (const NamedSharding& sharding : ParseShardingPerValue(text, what))
    out.push_back(SpecOf(sharding, MeshNamed(sharding.mesh, what), what));
  return out;
}

AxisList Shardings::CarriedAxes(uint32_t dictionary, std::string_view name,
                                std::string_view shardings, std::string_view what) const {
  const std::string_view text = FrontendText(FrontendAttr(dictionary, shardings), what);
  const std::vector<NamedSharding> boundary = ParseShardingPerValue(text, what);
  const DeclaredMesh* const mesh = boundary.empty() ? nullptr : &MeshNamed(boundary[0].mesh, what);
  std::vector<AxisPart> axes;
  for (std::string& axis :
       ParseManualAxes(FrontendText(FrontendAttr(dictionary, name), what), what))
    axes.push_back({std::move(axis)});
  return InMeshOrder(TranslateAxes(mesh, axes, what));
}

bool Shardings::IsManual(uint32_t dictionary, std::string_view what) const {
  const uint32_t attr = InDictionary(a_, dictionary, "mhlo.sharding");
  return attr != kNone && ParsedTiled(TextOf(a_, attr, what), what).kind == TiledSharding::kManual;
}

// Returns where an argument lies if its mesh has our devices in another order. The plan takes a
// copy of such an argument, so only its original position is recorded, in axes of its own mesh.
// Anything that this form cannot express falls through to Carried, which refuses it with a reason.
std::optional<OtherPlacement> Shardings::CarriedOtherPlacement(uint32_t dictionary,
                                                               std::string_view what) const {
  const uint32_t attr = InDictionary(a_, dictionary, "sdy.sharding");
  if (attr == kNone) return std::nullopt;
  const NamedSharding named = NamedShardingOf(attr, what);
  const DeclaredMesh& mesh = ReferredMesh(Slice(a_.refs, a_.attrs[attr].refs)[0], what);
  if (mesh.mesh.num_devices() != mesh_.num_devices() || HasOurDevices(mesh)) return std::nullopt;
  OtherPlacement out{mesh.mesh, mesh.device_ids, {}};
  bool whole_axes = named.unreduced.empty();
  for (const std::vector<AxisPart>& axes : named.dims) {
    AxisList& dim = out.spec.dims.emplace_back();
    for (const AxisPart& axis : axes) {
      whole_axes =
          whole_axes && axis.size == 0 && mesh.mesh.Has(axis.name) && !out.spec.Mentions(axis.name);
      dim.push_back(axis.name);
    }
  }
  while (!out.spec.dims.empty() && out.spec.dims.back().empty()) out.spec.dims.pop_back();
  // A value that is whole on every device needs no entry. Parts of axes are left to Carried to
  // refuse.
  if (out.spec.dims.empty() || !whole_axes) return std::nullopt;
  if (out.devices.empty()) {
    out.devices.resize(static_cast<size_t>(mesh_.num_devices()));
    std::iota(out.devices.begin(), out.devices.end(), 0);
  }
  return out;
}

std::optional<PartitionSpec> Shardings::Carried(uint32_t dictionary, std::string_view what) const {
  const auto carried = [&]() -> std::optional<PartitionSpec> {
    if (const uint32_t attr = InDictionary(a_, dictionary, "sdy.sharding"); attr != kNone)
      return Spec(attr, what);
    constexpr std::string_view kText = "xla.sdy.sharding";
    if (const uint32_t attr = FrontendAttr(dictionary, kText); attr != kNone) {
      const std::string_view text = FrontendText(attr, what);
      if (absl::StartsWith(ToAbsl(text), "#sdy.sharding_per_value")) {
        std::vector<PartitionSpec> specs = CarriedSpecs(dictionary, kText, what);
        if (specs.size() != 1) Malformed(what, "does not have exactly one sharding");
        return specs[0];
      }
      const NamedSharding sharding = ParseSharding(text, what);
      return SpecOf(sharding, MeshNamed(sharding.mesh, what), what);
    }
    if (const uint32_t attr = InDictionary(a_, dictionary, "mhlo.sharding"); attr != kNone)
      return SpecFromText(TextOf(a_, attr, what), what);
    return std::nullopt;
  };
  std::optional<PartitionSpec> spec = carried();
  return spec && !IsUnconstrained(*spec) ? spec : std::nullopt;
}

}  // namespace tessera::ir::stablehlo
