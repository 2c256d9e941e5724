// Saving and loading: an executor's part of the work on one file.
//
// Blocking; thread-safe. A file is saved under a hidden temporary name in the same directory, with
// a mark per part after the data. Part 0 creates it, waits for the others' marks, and renames it;
// the others wait for it to exist, and fail if they see another directory. Failures leave no file
// behind, but for a process that dies: a later save to the same path removes its file.
#pragma once
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ir/api/worker_link.h"
#include "ir/array.h"
#include "worker/files/folder.h"

namespace tessera::worker::files {

struct Hooks {
  // Returns the bytes of a shard that is saved.
  std::function<absl::StatusOr<ir::Array>(const api::FileShard& shard)> bytes_of;
  // Reserves memory for a shard before it is loaded; takes the loaded shard.
  std::function<absl::Status(const api::FileShard& shard, int64_t bytes)> reserve;
  std::function<absl::Status(const api::FileShard& shard, ir::Array value)> take;
  // Waits for this long; returns the reason if the work is cancelled meanwhile.
  std::function<absl::Status(absl::Duration)> wait;
};

// How long a part waits for part 0 to begin.
inline constexpr absl::Duration kBeginTimeout = absl::Seconds(60);

absl::Status Save(const FilesRoot& folder, const api::SaveShards& command, const Hooks& hooks,
                  absl::Duration begin_timeout = kBeginTimeout);
absl::Status Load(const FilesRoot& folder, const api::LoadShards& command, const Hooks& hooks);
absl::StatusOr<std::vector<api::FileArrayInfo>> Inspect(const FilesRoot& folder,
                                                        const std::string& path);

}  // namespace tessera::worker::files
