// Lists the routes of all handlers. server.cc makes the gRPC services from this list when it
// starts.
#include "server/rpc/handlers.h"

namespace tessera::server::rpc {

std::vector<Route> AllRoutes() {
  std::vector<Route> routes;
#define TESSERA_HANDLER_Unary(method, handler) routes.push_back(UnaryRoute(method, handler));
#define TESSERA_HANDLER_Stream(method, handler) routes.push_back(StreamRoute(method, handler));
#define TESSERA_HANDLER_Bidi(method, handler) routes.push_back(BidiRoute(method, handler));
#define TESSERA_HANDLER_Own(method, handler)
#define TESSERA_METHOD(service, name, least, Kind, Response) \
  TESSERA_HANDLER_##Kind(Method::k##service##_##name, name)
#include "server/rpc/methods.def"
#undef TESSERA_METHOD
#undef TESSERA_HANDLER_Unary
#undef TESSERA_HANDLER_Stream
#undef TESSERA_HANDLER_Bidi
#undef TESSERA_HANDLER_Own
  return routes;
}

}  // namespace tessera::server::rpc
