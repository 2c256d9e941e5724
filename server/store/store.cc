#include "server/store/store.h"

namespace tessera::server::store {

absl::Status MemoryStore::Append(std::string_view text) {
  absl::MutexLock lock(&mu_);
  records_.push_back({++last_, std::string(text)});
  if (static_cast<int64_t>(records_.size()) > records_max_) records_.pop_front();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Record>> MemoryStore::Read(uint64_t number, int64_t count) const {
  absl::MutexLock lock(&mu_);
  std::vector<Record> out;
  for (const Record& r : records_)
    if (r.number >= number && static_cast<int64_t>(out.size()) < count) out.push_back(r);
  return out;
}

}  // namespace tessera::server::store
