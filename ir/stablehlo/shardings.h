// The meshes of an artifact, and its shardings as ours.
//
// A program has one mesh: the first that the artifact declares, or one whose axes are as fine as
// all of its mhlo.sharding texts need, named by us.  An axis is known by where it lies among the
// mesh's devices in row-major order: a step along it is `stride` devices.  So the axes of another
// mesh, and the tiles of a text, are axes of the program's mesh if some lie just there.
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
  AxisList ManualAxes(uint32_t attr, std::string_view what) const;
  // Whether an op carries "{manual}".
  bool IsManual(uint32_t dictionary, std::string_view what) const;
  // What the attributes that a param, a result or an op carries say; nullopt if nothing.
  std::optional<PartitionSpec> Carried(uint32_t dictionary, std::string_view what) const;
  // The same of several results, and the manual axes, as texts in the dictionary's frontend
  // attributes under this name.
  std::vector<PartitionSpec> CarriedSpecs(uint32_t dictionary, std::string_view name,
                                          std::string_view what) const;
  AxisList CarriedAxes(uint32_t dictionary, std::string_view name, std::string_view what) const;
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
  Declared MeshOf(uint32_t attr, std::string_view what) const;
  // One that a sharding has instead of a name.
  const Declared& InlineMesh(uint32_t attr, std::string_view what) const;
  const Declared& MeshNamed(std::string_view name, std::string_view what) const;
  // The axes of the program's mesh that lie just there; nullopt if none do.
  std::optional<AxisList> AxesAt(const AxisRange& range) const;
  // What an axis of any of the meshes is of the program's mesh.
  AxisList AxesNamed(const AxisList& names, std::string_view what) const;
  // Adds what an axis of a mesh is of the program's mesh.
  void AddAxis(const Declared& mesh, std::string_view axis, AxisList* out,
               std::string_view what) const;
  // Of a kAxisRef.
  std::string AxisName(uint32_t attr, std::string_view what) const;
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
