// Programs that clients have uploaded, by tenant and SHA-256 of their bytes, and those that are
// being uploaded in chunks.  They live as long as the process.
//
// Bounded in number and bytes, over all tenants; an upload that is idle for `idle_max` is dropped.
// Thread-safe; reads no clock.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tessera::server::store {

class ProgramStore {
 public:
  struct Limits {
    int64_t programs_max = 1'000;  // unfinished uploads included
    int64_t bytes_max = int64_t{1} << 30;
    int64_t program_bytes_max = 64 << 20;
    absl::Duration idle_max = absl::Minutes(5);
  };
  // Checks that the bytes decode as a program.
  using CheckFn = std::function<absl::Status(std::string_view bytes)>;

  struct Chunk {
    std::string sha256;
    int64_t size_bytes = 0;  // of the whole program
    int64_t offset = 0;
    std::string_view data = {};  // empty: only queries the committed size
    uint32_t crc32c = 0;         // of data
  };
  struct Progress {
    int64_t committed_bytes = 0;
    bool complete = false;
  };
  using Bytes = std::shared_ptr<const std::string>;
  struct Listed {
    std::string sha256;
    Bytes bytes;
  };

  explicit ProgramStore(Limits limits) : limits_(limits) {}

  // VALUE_ERROR: not a hash, or not the next chunk.  CHECKSUM_MISMATCH: of the chunk or of the
  // whole program.  LIMIT_EXCEEDED.  A program that does not pass `check` is dropped, and the error
  // of `check` returned.
  absl::StatusOr<Progress> Upload(const std::string& tenant, const Chunk& chunk, absl::Time now,
                                  const CheckFn& check) ABSL_LOCKS_EXCLUDED(mu_);
  // PROGRAM_NOT_FOUND.
  absl::StatusOr<Bytes> Find(const std::string& tenant, const std::string& sha256) const
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Delete(const std::string& tenant, const std::string& sha256)
      ABSL_LOCKS_EXCLUDED(mu_);
  // The complete programs in order of their hashes, from the first after `after`, at most `count`.
  std::vector<Listed> List(const std::string& tenant, const std::string& after, size_t count) const
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using Key = std::pair<std::string, std::string>;  // tenant, hash
  struct Entry {
    int64_t size_bytes = 0;
    std::string partial;
    bool checking = false;  // all bytes are there, and a thread is running the check
    Bytes whole;
    absl::Time last_chunk;
  };
  void DropIdle(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Adds the chunk; sets `whole` when it was the last one.
  absl::StatusOr<Progress> Append(const Key& key, const Chunk& chunk, absl::Time now, Bytes* whole)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Limits limits_;
  mutable absl::Mutex mu_;
  std::map<Key, Entry> entries_ ABSL_GUARDED_BY(mu_);
  int64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace tessera::server::store
