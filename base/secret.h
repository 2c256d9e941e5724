// The few things that secrets need: randomness, a comparison that tells nothing by its
// duration, and files that only their owner reads.
//
// Pure but for the files; any thread.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tessera {

// `bytes` bytes of the kernel's randomness in lower-case hex.
std::string RandomHex(size_t bytes);
// Takes as long whatever differs; texts of different lengths differ at once.
bool EqualInConstantTime(std::string_view a, std::string_view b);

// The whole file, which is at most `bytes_max` long. VALUE_ERROR names it and says what is wrong.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path, size_t bytes_max = 1 << 20);
// Replaces the file at once: whoever reads it finds the old bytes or the new ones, and so does
// whoever reads it after the machine has lost its power. Private: mode 0600, else 0644.
absl::Status ReplaceFile(const std::string& path, std::string_view bytes, bool is_private);

}  // namespace tessera
