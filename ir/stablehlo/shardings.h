// The meshes of an artifact, and its shardings as ours.
//
// A program has one mesh. Among the declared meshes, those whose devices are in order are
// preferred, and of these the one with the most axes. If the artifact declares none, the mesh gets
// axes as fine as all of its mhlo.sharding texts need, with names of ours. An axis is identified by
// its position among the mesh's devices in row-major order: a step along it is `stride` devices.
// The axes of another mesh of the same devices, and the tiles of a text, are therefore axes of the
// program's mesh if some axes have exactly that position, whatever their names are. Where another
// mesh, or a part of an axis, needs finer axes than the program's mesh was declared with, its axes
// are cut: "x" of size 4 into "x_0" and "x_1" of size 2.
//
// A spec lists unreduced axes, along which a value is a pending sum, as `unreduced`. The caller
// decides what that means in its context.
//
// All functions throw StatusException: MALFORMED_PROGRAM for contradictory input, and
// NOT_IMPLEMENTED, with its name, for what our shardings cannot express. `what` names the value in
// errors: "argument 1". Thread-compatible.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/mesh.h"
#include "ir/stablehlo/artifact.h"
#include "ir/stablehlo/other_placement.h"
#include "ir/stablehlo/sharding_text.h"

namespace tessera::ir::stablehlo {

class Shardings {
 public:
  explicit Shardings(const Artifact& artifact);

  // The program's mesh. All axes are Auto. Empty for a program of one device that declares no mesh.
  const Mesh& mesh() const { return mesh_; }

  // Convert attributes of Shardy: the sharding of one value, the shardings of `n` values, a list of
  // axes.
  PartitionSpec Spec(uint32_t attr, std::string_view what) const;
  std::vector<PartitionSpec> Specs(uint32_t attr, size_t n, std::string_view what) const;
  // `boundary` holds the shardings of the computation's arguments and results; the axes belong to
  // their mesh.
  AxisList ManualAxes(uint32_t attr, absl::Span<const uint32_t> boundary,
                      std::string_view what) const;
  // Returns whether an op carries "{manual}".
  bool IsManual(uint32_t dictionary, std::string_view what) const;
  // Returns the sharding that a param, a result or an op carries in its attributes; nullopt if
  // none.
  std::optional<PartitionSpec> Carried(uint32_t dictionary, std::string_view what) const;
  // Returns the placement of a param whose mesh has the program's devices in another order. Returns
  // nullopt for any other param.
  std::optional<OtherPlacement> CarriedOtherPlacement(uint32_t dictionary,
                                                      std::string_view what) const;
  // CarriedSpecs returns the shardings of several results, and CarriedAxes the manual axes. They
  // are texts in the dictionary's frontend attributes under this name.
  std::vector<PartitionSpec> CarriedSpecs(uint32_t dictionary, std::string_view name,
                                          std::string_view what) const;
  // `shardings` is the name of the shardings of the same boundary.
  AxisList CarriedAxes(uint32_t dictionary, std::string_view name, std::string_view shardings,
                       std::string_view what) const;
  // Converts a text of mhlo.sharding: "{devices=[2,1]<=[2]}".
  PartitionSpec SpecFromText(std::string_view text, std::string_view what) const;
  // Returns the axes along which the text says that the value is manual.
  AxisList ManualAxesFromText(std::string_view text, std::string_view what) const;
  // Returns the axes that replica groups name. They are axes of some mesh.
  AxisList GroupAxes(uint32_t attr, std::string_view what) const;

  // Returns the ids of the mesh's devices in row-major order, or an empty list if the ids are 0, 1,
  // 2, ... in this order.
  const std::vector<int64_t>& device_ids() const { return device_ids_; }
  // Returns the row-major position of a device in the mesh, or -1 if the mesh does not have it.
  int64_t PositionOf(int64_t device) const;
  int64_t num_replicas() const { return num_replicas_; }
  // Returns the axes of the program's mesh with exactly this position, major to minor; nullopt if
  // there are none.
  std::optional<AxisList> AxesAt(const AxisRange& range) const;

 private:
  struct DeclaredMesh {
    Mesh mesh;
    std::vector<int64_t> device_ids;
  };
  // Checks that a mesh is valid and has each of its devices once. Drops ids that are in order.
  static void CheckDeclaredMesh(std::string_view what, DeclaredMesh* declared);
  void Declare(std::string name, DeclaredMesh mesh);
  void ReadMeshes();
  // Makes a mesh whose axes are those along which the texts and the replica groups lie.
  void DeriveMesh();
  // Cuts the axes of the mesh so that it contains the axes of other meshes and the parts of axes.
  void CutMesh();
  DeclaredMesh MeshOf(uint32_t attr, std::string_view what) const;
  // Returns a mesh that a sharding contains instead of a name.
  const DeclaredMesh& InlineMesh(uint32_t attr, std::string_view what) const;
  const DeclaredMesh& MeshNamed(std::string_view name, std::string_view what) const;
  // Translates axes of `mesh` to axes of the program's mesh. If `mesh` is null, the axes may belong
  // to any declared mesh. InMeshOrder puts axes into the order of the program's mesh.
  AxisList TranslateAxes(const DeclaredMesh* mesh, const std::vector<AxisPart>& axes,
                         std::string_view what) const;
  AxisList InMeshOrder(const AxisList& axes) const;
  // Adds the axes of the program's mesh that correspond to an axis of a mesh.
  void AddAxis(const DeclaredMesh& mesh, const AxisPart& axis, AxisList* out,
               std::string_view what) const;
  // Returns the position of an axis, or of a part of one; nullopt if there is no such part.
  static std::optional<AxisRange> RangeOf(const Mesh& mesh, const AxisPart& axis);
  // Returns whether the devices are the program's, in the same order.
  bool HasOurDevices(const DeclaredMesh& mesh) const;
  // Decodes a kTensorSharding.
  NamedSharding NamedShardingOf(uint32_t attr, std::string_view what) const;
  // Decodes a kAxisRef.
  AxisPart AxisOf(uint32_t attr, std::string_view what) const;
  // Returns the mesh that a sharding or replica groups refer to.
  const DeclaredMesh& ReferredMesh(uint32_t attr, std::string_view what) const;
  uint32_t FrontendAttr(uint32_t dictionary, std::string_view name) const;
  std::string_view FrontendText(uint32_t attr, std::string_view what) const;
  // Throws LIMIT_EXCEEDED if the texts read so far are too long in total.
  void ChargeText(std::string_view text) const;
  // Returns the sharding of a text. Each text is parsed once.
  const TiledSharding& ParsedTiled(std::string_view text, std::string_view what) const;
  PartitionSpec SpecOf(const NamedSharding& sharding, const DeclaredMesh& mesh,
                       std::string_view what) const;

  const Artifact& a_;
  std::map<std::string, DeclaredMesh, std::less<>> declared_;
  Mesh mesh_;
  std::vector<int64_t> device_ids_, position_of_;
  int64_t num_replicas_ = 1;
  std::optional<int64_t> num_partitions_;  // set if the artifact says so
  mutable std::map<std::string_view, TiledSharding> tiled_by_text_;
  mutable std::map<uint32_t, DeclaredMesh> inline_meshes_;  // by attribute
  mutable size_t text_bytes_ = 0;  // total size of the sharding texts parsed so far
};

// Returns whether the spec leaves everything to the planner.
bool IsUnconstrained(const PartitionSpec& spec);
// Returns the value under `name` in a dictionary, or kNone, also if the attribute is not a
// dictionary.
uint32_t InDictionary(const Artifact& artifact, uint32_t dictionary, std::string_view name);

}  // namespace tessera::ir::stablehlo
