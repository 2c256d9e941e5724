// A store that remembers in a folder, from one start of the coordinator to the next:
//
//   epoch       how often the coordinator was started
//   executors   whose the device ids are, a line for each executor:
//               FIRST_ID DEVICES INDEX KIND WORKER
//   lock        held while a coordinator uses the folder
//
// Records live as long as the process.  Thread-safe.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/store/store.h"

namespace tessera::server::store {

class FolderStore final : public Store {
 public:
  // Makes the folder if need be, and counts this start, which is on the disk when this returns.
  // VALUE_ERROR: it cannot be read or written, it holds what no coordinator wrote, or another
  // coordinator uses it.
  static absl::StatusOr<std::unique_ptr<FolderStore>> Open(const std::string& folder);
  ~FolderStore() override;

  absl::Status Append(std::string_view text) override { return records_.Append(text); }
  absl::StatusOr<std::vector<Record>> Read(uint64_t number, int64_t count) const override {
    return records_.Read(number, count);
  }
  core::Life life() const override { return life_; }
  std::vector<core::KnownExecutor> executors() const override { return executors_; }
  bool remembers() const override { return true; }
  absl::Status KeepExecutors(const std::vector<core::KnownExecutor>& executors) override;

 private:
  FolderStore(std::string folder, int lock, core::Life life,
              std::vector<core::KnownExecutor> executors)
      : folder_(std::move(folder)), lock_(lock), life_(life), executors_(std::move(executors)) {}

  const std::string folder_;
  const int lock_;
  const core::Life life_;
  const std::vector<core::KnownExecutor> executors_;
  MemoryStore records_;
};

}  // namespace tessera::server::store
