// Shared by saves and loads.
#pragma once
#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "ir/api/files.h"
#include "ir/api/service.h"
#include "server/scheduler/cluster.h"

namespace tessera::server::scheduler {

// The timeout of a save or a load on an executor.
constexpr absl::Duration kFileTimeout = absl::Hours(1);

// The shard of mesh device `ordinal`, which is or will be on `device` of its executor, of the array
// with this `index` in the file.
api::FileShard FileShardOf(const api::ArraySpec& spec, size_t index, uint64_t array, int ordinal,
                           int32_t device);
// The error FILES_DISABLED: the executor's worker has no --files-dir.
absl::Status NoFilesDirectory(const char* what, const Executor& x);

}  // namespace tessera::server::scheduler
