// Makes the placements of arrays and programs from --mesh, --spec and --devices.
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

// Return the options --mesh, --spec and --devices.
Option MeshOption(const std::string& help);
Option SpecOption();
Option DevicesOption();

// A named mesh of the cluster.
struct NamedMesh {
  ir::Mesh mesh;
  std::vector<int64_t> devices;
};
// Looks up a named mesh. Fails with MESH_NOT_FOUND if there is none of this name.
absl::StatusOr<NamedMesh> FindMesh(Context& context, const std::string& name);

// Chooses `count` healthy devices whose workers are not cordoned. Fails with NOT_ENOUGH_DEVICES if
// there are fewer.
absl::StatusOr<std::vector<int64_t>> ChooseDevices(Context& context, int64_t count);

// Returns the placement that the three options describe. Without --mesh it is on one device.
absl::StatusOr<api::Placement> PlacementOf(Context& context, const Arguments& arguments);

// Returns how many bytes an array of `bytes` takes on all devices together, replicas included.
int64_t BytesOn(const api::Placement& placement, int64_t bytes);

// Convert a placement {"mesh": {"axes": [...]}, "spec": {"dims": [...]}, "devices": [...]} and its
// parts to and from JSON.
Json JsonOf(const ir::Mesh& mesh);
Json JsonOf(const ir::PartitionSpec& spec);
Json JsonOf(const api::Placement& placement);
ir::Mesh MeshOfJson(const Json& json);
std::string SpecText(const Json& spec);  // returns text such as P('x', None)

// Returns the worker of each device.
absl::StatusOr<std::map<int64_t, std::string>> WorkersOfDevices(Context& context);

}  // namespace tessera::cli
