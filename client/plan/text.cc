// Human-readable numbers for messages, pictures of plans and the tables of the command line.
#include "client/plan/text.h"

#include <cmath>
#include <cstdlib>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace tessera::internal {

std::string ReplaceControlChars(const std::string& text) {
  std::string out = text;
  for (char& c : out) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f) c = '?';
  }
  return out;
}

std::string BytesText(double bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < std::size(kUnits)) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? absl::StrFormat("%.0f B", bytes)
                   : absl::StrFormat("%.1f %s", bytes, kUnits[unit]);
}

std::string DurationText(absl::Duration duration) {
  if (duration == absl::InfiniteDuration()) return "for ever";
  const double seconds = absl::ToDoubleSeconds(duration);
  if (seconds < 0) return "0 s";
  if (seconds < 1e-3) return absl::StrFormat("%.0f us", seconds * 1e6);
  if (seconds < 1) return absl::StrFormat("%.3g ms", seconds * 1e3);
  if (seconds < 60) return absl::StrFormat("%.3g s", seconds);
  const auto whole = static_cast<int64_t>(seconds);
  if (whole < 3600) return absl::StrFormat("%d m %02d s", whole / 60, whole % 60);
  if (whole < 86400) return absl::StrFormat("%d h %02d m", whole / 3600, whole / 60 % 60);
  return absl::StrFormat("%d d %d h", whole / 86400, whole / 3600 % 24);
}

std::string CountText(int64_t count) {
  std::string digits = absl::StrCat(std::abs(count));
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3) digits.insert(at, ",");
  return (count < 0 ? "-" : "") + digits;
}

std::string IntsText(const std::vector<int64_t>& ints) {
  std::vector<std::string> runs;
  for (size_t i = 0; i < ints.size();) {
    size_t end = i + 1;
    while (end < ints.size() && ints[end] == ints[end - 1] + 1) ++end;
    runs.push_back(end - i == 1 ? absl::StrCat(ints[i])
                                : absl::StrCat(ints[i], end - i == 2 ? "," : "-", ints[end - 1]));
    i = end;
  }
  return absl::StrJoin(runs, ",");
}

}  // namespace tessera::internal
