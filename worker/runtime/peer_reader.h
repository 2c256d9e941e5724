// Reads a slice of a shard on another executor. rpc/ implements it over gRPC.
#pragma once
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ir/array.h"
#include "worker/runtime/cancel.h"

namespace tessera::worker {

class PeerReader {
 public:
  virtual ~PeerReader() = default;
  // Returns the block of `shape` at `starts` of the shard for which `ticket` is valid. Waits for
  // the shard's producer; ends at `deadline` or when cancelled. Thread-safe, blocking.
  virtual absl::StatusOr<ir::Array> Read(const std::string& endpoint, const std::string& ticket,
                                         ir::DType dtype, const ir::Dims& starts,
                                         const ir::Dims& shape, absl::Time deadline,
                                         CancelToken& cancel) = 0;
};

}  // namespace tessera::worker
