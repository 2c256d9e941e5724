// Meshes with devices, and partition specs: make_mesh, set_mesh, P.
//
// Values; thread-compatible. The context mesh (set_mesh) is thread-local.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "base/site.h"
#include "ir/mesh.h"

namespace tessera {

using ir::AxisType;
using ir::PartitionSpec;

class Session;

// A logical mesh and its devices, row-major; no devices: the server chooses them.
struct Mesh {
  ir::Mesh logical;
  std::vector<int64_t> devices;

  bool empty() const { return logical.empty(); }
  int64_t size() const { return logical.num_devices(); }
  int64_t size(std::string_view axis) const { return logical.SizeOf(axis); }
  std::vector<std::string> axis_names() const;
  // The same mesh with all axes of type `type`.
  Mesh With(AxisType type) const;
  std::string ToString() const { return logical.ToString(); }
  bool operator==(const Mesh&) const = default;
};

// Uses the first devices of the session (the default session if null). Axes are Explicit unless
// `axis_types` says otherwise, as in JAX.
Mesh make_mesh(const std::vector<int64_t>& shape, const std::vector<std::string>& names,
               const std::vector<AxisType>& axis_types = {}, Session* session = nullptr,
               Site site = Site::Here());
// A mesh without devices, for programs whose devices the server chooses.
Mesh abstract_mesh(const std::vector<int64_t>& shape, const std::vector<std::string>& names,
                   const std::vector<AxisType>& axis_types = {}, Site site = Site::Here());

// Devices that need not exist: programs can be planned for them, not run.
struct AbsentDevices {
  Mesh mesh;                 // abstract_mesh
  int64_t memory_bytes = 0;  // of each device
};

// Sets the context mesh of this thread for the lifetime of the object.
class [[nodiscard]] set_mesh {
 public:
  explicit set_mesh(Mesh mesh);
  ~set_mesh();
  set_mesh(const set_mesh&) = delete;
  set_mesh& operator=(const set_mesh&) = delete;

 private:
  Mesh saved_;
};
const Mesh& context_mesh();

// "No axis" in a spec, "not mapped" in in_axes, "not an array" in in_specs.
struct NoneType {};
inline constexpr NoneType None;

// The axes of one dim.
struct DimSpec {
  ir::AxisList axes;
  bool given = true;
  // NOLINTBEGIN(google-explicit-constructor): reads as the dim
  DimSpec(NoneType);
  DimSpec(const char* axis);
  DimSpec(std::string axis);
  DimSpec(ir::AxisList list);
  // NOLINTEND(google-explicit-constructor)
  DimSpec(std::initializer_list<const char*> list);
  DimSpec(const DimSpec&);
  DimSpec(DimSpec&&) noexcept;
  DimSpec& operator=(const DimSpec&);
  DimSpec& operator=(DimSpec&&) noexcept;
  ~DimSpec();
  static DimSpec Absent();
};

// P("data", None, {"x", "y"}): the axes that shard each dim; missing dims are not sharded.
PartitionSpec P(const DimSpec& d0 = DimSpec::Absent(), const DimSpec& d1 = DimSpec::Absent(),
                const DimSpec& d2 = DimSpec::Absent(), const DimSpec& d3 = DimSpec::Absent(),
                const DimSpec& d4 = DimSpec::Absent(), const DimSpec& d5 = DimSpec::Absent());

// JAX's P(..., unreduced={...}): that of an array whose shards are terms of a sum along these
// Explicit axes, which nobody has added up yet. And P(..., reduced={...}): of one that is equal
// along them, and whose gradient is to be unreduced there, so that it is added up once. The axes
// shard no dim.
PartitionSpec unreduced(const DimSpec& axes, PartitionSpec spec = {});
PartitionSpec reduced(const DimSpec& axes, PartitionSpec spec = {});

// The sharding of an op's result on the Explicit axes of the mesh in context; none: what follows
// from the operands' types.
using OutSharding = std::optional<PartitionSpec>;

}  // namespace tessera
