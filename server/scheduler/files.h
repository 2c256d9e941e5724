// Helpers that saves and loads share.
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

// Describes the shard of mesh device `ordinal` of an array, which is or will be on `device` of its
// executor. `index` is the array's position in the file.
api::FileShard FileShardOf(const api::ArraySpec& spec, size_t index, uint64_t array, int ordinal,
                           int32_t device);
// Returns the error FILES_DISABLED, which says that the executor's worker has no --files-dir.
absl::Status NoFilesDirectoryError(const char* what, const Executor& x);

}  // namespace tessera::server::scheduler
