// Logical meshes, and how the dims of an array are sharded over them.
//
// A mesh is symbolic: it has axis names, sizes and axis types, but no devices of a machine. The
// devices of a mesh are numbers, counted row-major over the axes in mesh order (the last axis
// changes fastest). These are value types; thread-compatible.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace tessera::ir {

// Says who decides the sharding along an axis: the planner, the types, or the user's per-shard
// code.
enum class AxisType : uint8_t { kAuto, kExplicit, kManual };
std::string_view AxisTypeName(AxisType type);

struct MeshAxis {
  std::string name;
  int64_t size = 1;
  AxisType type = AxisType::kAuto;
  bool operator==(const MeshAxis&) const = default;
};

struct Mesh {
  std::vector<MeshAxis> axes;

  bool operator==(const Mesh&) const = default;
  bool empty() const { return axes.empty(); }
  int64_t num_devices() const;
  int IndexOf(std::string_view axis) const;  // -1 if there is no such axis
  bool Has(std::string_view axis) const { return IndexOf(axis) >= 0; }
  // SizeOf and TypeOf of one axis require Has(axis).
  int64_t SizeOf(std::string_view axis) const;
  AxisType TypeOf(std::string_view axis) const;
  int64_t SizeOf(absl::Span<const std::string> axes) const;  // product of the sizes
  bool IsManual(std::string_view axis) const {
    return Has(axis) && TypeOf(axis) == AxisType::kManual;
  }
  std::vector<std::string> AxesOfType(AxisType type) const;  // in mesh order
  // Returns a copy in which the axes `names` have the type `type`.
  Mesh WithAxisType(absl::Span<const std::string> names, AxisType type) const;
  // Returns whether names and sizes are equal, whatever the axis types are.
  bool SameShape(const Mesh& other) const;
  // Coordinates returns the index of `device` along each axis. DeviceAt is the inverse.
  std::vector<int64_t> Coordinates(int64_t device) const;
  int64_t DeviceAt(absl::Span<const int64_t> coordinates) const;
  // Returns the row-major index of `device` within the product of `axes` (major to minor).
  int64_t IndexAlong(int64_t device, absl::Span<const std::string> axes) const;
  // Returns the devices that differ from `device` only along `axes`, ordered by IndexAlong.
  std::vector<int64_t> GroupOf(int64_t device, absl::Span<const std::string> axes) const;

  std::string ToString() const;  // (data=2, model=2:explicit)
};
// Checks that names are identifiers and differ, and that sizes are positive and their product is
// below 2^31.
absl::Status CheckMesh(const Mesh& mesh);

// Axis names in the given order. The axes of a dim go from major to minor.
using AxisList = std::vector<std::string>;
// For each dim of an array, the axes that shard it.
using DimAxes = std::vector<AxisList>;

// A sharding as the user writes it: the axes of each dim. Missing trailing dims are unsharded.
// Along the axes `unreduced` the array is a pending sum: each shard is a summand. Along the axes
// `reduced` the shards are equal, and the gradient is a pending sum. The planner may shard an
// `open` dim (`?` in text) over further axes.
struct PartitionSpec {
  DimAxes dims;
  AxisList unreduced, reduced;
  std::vector<bool> open;  // empty if no dim is open, otherwise as long as dims
  bool operator==(const PartitionSpec&) const = default;
  std::string ToString() const;  // P('x', None, ('y','z'))
  bool Mentions(std::string_view axis) const;
  bool IsOpen(int dim) const { return dim < static_cast<int>(open.size()) && open[dim]; }
};

}  // namespace tessera::ir
