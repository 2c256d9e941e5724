// The --files-dir: opens files under it, and nothing else.
//
// Every component of a path is opened by itself and may not be a link, so that nobody who can write
// into the directory can redirect a path out of it. Thread-safe.
#pragma once
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/unique_fd.h"
#include "ir/type.h"

namespace tessera::worker::files {

class FilesRoot {
 public:
  // An empty `path`: every use fails with FILES_DISABLED. Else it must be a directory when used.
  explicit FilesRoot(std::string path) : path_(std::move(path)) {}

  // A file under the root: its directory, and its name there. `path` has passed CheckFilePath. With
  // `make` missing directories are created; else FILE_NOT_FOUND.
  struct Location {
    UniqueFd directory;
    std::string name;
  };
  absl::StatusOr<Location> Find(const std::string& path, bool make) const;

  // Opens a regular file of `*bytes` for reading. FILE_NOT_FOUND.
  absl::StatusOr<UniqueFd> Open(const std::string& path, int64_t* bytes) const;

  // A unique id of the directory, the same for all processes that share it: the content of a hidden
  // file, which the first caller creates. VALUE_ERROR if the path is not a readable and writable
  // directory. Requires a path that is not empty.
  absl::StatusOr<std::string> Identity() const;

 private:
  const std::string path_;
};

// The status of an errno about `what`: FILE_NOT_FOUND, NO_SPACE when the disk or a quota is full,
// LIMIT_EXCEEDED for a file larger than the system allows, else INTERNAL.
absl::Status FileError(const std::string& what, int error);
// Reads all `size` bytes; FILE_CORRUPT at the end of the file, INTERNAL with the system's reason.
absl::Status ReadAll(int fd, int64_t offset, int64_t size, char* into);
// Writes all `size` bytes, or returns FileError.
absl::Status WriteAll(int fd, int64_t offset, int64_t size, const char* from);

// Copy between the file at `offset`, where an array of shape `whole` begins, and the subarray of
// `shape` at `starts`, which is within bounds.
absl::Status ReadBlock(int fd, int64_t offset, int64_t width, const ir::Dims& whole,
                       const ir::Dims& starts, const ir::Dims& shape, char* block);
absl::Status WriteBlock(int fd, int64_t offset, int64_t width, const ir::Dims& whole,
                        const ir::Dims& starts, const ir::Dims& shape, const char* block);

}  // namespace tessera::worker::files
