// Meshes with devices, and partition specs: make_mesh, set_mesh, P.
//
// Meshes and specs are values; thread-compatible. The context mesh (set_mesh) is thread-local.
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

// A logical mesh and its devices in row-major order. If there are no devices, the server chooses
// them.
struct Mesh {
  ir::Mesh logical;
  std::vector<int64_t> devices;

  bool empty() const { return logical.empty(); }
  int64_t size() const { return logical.num_devices(); }
  int64_t size(std::string_view axis) const { return logical.SizeOf(axis); }
  std::vector<std::string> axis_names() const;
  // Returns this mesh with all axes of type `type`.
  Mesh With(AxisType type) const;
  std::string ToString() const { return logical.ToString(); }
  bool operator==(const Mesh&) const = default;
};

// Makes a mesh of the first healthy devices of `session`, or of the default session if it is null.
// Axes are Explicit unless `axis_types` says otherwise, as in JAX. Throws NOT_ENOUGH_DEVICES, and
// VALUE_ERROR if the lists differ in length.
Mesh make_mesh(const std::vector<int64_t>& shape, const std::vector<std::string>& names,
               const std::vector<AxisType>& axis_types = {}, Session* session = nullptr,
               Site site = Site::Here());
// Makes a mesh without devices, for programs whose devices the server chooses.
Mesh abstract_mesh(const std::vector<int64_t>& shape, const std::vector<std::string>& names,
                   const std::vector<AxisType>& axis_types = {}, Site site = Site::Here());

// Devices that need not exist. Programs can be planned for them, but not run.
struct AbsentDevices {
  Mesh mesh;                 // made by abstract_mesh, without devices
  int64_t memory_bytes = 0;  // memory of each device
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

// Means "no axis" in a spec, "not mapped" in in_axes, and "not an array" in in_specs.
struct NoneType {};
inline constexpr NoneType None;

// The mesh axes that shard one dim.
struct DimSpec {
  ir::AxisList axes;
  // false only for an argument that P was not given
  bool given = true;
  // NOLINTBEGIN(google-explicit-constructor): conversion is intended
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

// P("data", None, {"x", "y"}) lists the axes that shard each dim. Missing dims are not sharded.
PartitionSpec P(const DimSpec& d0 = DimSpec::Absent(), const DimSpec& d1 = DimSpec::Absent(),
                const DimSpec& d2 = DimSpec::Absent(), const DimSpec& d3 = DimSpec::Absent(),
                const DimSpec& d4 = DimSpec::Absent(), const DimSpec& d5 = DimSpec::Absent());

// JAX's P(..., unreduced={...}) and P(..., reduced={...}). The shards of an array that is unreduced
// along Explicit axes are summands which have not been added up yet. An array that is reduced
// along axes is equal along them; its gradient is to be unreduced there, so that the gradient is
// added up only once. These axes shard no dim.
PartitionSpec unreduced(const DimSpec& axes, PartitionSpec spec = {});
PartitionSpec reduced(const DimSpec& axes, PartitionSpec spec = {});

// The sharding of an op's result on the Explicit axes of the mesh in context. Without a value, the
// sharding follows from the operands' types.
using OutSharding = std::optional<PartitionSpec>;

}  // namespace tessera
