// Transfers shards between this process and executors, authorized by tickets.
//
// An interrupted transfer resumes at the first missing byte, as long as it makes progress and its
// deadline has not passed. Every chunk has a checksum, and a corrupt chunk is sent again.
// Thread-safe. Keeps a few connections per executor.
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/keepalive.h"
#include "grpcpp/channel.h"
#include "grpcpp/security/credentials.h"
#include "ir/api/service.h"
#include "ir/array.h"

namespace tessera::remote {

// The slice of an array that one shard holds.
struct Block {
  ir::Dims starts, shape;
};
// Returns the slice of shard `ordinal`. INVALID_ARGUMENT if the placement does not fit the shape.
absl::StatusOr<Block> BlockOf(const api::ArraySpec& spec, int ordinal);

struct TransferOptions {
  Keepalive keepalive = {};
  // A transfer fails if no byte gets through for this long. Counted from the first attempt that
  // fails, which on a dead connection is when keepalive finds out.
  absl::Duration patience = absl::Seconds(30);
  absl::Duration initial_backoff = absl::Milliseconds(20), max_backoff = absl::Seconds(1);
  int64_t chunk_bytes = 1 << 20;
  // Called on any thread with the number of bytes transferred since the last call. Bytes that a
  // retry sends again are counted once. Return false to cancel the transfer.
  std::function<bool(int64_t bytes)> on_bytes = nullptr;
};

class Transfer {
 public:
  // Called between attempts to ask the coordinator for the array's state. An error ends the
  // transfer.
  using StateFn = std::function<absl::Status()>;

  struct Counts {
    int64_t num_retries = 0;  // attempts after the first
    int64_t num_corrupt = 0;  // attempts that ended at a wrong checksum, found at either end
  };

  explicit Transfer(std::shared_ptr<grpc::ChannelCredentials> credentials,
                    const TransferOptions& options = {})
      : credentials_(std::move(credentials)), options_(options) {}

  absl::Status Write(const std::string& endpoint, const std::string& ticket, const ir::Array& shard,
                     absl::Time end, const StateFn& check_state = nullptr);
  absl::StatusOr<ir::Array> Read(const std::string& endpoint, const std::string& ticket,
                                 ir::DType dtype, const ir::Dims& shape, absl::Time end,
                                 const StateFn& check_state = nullptr);
  Counts counts() const { return {retries_, corrupt_}; }
  // Calls on_bytes, if it is set. Returns CANCELLED if on_bytes returns false.
  absl::Status ReportProgress(int64_t bytes) const;

 private:
  using Channel = std::shared_ptr<grpc::Channel>;
  struct Upload;
  struct Download;
  // The result of one attempt: OK if the transfer is complete.
  struct Outcome {
    absl::Status status;
    bool retryable = false;
  };
  Outcome TryWrite(const Channel& channel, Upload& upload, absl::Time end);
  Outcome TryRead(const Channel& channel, Download& download, absl::Time end);
  Outcome FetchProgress(const Channel& channel, Upload& upload, absl::Time end);
  // Calls `attempt` with backoff until it succeeds or fails with an error that is not retried.
  // `moved` returns the number of bytes that have been moved so far.
  absl::Status RunWithRetries(const std::string& endpoint, absl::Time end,
                              const StateFn& check_state, const std::function<int64_t()>& moved,
                              const std::function<Outcome(const Channel&)>& attempt);
  Channel ChannelTo(const std::string& endpoint) ABSL_LOCKS_EXCLUDED(mu_);

  const std::shared_ptr<grpc::ChannelCredentials> credentials_;
  const TransferOptions options_;
  std::atomic<int64_t> retries_{0}, corrupt_{0};
  absl::Mutex mu_;
  struct Connections {
    std::vector<Channel> channels;
    size_t next = 0;
  };
  std::map<std::string, Connections> connections_ ABSL_GUARDED_BY(mu_);
};

// Runs all jobs on a few threads. Returns the first error.
absl::Status RunAll(const std::vector<std::function<absl::Status()>>& jobs);

}  // namespace tessera::remote
