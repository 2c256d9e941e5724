// The bulk bytes: shards between this process and executors, by ticket.
//
// A transfer that breaks off resumes at the first missing byte, as long as it makes progress and
// its deadline has not passed. Every chunk has a checksum; a damaged one is sent again.
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

// Which block of the whole shard `ordinal` is.
struct Block {
  ir::Dims starts, shape;
};
// INVALID_ARGUMENT when the placement does not fit the shape.
absl::StatusOr<Block> BlockOf(const api::ArraySpec& spec, int ordinal);

struct TransferOptions {
  Keepalive keepalive = {};
  // A transfer without a new byte for so long is given up. Longer than it takes to notice a dead
  // connection.
  absl::Duration stall = absl::Seconds(60);
  absl::Duration first_retry = absl::Milliseconds(20), last_retry = absl::Seconds(1);
  int64_t chunk_bytes = 1 << 20;
  // Told, from any thread, how many bytes have moved, of a repeated attempt only those beyond the
  // earlier ones. False: give up, with CANCELLED.
  std::function<bool(int64_t bytes)> on_bytes = nullptr;
};

class Transfer {
 public:
  // Called when a transfer has broken off: what the coordinator knows of the array. An error ends
  // the transfer.
  using Known = std::function<absl::Status()>;

  struct Counts {
    int64_t retries = 0;  // attempts after the first
    int64_t corrupt = 0;  // chunks that did not match their checksum, at either end
  };

  explicit Transfer(std::shared_ptr<grpc::ChannelCredentials> credentials,
                    const TransferOptions& options = {})
      : credentials_(std::move(credentials)), options_(options) {}

  absl::Status Write(const std::string& endpoint, const std::string& ticket, const ir::Array& shard,
                     absl::Time end, const Known& known = nullptr);
  absl::StatusOr<ir::Array> Read(const std::string& endpoint, const std::string& ticket,
                                 ir::DType dtype, const ir::Dims& shape, absl::Time end,
                                 const Known& known = nullptr);
  Counts counts() const { return {retries_, corrupt_}; }
  // Calls on_bytes; CANCELLED if it gives up.
  absl::Status Tell(int64_t bytes) const;

 private:
  using Channel = std::shared_ptr<grpc::Channel>;
  struct Upload;
  struct Download;
  // How an attempt ended: OK at the end of the transfer.
  struct Outcome {
    absl::Status status;
    bool again = false;  // worth another attempt
  };
  Outcome TryWrite(const Channel& channel, Upload& upload, absl::Time end);
  Outcome TryRead(const Channel& channel, Download& download, absl::Time end);
  Outcome AskProgress(const Channel& channel, Upload& upload, absl::Time end);
  // Attempts, until one succeeds, or fails for good. `moved` tells how many bytes there are.
  absl::Status Persist(const std::string& endpoint, absl::Time end, const Known& known,
                       const std::function<int64_t()>& moved,
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

// Runs the jobs on a few threads; the first error.
absl::Status RunAll(const std::vector<std::function<absl::Status()>>& jobs);

}  // namespace tessera::remote
