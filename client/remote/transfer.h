// The bulk bytes: shards between this process and executors, by ticket.
//
// Thread-safe.  Keeps one channel per executor.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/channel.h"
#include "grpcpp/security/credentials.h"
#include "ir/api/service.h"
#include "ir/array.h"
#include "tessera/v1/data.grpc.pb.h"

namespace tessera::remote {

// Which block of the whole shard `ordinal` is.
struct Block {
  ir::Dims starts, shape;
};
// INVALID_ARGUMENT when the placement does not fit the shape.
absl::StatusOr<Block> BlockOf(const api::ArraySpec& spec, int ordinal);

class Transfer {
 public:
  explicit Transfer(std::shared_ptr<grpc::ChannelCredentials> credentials)
      : credentials_(std::move(credentials)) {}

  absl::Status Write(const std::string& endpoint, const std::string& ticket, const ir::Array& shard,
                     absl::Time end);
  absl::StatusOr<ir::Array> Read(const std::string& endpoint, const std::string& ticket,
                                 ir::DType dtype, const ir::Dims& shape, absl::Time end);

 private:
  std::shared_ptr<grpc::Channel> ChannelTo(const std::string& endpoint) ABSL_LOCKS_EXCLUDED(mu_);

  const std::shared_ptr<grpc::ChannelCredentials> credentials_;
  absl::Mutex mu_;
  std::map<std::string, std::shared_ptr<grpc::Channel>> channels_ ABSL_GUARDED_BY(mu_);
};

// Runs the jobs on a few threads; the first error.
absl::Status RunAll(const std::vector<std::function<absl::Status()>>& jobs);

}  // namespace tessera::remote
