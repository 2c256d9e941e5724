// Called by Session::Connect; see client/embedded.h.
#include "client/remote/remote_service.h"

extern "C" void TesseraConnectRemote(const char* address, const tessera::ConnectOptions& options,
                                     absl::StatusOr<std::shared_ptr<tessera::api::Service>>* out) {
  *out = tessera::remote::RemoteService::Connect(address, options);
}
