// Reads a block of a shard on another executor. worker/rpc implements it over gRPC.
#pragma once
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ir/api/worker_link.h"
#include "ir/array.h"
#include "worker/runtime/cancel.h"

namespace tessera::worker {

class PeerReader {
 public:
  virtual ~PeerReader() = default;
  // Returns the block of the shard for which the piece's ticket is valid. Waits for the shard's
  // producer, and ends at `deadline` or when cancelled. Thread-safe; blocking.
  virtual absl::StatusOr<ir::Array> Read(const api::Transfer::Piece& piece, ir::DType dtype,
                                         absl::Time deadline, CancelToken& cancel) = 0;
};

}  // namespace tessera::worker
