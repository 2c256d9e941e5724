#include "base/words.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"

namespace tessera {
namespace {

constexpr size_t kSuggestedMax = 3;
constexpr size_t kNamesInRow = 72;  // letters

// How far off a word may be: more letters leave room for more slips.
int FarthestFrom(std::string_view word) { return word.size() < 6 ? 1 : word.size() < 12 ? 2 : 3; }

constexpr size_t kPartMin = 3;  // letters that tell a name by its beginning

bool BeginsOrHasPart(std::string_view name, std::string_view word) {
  if (word.size() < kPartMin) return false;
  if (name.substr(0, word.size()) == word) return true;
  const std::string parts = absl::StrCat("_", ToAbsl(name), "_");
  return parts.find(absl::StrCat("_", ToAbsl(word), "_")) != std::string::npos;
}

// A name cut at its numbers: words[0] numbers[0] words[1] ... A number becomes a range as names
// are folded together.
struct NumberedName {
  std::vector<std::string> words, numbers;
  std::vector<size_t> members;

  std::string Text() const {
    std::string out = words[0];
    for (size_t i = 0; i < numbers.size(); ++i) absl::StrAppend(&out, numbers[i], words[i + 1]);
    return out;
  }
};

NumberedName SplitAtNumbers(std::string_view name) {
  constexpr size_t kDigitsMax = 9;
  const auto digit = [&](size_t i) { return i < name.size() && name[i] >= '0' && name[i] <= '9'; };
  NumberedName out;
  size_t word = 0;  // where it begins
  for (size_t i = 1; i < name.size(); ++i) {
    if (!digit(i) || digit(i - 1)) continue;
    size_t end = i;
    while (digit(end)) ++end;
    const bool bracketed = name[i - 1] == '[' && end < name.size() && name[end] == ']';
    const bool plain = end - i <= kDigitsMax && (name[i] != '0' || end - i == 1);
    if (!plain || !(bracketed || end == name.size())) continue;
    out.words.emplace_back(name.substr(word, i - word));
    out.numbers.emplace_back(name.substr(i, end - i));
    word = end;
  }
  out.words.emplace_back(name.substr(word));
  return out;
}

// Rows that differ in the number at `place` alone become one. Requires: that number is no range
// yet.
std::vector<NumberedName> FoldAt(size_t place, std::vector<NumberedName> rows) {
  std::vector<NumberedName> out;
  std::vector<std::vector<size_t>> numbers;  // of each row of `out`, at `place`
  std::map<std::pair<std::vector<std::string>, std::vector<std::string>>, size_t> known;
  for (NumberedName& row : rows) {
    std::optional<size_t> number;
    if (place < row.numbers.size()) {
      number = std::stoul(row.numbers[place]);
      row.numbers[place].clear();
    }
    const auto [it, added] = known.try_emplace({row.words, row.numbers}, out.size());
    if (added) {
      out.push_back(std::move(row));
      numbers.emplace_back();
    } else {
      std::vector<size_t>& members = out[it->second].members;
      members.insert(members.end(), row.members.begin(), row.members.end());
    }
    if (number) numbers[it->second].push_back(*number);
  }
  for (size_t i = 0; i < out.size(); ++i) {
    if (numbers[i].empty()) continue;
    std::sort(numbers[i].begin(), numbers[i].end());
    out[i].numbers[place] = RangesText(numbers[i]);
  }
  return out;
}

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
    int distance = EditDistance(word, name);
    if (BeginsOrHasPart(name, word)) distance = std::min(distance, 1);
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

std::string RangesText(const std::vector<size_t>& numbers) {
  std::string out;
  for (size_t i = 0; i < numbers.size();) {
    size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    absl::StrAppend(&out, i == 0 ? "" : ",", numbers[i]);
    if (end - i > 1) absl::StrAppend(&out, "..", numbers[end - 1]);
    i = end;
  }
  return out;
}

std::vector<FoldedName> FoldNames(const std::vector<std::string>& names) {
  std::vector<NumberedName> rows;
  size_t places = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    rows.push_back(SplitAtNumbers(names[i]));
    rows.back().members = {i};
    places = std::max(places, rows.back().numbers.size());
  }
  // The last number first: where `place` is folded those behind it are ranges already.
  while (places-- > 0) rows = FoldAt(places, std::move(rows));
  std::vector<FoldedName> out;
  for (NumberedName& row : rows) {
    std::sort(row.members.begin(), row.members.end());
    out.push_back({row.Text(), std::move(row.members)});
  }
  return out;
}

std::vector<FoldedName> FoldAlike(const std::vector<std::string>& names,
                                  const std::vector<std::string>& looks) {
  std::map<std::string, std::vector<size_t>> alike;
  for (size_t i = 0; i < looks.size(); ++i) alike[looks[i]].push_back(i);
  std::vector<FoldedName> rows;
  for (const auto& [look, places] : alike) {
    std::vector<std::string> those;
    for (size_t i : places) those.push_back(names[i]);
    bool begun = false;
    for (FoldedName& name : FoldNames(those)) {
      for (size_t& member : name.members) member = places[member];
      if (begun && rows.back().text.size() + name.text.size() <= kNamesInRow) {
        FoldedName& row = rows.back();
        absl::StrAppend(&row.text, ", ", name.text);
        row.members.insert(row.members.end(), name.members.begin(), name.members.end());
      } else {
        rows.push_back(std::move(name));
        begun = true;
      }
    }
  }
  for (FoldedName& row : rows) std::sort(row.members.begin(), row.members.end());
  std::sort(rows.begin(), rows.end(),
            [](const FoldedName& a, const FoldedName& b) { return a.members[0] < b.members[0]; });
  return rows;
}

std::string VersionText(std::string_view program) {
  return absl::StrCat(ToAbsl(program), " " TESSERA_VERSION " (revision " TESSERA_REVISION ")\n");
}

}  // namespace tessera
