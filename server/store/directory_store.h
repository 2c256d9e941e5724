// A store whose state persists in a directory over restarts of the coordinator:
//
//   epoch       the number of starts of the coordinator
//   executors   the owners of the device ids, one line per executor:
//               FIRST_ID DEVICES INDEX KIND WORKER
//   lock        locked while a coordinator uses the directory
//
// Records live as long as the process.  Thread-safe.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "server/store/store.h"

namespace tessera::server::store {

class DirectoryStore final : public Store {
 public:
  // Creates the directory if it does not exist, and increments the epoch durably.  VALUE_ERROR: it
  // cannot be read or written, its contents do not parse, or another coordinator uses it.
  static absl::StatusOr<std::unique_ptr<DirectoryStore>> Open(const std::string& folder);

  absl::Status Append(std::string_view text) override { return records_.Append(text); }
  absl::StatusOr<std::vector<Record>> Read(uint64_t number, int64_t count) const override {
    return records_.Read(number, count);
  }
  core::Life life() const override { return life_; }
  void Listen(Listener* listener) override { records_.Listen(listener); }
  void Commit(uint64_t number, std::vector<core::Row> rows) override {
    records_.Commit(number, std::move(rows));
  }
  absl::Status Flush(absl::Duration bound) override { return records_.Flush(bound); }
  std::vector<core::KnownExecutor> executors() const override { return executors_; }
  bool is_persistent() const override { return true; }
  absl::Status KeepExecutors(const std::vector<core::KnownExecutor>& executors) override;

 private:
  DirectoryStore(std::string folder, UniqueFd lock, core::Life life,
                 std::vector<core::KnownExecutor> executors)
      : folder_(std::move(folder)),
        lock_(std::move(lock)),
        life_(life),
        executors_(std::move(executors)) {}

  const std::string folder_;
  const UniqueFd lock_;
  const core::Life life_;
  const std::vector<core::KnownExecutor> executors_;
  MemoryStore records_;
};

}  // namespace tessera::server::store
