// The coordinator's tokens. They are kept in memory, and in a file with a hash of each token
// (base/token_file.h). Every change of a token replaces the file atomically.
//
// Thread-safe. Only one process at a time may write the file. The times of last use are written
// with the next change or by Flush, so a crash loses the times since then.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/token_file.h"
#include "server/core/tokens.h"

namespace tessera::server::auth {

class Tokens final : public core::TokenStore {
 public:
  // Reads the file. Returns VALUE_ERROR if it cannot be parsed, or if anyone but its owner may read
  // or write it.
  static absl::StatusOr<std::unique_ptr<Tokens>> Open(const std::string& path);

  absl::StatusOr<core::Caller> Authenticate(absl::string_view text, absl::Time now) override
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Check(const std::string& name, absl::Time now) const override
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<core::MadeToken> Create(const core::NewToken& token, absl::Time now) override
      ABSL_LOCKS_EXCLUDED(mu_);
  std::vector<core::TokenInfo> List() const override ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<core::TokenInfo> Revoke(const std::string& name) override ABSL_LOCKS_EXCLUDED(mu_);
  // Writes the times of last use that are only in memory so far.
  absl::Status Flush() override ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using RecordsByName = std::map<std::string, TokenRecord>;

  Tokens(std::string path, RecordsByName records);
  // Writes `records` to the file and, once the file is written, uses them.
  absl::Status Persist(RecordsByName records) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string path_;
  mutable absl::Mutex mu_;
  RecordsByName records_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::string> names_by_id_ ABSL_GUARDED_BY(mu_);
  bool has_unwritten_changes_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace tessera::server::auth
