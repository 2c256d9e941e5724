// How the members of a cluster are named in their certificates.
#pragma once

namespace tessera::api {

// The DNS name in every worker's certificate, and in no other.  Whoever connects to an executor
// (its data port, its peers) checks for it in place of the address, which may be any: gRPC's
// target name override.  The coordinator goes by the names and addresses in its certificate.
inline constexpr char kWorkerServerName[] = "worker.tessera";

// A worker's certificate names it by this URI followed by the worker's name.
inline constexpr char kWorkerUriPrefix[] = "tessera://workers/";

}  // namespace tessera::api
