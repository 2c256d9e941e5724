// Reads shards of other executors over their DataService.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "worker/runtime/peer_reader.h"

namespace tessera::worker::rpc {

// `authorities` are PEM certificates that must have signed the certificates of other executors.
// Empty for plain text.
std::unique_ptr<PeerReader> MakeGrpcPeerReader(const std::string& authorities = "");

}  // namespace tessera::worker::rpc
