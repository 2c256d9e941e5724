#include "server/core/telemetry.h"

namespace tessera::server::core {

const char* MetricNameOf(api::OperationKind kind) {
  switch (kind) {
    case api::OperationKind::kExecute:
      return "execute";
    case api::OperationKind::kReshard:
      return "copy";
    case api::OperationKind::kSave:
    case api::OperationKind::kLoad:
      return "checkpoint";
  }
  return "";
}

}  // namespace tessera::server::core
