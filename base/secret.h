// Random bytes, constant-time comparison, and files that only their owner can read.
//
// Thread-safe.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tessera {

// Returns `bytes` random bytes from the kernel, in lower-case hex.
std::string RandomHex(size_t bytes);
// Returns whether the texts are equal. Takes the same time for all texts of one length.
bool EqualInConstantTime(std::string_view a, std::string_view b);

// Reads the whole file. Returns VALUE_ERROR, with the file and the cause, if the file cannot be
// read or is longer than `bytes_max` bytes.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path, size_t bytes_max = 1 << 20);
// Replaces the file atomically and durably: readers find either the old or the new contents, also
// after a power failure. A private file gets mode 0600, others get 0644.
absl::Status ReplaceFile(const std::string& path, std::string_view bytes, bool is_private);

}  // namespace tessera
