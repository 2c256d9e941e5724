// Formats numbers as human-readable text. Stateless; thread-safe. Used by the SDK and the command
// line.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace tessera::internal {

// Replaces the control characters of a text by '?', except for tabs and line ends.
std::string ReplaceControlChars(const std::string& text);
// Returns "512 B", "1.5 KiB", "12.3 GiB".
std::string BytesText(double bytes);
// Returns "850 ms", "12.3 s", "4 m 05 s", "3 h 12 m", "2 d 4 h".
std::string DurationText(absl::Duration duration);
// Returns "1,234,567".
std::string CountText(int64_t count);
std::string IntsText(const std::vector<int64_t>& ints);  // returns "0-3,8"; `ints` must be sorted

}  // namespace tessera::internal
