// The folder of files of a worker (--files-dir): opens files under it, and no others.
//
// Every component of a path is opened by itself and may not be a link, so that nobody who can write
// into the folder can redirect a path out of it. Thread-safe.
#pragma once
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/unique_fd.h"
#include "ir/type.h"

namespace tessera::worker::files {

class FilesRoot {
 public:
  // If `path` is empty, every use fails with FILES_DISABLED. Otherwise it must be a directory when
  // it is used.
  explicit FilesRoot(std::string path) : path_(std::move(path)) {}

  // A file under the root: its directory, and its name in that directory. Locate requires a `path`
  // that has passed CheckFilePath. If `make_directories` is true, it creates missing directories;
  // otherwise it returns FILE_NOT_FOUND for them.
  struct Location {
    UniqueFd directory;
    std::string name;
  };
  absl::StatusOr<Location> Locate(const std::string& path, bool make_directories) const;

  // Opens a regular file for reading and sets `*bytes` to its size. Returns FILE_NOT_FOUND if there
  // is no such file.
  absl::StatusOr<UniqueFd> Open(const std::string& path, int64_t* bytes) const;

  // Returns a unique id of the directory, which is the same for all processes that share the
  // directory. It is the content of a hidden file, which the first caller creates. Returns
  // VALUE_ERROR if the path is not a readable and writable directory. Requires a path that is not
  // empty.
  absl::StatusOr<std::string> Identity() const;

 private:
  const std::string path_;
};

// Makes a status from an errno about `what`: FILE_NOT_FOUND, NO_SPACE if the disk or a quota is
// full, LIMIT_EXCEEDED for a file larger than the system allows, VALUE_ERROR for a link, else
// INTERNAL.
absl::Status FileError(const std::string& what, int error);
// Reads all `size` bytes. Returns FILE_CORRUPT if the file ends before, and FileError for other
// errors.
absl::Status ReadAll(int fd, int64_t offset, int64_t size, char* into);
// Writes all `size` bytes. Returns FileError if it cannot.
absl::Status WriteAll(int fd, int64_t offset, int64_t size, const char* from);

// Copy a subarray between a file and memory. In the file an array of shape `whole` begins at byte
// `offset`; its elements have `width` bytes. The subarray has shape `shape`, begins at the index
// `starts` of the array, and must lie inside it.
absl::Status ReadBlock(int fd, int64_t offset, int64_t width, const ir::Dims& whole,
                       const ir::Dims& starts, const ir::Dims& shape, char* block);
absl::Status WriteBlock(int fd, int64_t offset, int64_t width, const ir::Dims& whole,
                        const ir::Dims& starts, const ir::Dims& shape, const char* block);

}  // namespace tessera::worker::files
