#include "server/rpc/handlers.h"

namespace tessera::server::rpc {

std::vector<Row> AllRows() {
  std::vector<Row> rows;
#define TESSERA_HANDLER_Unary(method, handler) rows.push_back(Unary(method, handler));
#define TESSERA_HANDLER_Stream(method, handler) rows.push_back(Stream(method, handler));
#define TESSERA_HANDLER_Bidi(method, handler) rows.push_back(Bidi(method, handler));
#define TESSERA_HANDLER_Own(method, handler)
#define TESSERA_METHOD(service, name, least, Kind, Response) \
  TESSERA_HANDLER_##Kind(Method::k##service##_##name, name)
#include "server/rpc/methods.def"
#undef TESSERA_METHOD
#undef TESSERA_HANDLER_Unary
#undef TESSERA_HANDLER_Stream
#undef TESSERA_HANDLER_Bidi
#undef TESSERA_HANDLER_Own
  return rows;
}

}  // namespace tessera::server::rpc
