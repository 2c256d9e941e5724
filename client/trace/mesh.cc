// Meshes, partition specs and the context mesh of a thread. Users make them; the tracer and put
// read the context mesh. make_mesh, which asks a session for devices, is in make_mesh.cc.
#include "client/mesh.h"

#include "client/error.h"

namespace tessera {
namespace {
thread_local Mesh current_mesh;
}  // namespace

std::vector<std::string> Mesh::axis_names() const {
  std::vector<std::string> out;
  for (const ir::MeshAxis& a : logical.axes) out.push_back(a.name);
  return out;
}

Mesh Mesh::With(AxisType type) const {
  Mesh out = *this;
  for (ir::MeshAxis& a : out.logical.axes) a.type = type;
  return out;
}

DimSpec::DimSpec(NoneType) {}
DimSpec::DimSpec(const char* axis) : axes{axis} {}
DimSpec::DimSpec(std::string axis) : axes{std::move(axis)} {}
DimSpec::DimSpec(ir::AxisList list) : axes(std::move(list)) {}
DimSpec::DimSpec(std::initializer_list<const char*> list) : axes(list.begin(), list.end()) {}
DimSpec::DimSpec(const DimSpec&) = default;
DimSpec::DimSpec(DimSpec&&) noexcept = default;
DimSpec& DimSpec::operator=(const DimSpec&) = default;
DimSpec& DimSpec::operator=(DimSpec&&) noexcept = default;
DimSpec::~DimSpec() = default;
DimSpec DimSpec::Absent() {
  DimSpec d(None);
  d.given = false;
  return d;
}

Mesh abstract_mesh(const std::vector<int64_t>& shape, const std::vector<std::string>& names,
                   const std::vector<AxisType>& axis_types, Site site) {
  if (shape.size() != names.size() || (!axis_types.empty() && axis_types.size() != names.size())) {
    internal::ThrowError(ErrorKind::kValueError, site,
                         "make_mesh: axis_shapes and axis_names must have the same "
                         "length, but there are ",
                         shape.size(), " sizes, ", names.size(), " names and ", axis_types.size(),
                         " axis types");
  }
  Mesh mesh;
  for (size_t i = 0; i < shape.size(); ++i) {
    mesh.logical.axes.push_back(
        {names[i], shape[i], axis_types.empty() ? AxisType::kExplicit : axis_types[i]});
  }
  internal::ThrowIfError(ir::CheckMesh(mesh.logical), site);
  return mesh;
}

set_mesh::set_mesh(Mesh mesh) : saved_(std::move(current_mesh)) { current_mesh = std::move(mesh); }
set_mesh::~set_mesh() { current_mesh = std::move(saved_); }
const Mesh& context_mesh() { return current_mesh; }

PartitionSpec P(const DimSpec& d0, const DimSpec& d1, const DimSpec& d2, const DimSpec& d3,
                const DimSpec& d4, const DimSpec& d5) {
  PartitionSpec spec;
  for (const DimSpec* d : {&d0, &d1, &d2, &d3, &d4, &d5}) {
    if (!d->given) break;
    spec.dims.push_back(d->axes);
  }
  return spec;
}

PartitionSpec unreduced(const DimSpec& axes, PartitionSpec spec) {
  spec.unreduced = axes.axes;
  return spec;
}
PartitionSpec reduced(const DimSpec& axes, PartitionSpec spec) {
  spec.reduced = axes.axes;
  return spec;
}

}  // namespace tessera
