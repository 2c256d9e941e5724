// Saving and loading: the part of one executor in the work on one file.
//
// Blocking; thread-safe. A save has one part for each executor that takes part in it. The file is
// written under a hidden temporary name in the same directory, and ends with a status byte for each
// part until it is complete. Part 0 creates the file, waits until the others have set their status
// bytes, and renames it. The other parts wait until the file exists, and fail if it does not
// appear, for example because the directory is not shared. A failed save removes its file. If the
// process dies, a later save to the same path removes the file.
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
  // Reserves memory for a shard before it is loaded, and stores the loaded shard.
  std::function<absl::Status(const api::FileShard& shard, int64_t bytes)> reserve;
  std::function<absl::Status(const api::FileShard& shard, ir::Array value)> store;
  // Waits for this long; returns the reason if the work is cancelled meanwhile.
  std::function<absl::Status(absl::Duration)> wait;
};

// How long a part waits for part 0 to begin.
inline constexpr absl::Duration kBeginTimeout = absl::Seconds(60);

absl::Status Save(const FilesRoot& root, const api::SaveShards& command, const Hooks& hooks,
                  absl::Duration begin_timeout = kBeginTimeout);
absl::Status Load(const FilesRoot& root, const api::LoadShards& command, const Hooks& hooks);
absl::StatusOr<std::vector<api::FileArrayInfo>> Inspect(const FilesRoot& root,
                                                        const std::string& path);

}  // namespace tessera::worker::files
