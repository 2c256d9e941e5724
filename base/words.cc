#include "base/words.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"

namespace tessera {
namespace {

constexpr size_t kSuggestedMax = 3;

// How far off a word may be: more letters leave room for more slips.
int FarthestFrom(std::string_view word) { return word.size() < 6 ? 1 : word.size() < 12 ? 2 : 3; }

}  // namespace

std::string Counted(int64_t count, std::string_view noun) {
  return absl::StrCat(count, " ", ToAbsl(noun), count == 1 ? "" : "s");
}

int EditDistance(std::string_view a, std::string_view b) {
  // Rows i - 2, i - 1 and i of the table of distances between prefixes.
  std::vector<int> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    std::swap(before, last);
    std::swap(last, row);
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int changed = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({changed, last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::string DidYouMean(std::string_view word, const std::vector<std::string>& names) {
  std::vector<std::pair<int, std::string>> near;
  for (const std::string& name : names) {
    const int distance = EditDistance(word, name);
    if (distance <= FarthestFrom(word)) near.emplace_back(distance, name);
  }
  // By distance; of two as near, the one that comes first in the list.
  std::stable_sort(near.begin(), near.end(),
                   [](const auto& x, const auto& y) { return x.first < y.first; });
  if (near.size() > kSuggestedMax) near.resize(kSuggestedMax);
  if (near.empty()) return "";
  return absl::StrCat(
      "; did you mean ",
      absl::StrJoin(near, " or ", [](std::string* out, const auto& n) { *out += n.second; }), "?");
}

std::string VersionText(std::string_view program) {
  return absl::StrCat(ToAbsl(program), " " TESSERA_VERSION " (revision " TESSERA_REVISION ")\n");
}

}  // namespace tessera
