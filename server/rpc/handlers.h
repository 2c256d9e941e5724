// The handlers of the coordinator's services. Every row of methods.def, except rows of the kind
// Own, declares its function here, and the file of its service defines it.
//
// A handler runs on gRPC's threads and does not block. It reads the request and calls the
// coordinator; the coordinator's callback finishes the call.
#pragma once
#include <vector>

#include "server/rpc/call.h"
#include "tessera/v1/admin.pb.h"
#include "tessera/v1/array.pb.h"
#include "tessera/v1/cluster.pb.h"
#include "tessera/v1/operation.pb.h"
#include "tessera/v1/program_service.pb.h"
#include "tessera/v1/session.pb.h"

namespace tessera::v1 {
// The request of ExecuteAndWatch is the only one that is not named after its method.
using ExecuteAndWatchRequest = ExecuteProgramRequest;
}  // namespace tessera::v1

namespace tessera::server::rpc {

#define TESSERA_HANDLER_Unary(Name, Response) \
  void Name(const CallRef<v1::Name##Request, v1::Response>& call);
#define TESSERA_HANDLER_Stream(Name, Response) \
  grpc::ServerWriteReactor<v1::Response>* Name(StreamCall<v1::Name##Request, v1::Response> call);
#define TESSERA_HANDLER_Bidi(Name, Response) BidiReactor<v1::Response>* Name(BidiCall call);
#define TESSERA_HANDLER_Own(Name, Response)
#define TESSERA_METHOD(service, name, least, Kind, Response) TESSERA_HANDLER_##Kind(name, Response)
#include "server/rpc/methods.def"
#undef TESSERA_METHOD
#undef TESSERA_HANDLER_Unary
#undef TESSERA_HANDLER_Stream
#undef TESSERA_HANDLER_Bidi
#undef TESSERA_HANDLER_Own

// Returns a route for every method that has a handler.
std::vector<Route> AllRoutes();

// Fills in the message about a worker, which methods of several services return.
void FillWorker(const scheduler::WorkerInfo& info, v1::Worker* out);

}  // namespace tessera::server::rpc
