// Logical meshes, and how the dims of an array are sharded over them.
//
// A mesh is symbolic: names, sizes and axis types, no devices.  Devices are numbered row-major over
// the axes in mesh order (the last axis changes fastest).  Values; thread-compatible.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace tessera::ir {

// Who decides the sharding along the axis: the planner, the types, or the user's per-shard code.
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
  int IndexOf(std::string_view axis) const;  // -1 when there is none
  bool Has(std::string_view axis) const { return IndexOf(axis) >= 0; }
  // Requires: Has(axis).
  int64_t SizeOf(std::string_view axis) const;
  AxisType TypeOf(std::string_view axis) const;
  int64_t SizeOf(absl::Span<const std::string> axes) const;  // the product
  bool IsManual(std::string_view axis) const {
    return Has(axis) && TypeOf(axis) == AxisType::kManual;
  }
  std::vector<std::string> AxesOfType(AxisType type) const;  // in mesh order
  // A copy in which `names` have `type`.
  Mesh With(absl::Span<const std::string> names, AxisType type) const;
  // Whether names and sizes are equal, whatever the axis types.
  bool SameShape(const Mesh& other) const;
  // The index of `device` along each axis; and the inverse.
  std::vector<int64_t> Coordinates(int64_t device) const;
  int64_t DeviceAt(absl::Span<const int64_t> coordinates) const;
  // Row-major index of `device` within the product of `axes` (major to minor).
  int64_t IndexAlong(int64_t device, absl::Span<const std::string> axes) const;
  // The devices that differ from `device` only along `axes`, ordered by IndexAlong.
  std::vector<int64_t> GroupOf(int64_t device, absl::Span<const std::string> axes) const;

  std::string ToString() const;  // (data=2, model=2:explicit)
};
// Names are non-empty identifiers and differ, sizes are positive, their product below 2^31.
absl::Status CheckMesh(const Mesh& mesh);

// Axis names, kept in the order given (a dim's axes are major to minor).
using AxisList = std::vector<std::string>;
// Per dim of an array, the axes that shard it.
using DimAxes = std::vector<AxisList>;

// A sharding as the user writes it: axes per dim (missing trailing dims are unsharded), and the
// axes along which the shards are terms of a sum (`unreduced`), or equal with a gradient of terms
// (`reduced`). An `open` dim (text `?`) leaves the rest of that dim to the planner.
struct PartitionSpec {
  DimAxes dims;
  AxisList unreduced, reduced;
  std::vector<bool> open;  // empty: none; else as long as dims
  bool operator==(const PartitionSpec&) const = default;
  std::string ToString() const;  // P('x', None, ('y','z'))
  bool Mentions(std::string_view axis) const;
  bool IsOpen(int dim) const { return dim < static_cast<int>(open.size()) && open[dim]; }
};

}  // namespace tessera::ir
