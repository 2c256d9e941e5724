// Saving and loading: an executor's part of the work on one file.
//
// Blocking; any thread. A file that is being saved has another name, next to its own and hidden,
// and a mark for each part behind its bytes. Part 0 makes it, waits for the others' marks, and
// gives it its name at once; the others wait for it to be there, which is how they notice that they
// see another folder. Whatever fails leaves nothing behind, but for a process that dies: its file
// is removed by a later save to the same path.
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
  // The bytes of a shard that is saved.
  std::function<absl::StatusOr<ir::Array>(const api::FileShard& shard)> bytes_of;
  // Memory for a shard that is to be loaded; then what is to become of it.
  std::function<absl::Status(const api::FileShard& shard, int64_t bytes)> reserve;
  std::function<absl::Status(const api::FileShard& shard, ir::Array value)> take;
  // Waits for this long, or until the work is cancelled: then with the reason.
  std::function<absl::Status(absl::Duration)> wait;
};

// How long a part waits for part 0 to begin.
inline constexpr absl::Duration kBeginPatience = absl::Seconds(60);

absl::Status Save(const Folder& folder, const api::SaveShards& command, const Hooks& hooks,
                  absl::Duration begin_patience = kBeginPatience);
absl::Status Load(const Folder& folder, const api::LoadShards& command, const Hooks& hooks);
absl::StatusOr<std::vector<api::FileArrayInfo>> Inspect(const Folder& folder,
                                                        const std::string& path);

}  // namespace tessera::worker::files
