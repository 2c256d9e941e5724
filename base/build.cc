// Chooses the protocol between the coordinator and a worker when the worker registers, and prints
// versions for --version and for error messages. CMake passes in the version and the revision.
#include "base/build.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace tessera {
namespace {

std::string ProtocolsText(const Build& build) {
  return build.protocol_min == build.protocol_max
             ? absl::StrCat("protocol ", build.protocol_min)
             : absl::StrCat("protocols ", build.protocol_min, " to ", build.protocol_max);
}

}  // namespace

Build ThisBuild() { return {TESSERA_VERSION, TESSERA_REVISION, kProtocolMin, kProtocolMax}; }

std::string BuildText(const Build& build) {
  if (build.version.empty()) return "an earlier build";
  return absl::StrCat(build.version, " (revision ",
                      build.revision.empty() ? "unknown" : build.revision, ")");
}

absl::StatusOr<int32_t> ChooseProtocol(std::string_view who, const Build& coordinator,
                                       const Build& worker) {
  const int32_t protocol = std::min(coordinator.protocol_max, worker.protocol_max);
  if (protocol >= std::max(coordinator.protocol_min, worker.protocol_min)) return protocol;
  const bool worker_is_older = worker.protocol_max < coordinator.protocol_min;
  return MakeError(ErrorKind::kProtocolMismatch,
                   absl::StrCat(ToAbsl(who), ": it is ", BuildText(worker), " and speaks ",
                                ProtocolsText(worker), ", the coordinator is ",
                                BuildText(coordinator), " and speaks ", ProtocolsText(coordinator),
                                "; upgrade the ", worker_is_older ? "worker" : "coordinator"));
}

}  // namespace tessera
