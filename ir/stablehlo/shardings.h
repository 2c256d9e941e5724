// The meshes of an artifact, and its shardings as ours.
//
// A program has one mesh: that of those which the artifact declares that has the most axes, of
// those whose devices are in order if there are any, or one whose axes are as fine as all of its
// mhlo.sharding texts need, named by us.  An axis is known by where it lies among the mesh's
// devices in row-major order: a step along it is `stride` devices. So the axes of another mesh of
// the same devices, and the tiles of a text, are axes of the program's mesh if some lie just there,
// whatever their names are.  Where another mesh, or a part of an axis, needs finer axes than the
// program's mesh was declared with, its axes are cut: "x" of size 4 into "x_0" and "x_1" of size 2.
//
// Of unreduced axes, along which a value is a pending sum, a spec says `unreduced`: what that means
// where it stands is up to the caller.
//
// All throw StatusException: MALFORMED_PROGRAM for what makes no sense, NOT_IMPLEMENTED, by name,
// for what our shardings cannot say.  `what` names the value in errors: "argument 1".
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/mesh.h"
#include "ir/stablehlo/artifact.h"
#include "ir/stablehlo/elsewhere.h"
#include "ir/stablehlo/sharding_text.h"

namespace tessera::ir::stablehlo {

class Shardings {
 public:
  explicit Shardings(const Artifact& artifact);

  // All axes are Auto; empty for a program of one device that declares no mesh.
  const Mesh& mesh() const { return mesh_; }

  // What an attribute of Shardy says: of one value, of each of `n`, the axes of a list.
  PartitionSpec Spec(uint32_t attr, std::string_view what) const;
  std::vector<PartitionSpec> Specs(uint32_t attr, size_t n, std::string_view what) const;
  // `boundary`: the shardings of the computation's arguments and results, whose mesh has the axes.
  AxisList ManualAxes(uint32_t attr, absl::Span<const uint32_t> boundary,
                      std::string_view what) const;
  // Whether an op carries "{manual}".
  bool IsManual(uint32_t dictionary, std::string_view what) const;
  // What the attributes that a param, a result or an op carries say; nullopt if nothing.
  std::optional<PartitionSpec> Carried(uint32_t dictionary, std::string_view what) const;
  // Of a param whose mesh has the program's devices in another order; nullopt for all others.
  std::optional<Elsewhere> CarriedElsewhere(uint32_t dictionary, std::string_view what) const;
  // The same of several results, and the manual axes, as texts in the dictionary's frontend
  // attributes under this name.
  std::vector<PartitionSpec> CarriedSpecs(uint32_t dictionary, std::string_view name,
                                          std::string_view what) const;
  // `shardings`: the name of those of the same boundary.
  AxisList CarriedAxes(uint32_t dictionary, std::string_view name, std::string_view shardings,
                       std::string_view what) const;
  // A text of mhlo.sharding: "{devices=[2,1]<=[2]}".
  PartitionSpec OfText(std::string_view text, std::string_view what) const;
  // The axes along which it says that the value is manual.
  AxisList ManualOfText(std::string_view text, std::string_view what) const;
  // Of the axes of a mesh that replica groups name.
  AxisList GroupAxes(uint32_t attr, std::string_view what) const;

  // The ids of the mesh's devices, in row-major order; empty if each is its own place.
  const std::vector<int64_t>& device_ids() const { return device_ids_; }
  // The place of a device in the mesh; -1 for one that is not there.
  int64_t PlaceOf(int64_t device) const;
  int64_t num_replicas() const { return num_replicas_; }
  // The axes of the program's mesh that lie just there, major to minor; nullopt if none do.
  std::optional<AxisList> AxesAt(const AxisRange& range) const;

 private:
  struct Declared {
    Mesh mesh;
    std::vector<int64_t> device_ids;
  };
  // That a mesh is one, and each of its devices is there once; ids in order are dropped.
  static void Check(std::string_view what, Declared* declared);
  void Declare(std::string name, Declared mesh);
  void ReadMeshes();
  // A mesh whose axes are those along which the texts and the replica groups lie.
  void DeriveMesh();
  // Cuts the axes of the mesh so that those of other meshes, and the parts of axes, are axes of it.
  void CutMesh();
  Declared MeshOf(uint32_t attr, std::string_view what) const;
  // One that a sharding has instead of a name.
  const Declared& InlineMesh(uint32_t attr, std::string_view what) const;
  const Declared& MeshNamed(std::string_view name, std::string_view what) const;
  // What axes of `mesh`, or, if that is null, of any of the meshes, are of the program's mesh: in
  // this order, or in that of the mesh.
  AxisList AxesNamed(const Declared* mesh, const std::vector<AxisPart>& axes,
                     std::string_view what) const;
  AxisList InMeshOrder(const AxisList& axes) const;
  // Adds what an axis of a mesh is of the program's mesh.
  void AddAxis(const Declared& mesh, const AxisPart& axis, AxisList* out,
               std::string_view what) const;
  // Where an axis, or a part of one, lies; nullopt if the part is none.
  static std::optional<AxisRange> RangeOf(const Mesh& mesh, const AxisPart& axis);
  // Whether the devices are the program's, in the same order.
  bool HasOurDevices(const Declared& mesh) const;
  // Of a kTensorSharding.
  NamedSharding Named(uint32_t attr, std::string_view what) const;
  // Of a kAxisRef.
  AxisPart AxisOf(uint32_t attr, std::string_view what) const;
  // The mesh that a sharding or replica groups refer to.
  const Declared& MeshReferred(uint32_t attr, std::string_view what) const;
  uint32_t FrontendAttr(uint32_t dictionary, std::string_view name) const;
  std::string_view FrontendText(uint32_t attr, std::string_view what) const;
  // Throws LIMIT_EXCEEDED when all texts that were read are too long.
  void CountText(std::string_view text) const;
  // The sharding that a text says, parsed once.
  const TiledSharding& Tiled(std::string_view text, std::string_view what) const;
  PartitionSpec SpecOf(const NamedSharding& sharding, const Declared& mesh,
                       std::string_view what) const;

  const Artifact& a_;
  std::map<std::string, Declared, std::less<>> declared_;
  Mesh mesh_;
  std::vector<int64_t> device_ids_, place_of_;
  int64_t num_replicas_ = 1;
  std::optional<int64_t> num_partitions_;  // if the artifact says so
  mutable std::map<std::string_view, TiledSharding> tiled_;
  mutable std::map<uint32_t, Declared> inline_;  // by attribute
  mutable size_t text_bytes_ = 0;                // of shardings, parsed so far
};

// Whether it leaves all to the planner.
bool SaysNothing(const PartitionSpec& spec);
// The value under `name` in a dictionary, or kNone: also for one that is no dictionary.
uint32_t InDictionary(const Artifact& artifact, uint32_t dictionary, std::string_view name);

}  // namespace tessera::ir::stablehlo
