// make_mesh: asks a session for healthy devices, and makes a mesh of them.
#include <cstdint>
#include <string>
#include <vector>

#include "client/error.h"
#include "client/mesh.h"
#include "client/session.h"

namespace tessera {

Mesh make_mesh(const std::vector<int64_t>& shape, const std::vector<std::string>& names,
               const std::vector<AxisType>& axis_types, Session* session, Site site) {
  Mesh mesh = abstract_mesh(shape, names, axis_types, site);
  const auto used = session ? session->shared_from_this() : Session::Default(site);
  mesh.devices = used->HealthyDevices(mesh.size(), site);
  if (static_cast<int64_t>(mesh.devices.size()) < mesh.size()) {
    internal::ThrowError(ErrorKind::kNotEnoughDevices, site, "make_mesh: the mesh ",
                         mesh.ToString(), " needs ", mesh.size(), " devices but the session has ",
                         mesh.devices.size(), " healthy ones. Use a smaller mesh or add workers");
  }
  return mesh;
}

}  // namespace tessera
