// Reads whole files, and replaces whole files atomically.
//
// A file is replaced by writing a temporary file in the same folder and renaming it: a reader finds
// either the old contents or the new ones, and never a part. If a step fails, the temporary file is
// removed, and the old contents stay.
//
// Each operation has two forms. One returns a VALUE_ERROR whose message names the file, the cause
// and, where that is known, what to do about it. The other, whose name begins with Try, returns an
// errno, for callers that write the error text themselves or continue without the file.
//
// Stateless; thread-safe. Several threads and processes may replace one file at the same time; the
// last one wins.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tessera {

// The default limit on the size of a file that is read whole: certificates, tokens and the like are
// far shorter.
inline constexpr size_t kWholeFileBytesMax = size_t{1} << 20;

// Reads the whole file. Fails if it cannot be read, or is longer than `bytes_max` bytes.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path,
                                          size_t bytes_max = kWholeFileBytesMax);
// Reads the whole file into `bytes`. Returns 0 or an errno, which is EFBIG if the file is longer
// than `bytes_max` bytes. After an error, the contents of `bytes` are not specified.
int TryReadWholeFile(const std::string& path, size_t bytes_max, std::string* bytes);

// Replaces the file, or makes it if it does not exist. The new contents survive a power failure
// from the return of this function on. A private file gets mode 0600, others get 0644, whatever the
// umask.
absl::Status ReplaceFile(const std::string& path, std::string_view bytes, bool is_private);

// The users who may read a file that is written.
enum class FileAccess {
  kOwner,     // mode 0600
  kEveryone,  // mode 0644
  kByUmask,   // mode 0666 without the bits of the umask, as for a file that a user asks for
};
struct ReplaceOptions {
  FileAccess access = FileAccess::kOwner;
  // Whether the new contents survive a power failure. This takes two writes to the disk, which a
  // file that can be made again is not worth.
  bool is_durable = true;
};
// Like ReplaceFile, but returns 0 or the errno of the step that failed.
int TryReplaceFile(const std::string& path, std::string_view bytes, ReplaceOptions options);

// Makes the present names in the folder of `path` durable, for code that makes or renames a file
// itself. Returns 0 or an errno.
int SyncFolderOf(const std::string& path);

}  // namespace tessera
