// Placements of arrays and programs from --mesh, --spec and --devices.
//
// Used on the main thread.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/commands.h"
#include "client/cli/context.h"
#include "ir/api/service.h"

namespace tessera::cli {

// The options --mesh, --spec and --devices.
Option MeshOption(const std::string& help);
Option SpecOption();
Option DevicesOption();

// Looks up a named mesh of the cluster. MESH_NOT_FOUND.
struct NamedMesh {
  ir::Mesh mesh;
  std::vector<int64_t> devices;
};
absl::StatusOr<NamedMesh> FindMesh(Context& context, const std::string& name);

// Chooses `count` healthy devices whose workers are not cordoned. NOT_ENOUGH_DEVICES.
absl::StatusOr<std::vector<int64_t>> ChooseDevices(Context& context, int64_t count);

// The placement that the three options give; without --mesh, one device.
absl::StatusOr<api::Placement> PlacementOf(Context& context, const Arguments& arguments);

// The bytes on all devices, replicas included, of an array of `bytes`.
int64_t BytesOn(const api::Placement& placement, int64_t bytes);

// {"mesh": {"axes": [...]}, "spec": {"dims": [...]}, "devices": [...]} and its parts.
Json JsonOf(const ir::Mesh& mesh);
Json JsonOf(const ir::PartitionSpec& spec);
Json JsonOf(const api::Placement& placement);
ir::Mesh MeshOfJson(const Json& json);
std::string SpecText(const Json& spec);  // P('x', None)

// The worker of each device.
absl::StatusOr<std::map<int64_t, std::string>> WorkersOfDevices(Context& context);

}  // namespace tessera::cli
