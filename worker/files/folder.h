// The folder of files: opens what lies below it, and nothing else.
//
// Every part of a path is opened by itself and may not be a link, so that whoever can write into
// the folder cannot lead anybody out of it. Thread-safe.
#pragma once
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/unique_fd.h"
#include "ir/type.h"

namespace tessera::worker::files {

class Folder {
 public:
  // `path` empty: every use answers FILES_DISABLED. Else it is to be a folder when it is used.
  explicit Folder(std::string path) : path_(std::move(path)) {}

  // A file below: its folder, and its name there. `path` has passed CheckFilePath. With `make`
  // folders that are missing are made; else FILE_NOT_FOUND.
  struct Place {
    UniqueFd folder;
    std::string name;
  };
  absl::StatusOr<Place> Find(const std::string& path, bool make) const;

  // For reading; FILE_NOT_FOUND. It is a plain file of `*bytes`.
  absl::StatusOr<UniqueFd> Open(const std::string& path, int64_t* bytes) const;

  // An identity that all processes that see this folder agree on, and that no other folder has: the
  // content of a hidden file, which the first caller creates. VALUE_ERROR if the path is not a
  // folder that can be read and written. Requires a path that is not empty.
  absl::StatusOr<std::string> Identity() const;

 private:
  const std::string path_;
};

// What the system's error number says of `what`: FILE_NOT_FOUND, NO_SPACE when the disk or a quota
// is full, LIMIT_EXCEEDED for a file beyond what the system allows, else INTERNAL.
absl::Status FileError(const std::string& what, int error);
// All of it, or FILE_CORRUPT at the end of the file, or INTERNAL with the system's reason.
absl::Status ReadAll(int fd, int64_t offset, int64_t size, char* into);
// All of it, or FileError.
absl::Status WriteAll(int fd, int64_t offset, int64_t size, const char* from);

// Between the file at `offset`, where an array of shape `whole` begins, and its block of `shape` at
// `starts`, which lies inside.
absl::Status ReadBlock(int fd, int64_t offset, int64_t width, const ir::Dims& whole,
                       const ir::Dims& starts, const ir::Dims& shape, char* block);
absl::Status WriteBlock(int fd, int64_t offset, int64_t width, const ir::Dims& whole,
                        const ir::Dims& starts, const ir::Dims& shape, const char* block);

}  // namespace tessera::worker::files
