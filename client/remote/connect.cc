// The entry point through which Session::Connect reaches a remote coordinator. It is a C function
// that the client declares as a weak symbol, so that programs without gRPC link as well; see
// client/embedded.h.
#include "client/remote/remote_service.h"

extern "C" void TesseraConnectRemote(const char* address, const tessera::ConnectOptions& options,
                                     absl::StatusOr<std::shared_ptr<tessera::api::Service>>* out) {
  *out = tessera::remote::RemoteService::Connect(address, options);
}
