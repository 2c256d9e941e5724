// Keeps the table of connected workers. The streams (worker_streams.cc) enter themselves, and
// inquiries (inquiries.cc) look for the streams of workers by name.
#include "server/rpc/connected_workers.h"

#include <utility>

namespace tessera::server::rpc {

void ConnectedWorkers::Add(uint64_t registration_id, const std::string& name,
                           const std::shared_ptr<WorkerStream>& stream) {
  absl::MutexLock lock(&mu_);
  workers_[registration_id] = {name, stream};
}

bool ConnectedWorkers::Remove(uint64_t registration_id) {
  absl::MutexLock lock(&mu_);
  return workers_.erase(registration_id) > 0;
}

std::shared_ptr<WorkerStream> ConnectedWorkers::Find(uint64_t registration_id) {
  absl::MutexLock lock(&mu_);
  const auto found = workers_.find(registration_id);
  return found == workers_.end() ? nullptr : found->second.stream.lock();
}

std::map<std::string, std::shared_ptr<WorkerStream>> ConnectedWorkers::StreamsByName() {
  std::map<std::string, std::shared_ptr<WorkerStream>> found;
  absl::MutexLock lock(&mu_);
  for (const auto& [registration_id, worker] : workers_) {
    // If a name has several registrations, the latest one is connected.
    if (std::shared_ptr<WorkerStream> stream = worker.stream.lock())
      found[worker.name] = std::move(stream);
  }
  return found;
}

}  // namespace tessera::server::rpc
