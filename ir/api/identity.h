// The names by which the members of a cluster appear in their certificates.
#pragma once

namespace tessera::api {

// The DNS name in every worker's certificate, and in no other. A client or peer that connects to an
// executor (its data port, its peer port) checks for this name and not for the address, which may
// be any; gRPC calls that target name override. The coordinator is checked by the names and
// addresses in its certificate.
inline constexpr char kWorkerServerName[] = "worker.tessera";

// A worker's certificate names the worker by this URI followed by the worker's name.
inline constexpr char kWorkerUriPrefix[] = "tessera://workers/";

}  // namespace tessera::api
