// Placements for the commands that make arrays (put, reshard, load) and for meshes of programs
// (run, explain). If no devices are given, they are chosen here, because the service takes an array
// only with its devices.
#include "client/cli/placing.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/words.h"
#include "client/cli/mesh_args.h"

namespace tessera::cli {
namespace {

constexpr const char* kAxisTypes[] = {"AXIS_TYPE_AUTO", "AXIS_TYPE_EXPLICIT", "AXIS_TYPE_MANUAL"};

}  // namespace

Option MeshOption(const std::string& help) {
  return {.name = "mesh", .short_name = 'm', .value_name = "MESH", .help = help};
}

Option SpecOption() {
  return {.name = "spec",
          .short_name = 's',
          .value_name = "SPEC",
          .help =
              "Mesh axes that shard each dim: \"data,-,x+y\" or, as programs write it, \"P('data', "
              "None, ('x','y'))\". Without it, every device gets the whole array."};
}

Option DevicesOption() {
  return {
      .name = "devices",
      .short_name = 'd',
      .value_name = "IDS",
      .help =
          "Devices of the mesh, in row-major order: 0,2,4-7 (default: the first healthy devices)."};
}

absl::StatusOr<NamedMesh> FindMesh(Context& context, const std::string& name) {
  TESSERA_ASSIGN_OR_RETURN(const Json answer,
                           context.Call("ClusterService/GetMesh", {{"name", name}}));
  return NamedMesh{MeshOfJson(ChildOf(answer, "mesh")), IntsOf(answer, "devices")};
}

absl::StatusOr<std::vector<int64_t>> ChooseDevices(Context& context, int64_t count) {
  TESSERA_ASSIGN_OR_RETURN(const Json answer,
                           context.ListAll("ClusterService/ListDevices", {}, "devices"));
  std::vector<int64_t> out;
  for (const Json& device : ChildOf(answer, "devices")) {
    if (static_cast<int64_t>(out.size()) == count) break;
    if (FlagOf(device, "healthy") && !FlagOf(device, "cordoned")) {
      out.push_back(IntOf(device, "id"));
    }
  }
  if (static_cast<int64_t>(out.size()) < count) {
    return MakeError(
        ErrorKind::kNotEnoughDevices,
        absl::StrCat("the mesh needs ", Pluralize(count, "device"), "; ", out.size(),
                     out.size() == 1 ? " is healthy and takes" : " are healthy and take",
                     " work. `tessera devices` lists them"));
  }
  return out;
}

absl::StatusOr<api::Placement> PlacementOf(Context& context, const Arguments& arguments) {
  api::Placement out;
  TESSERA_ASSIGN_OR_RETURN(out.spec, ParseSpec(arguments.Text("spec")));
  const std::string text = arguments.Has("mesh") ? arguments.Text("mesh") : "1";
  TESSERA_ASSIGN_OR_RETURN(std::optional<ir::Mesh> mesh, ParseMesh(text));
  if (mesh) {
    out.mesh = *std::move(mesh);
  } else {
    TESSERA_ASSIGN_OR_RETURN(NamedMesh named, FindMesh(context, text));
    out.mesh = std::move(named.mesh);
    out.devices = std::move(named.devices);
  }
  if (arguments.Has("devices")) {
    TESSERA_ASSIGN_OR_RETURN(out.devices, ParseInts(arguments.Text("devices")));
  } else if (out.devices.empty()) {
    TESSERA_ASSIGN_OR_RETURN(out.devices, ChooseDevices(context, out.mesh.num_devices()));
  }
  return out;
}

int64_t BytesOn(const api::Placement& placement, int64_t bytes) {
  int64_t parts = 1;
  for (const ir::AxisList& axes : placement.spec.dims) {
    for (const std::string& axis : axes) {
      if (placement.mesh.Has(axis)) parts *= placement.mesh.SizeOf(axis);
    }
  }
  return bytes / std::max<int64_t>(parts, 1) * placement.mesh.num_devices();
}

Json JsonOf(const ir::Mesh& mesh) {
  Json axes = Json::array();
  for (const ir::MeshAxis& a : mesh.axes) {
    axes.push_back({{"name", a.name},
                    {"size", std::to_string(a.size)},
                    {"type", kAxisTypes[static_cast<size_t>(a.type)]}});
  }
  return {{"axes", std::move(axes)}};
}

Json JsonOf(const ir::PartitionSpec& spec) {
  Json dims = Json::array();
  for (const ir::AxisList& axes : spec.dims) dims.push_back({{"axes", axes}});
  return {{"dims", std::move(dims)}, {"unreduced", spec.unreduced}, {"reduced", spec.reduced}};
}

Json JsonOf(const api::Placement& placement) {
  return {{"mesh", JsonOf(placement.mesh)},
          {"spec", JsonOf(placement.spec)},
          {"devices", placement.devices}};
}

ir::Mesh MeshOfJson(const Json& json) {
  ir::Mesh mesh;
  for (const Json& a : ChildOf(json, "axes")) {
    ir::AxisType type = ir::AxisType::kAuto;
    for (size_t t = 0; t < std::size(kAxisTypes); ++t) {
      if (TextOf(a, "type") == kAxisTypes[t]) type = static_cast<ir::AxisType>(t);
    }
    mesh.axes.push_back({TextOf(a, "name"), IntOf(a, "size"), type});
  }
  return mesh;
}

std::string SpecText(const Json& json) {
  ir::PartitionSpec spec;
  for (const Json& dim : ChildOf(json, "dims")) {
    spec.dims.emplace_back();
    for (const Json& axis : ChildOf(dim, "axes")) {
      if (axis.is_string())
        spec.dims.back().push_back(ReplaceControlChars(axis.get<std::string>()));
    }
  }
  return spec.ToString();
}

absl::StatusOr<std::map<int64_t, std::string>> WorkersOfDevices(Context& context) {
  TESSERA_ASSIGN_OR_RETURN(const Json answer,
                           context.ListAll("ClusterService/ListDevices", {}, "devices"));
  std::map<int64_t, std::string> out;
  for (const Json& d : ChildOf(answer, "devices")) out[IntOf(d, "id")] = TextOf(d, "worker");
  return out;
}

}  // namespace tessera::cli
