// Makes the parts of messages that people read: error messages use the suggestions, and the
// explanations of plans and memory use the collapsed names.
#include "base/words.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/build.h"
#include "base/status.h"

namespace tessera {
namespace {

constexpr size_t kMaxSuggestions = 3;
constexpr size_t kMaxRowChars = 72;

// Returns the largest edit distance at which a name is still near. Longer words allow more typos.
int MaxEditDistance(std::string_view word) {
  return word.size() < 6 ? 1 : word.size() < 12 ? 2 : 3;
}

constexpr size_t kMinPrefixLength = 3;

// Returns whether `word` is a prefix of the name, or one of its components between underscores.
bool HasPrefixOrComponent(std::string_view name, std::string_view word) {
  if (word.size() < kMinPrefixLength) return false;
  if (name.substr(0, word.size()) == word) return true;
  const std::string delimited = absl::StrCat("_", ToAbsl(name), "_");
  return delimited.find(absl::StrCat("_", ToAbsl(word), "_")) != std::string::npos;
}

// A name split at its numbers: words[0] numbers[0] words[1] ... A number becomes a range when names
// are collapsed.
struct NumberedName {
  std::vector<std::string> words, numbers;
  std::vector<size_t> indices;  // positions of the names that this one stands for

  std::string Text() const {
    std::string out = words[0];
    for (size_t i = 0; i < numbers.size(); ++i) absl::StrAppend(&out, numbers[i], words[i + 1]);
    return out;
  }
};

// Splits a name at its numbers in brackets and at a number at its end.
NumberedName SplitAtNumbers(std::string_view name) {
  constexpr size_t kMaxDigits = 9;
  const auto digit = [&](size_t i) { return i < name.size() && name[i] >= '0' && name[i] <= '9'; };
  NumberedName out;
  size_t word_begin = 0;
  for (size_t i = 1; i < name.size(); ++i) {
    if (!digit(i) || digit(i - 1)) continue;
    size_t end = i;
    while (digit(end)) ++end;
    const bool bracketed = name[i - 1] == '[' && end < name.size() && name[end] == ']';
    // Only numbers without leading zeros count, because their digits can be restored from the
    // value.
    const bool plain = end - i <= kMaxDigits && (name[i] != '0' || end - i == 1);
    if (!plain || !(bracketed || end == name.size())) continue;
    out.words.emplace_back(name.substr(word_begin, i - word_begin));
    out.numbers.emplace_back(name.substr(i, end - i));
    word_begin = end;
  }
  out.words.emplace_back(name.substr(word_begin));
  return out;
}

// Merges rows that differ only in numbers[index], which must not be a range yet.
std::vector<NumberedName> MergeAt(size_t index, std::vector<NumberedName> rows) {
  std::vector<NumberedName> out;
  std::vector<std::vector<size_t>> numbers;  // values of numbers[index] for each row of `out`
  std::map<std::pair<std::vector<std::string>, std::vector<std::string>>, size_t> known;
  for (NumberedName& row : rows) {
    std::optional<size_t> number;
    if (index < row.numbers.size()) {
      number = std::stoul(row.numbers[index]);
      row.numbers[index].clear();
    }
    const auto [it, added] = known.try_emplace({row.words, row.numbers}, out.size());
    if (added) {
      out.push_back(std::move(row));
      numbers.emplace_back();
    } else {
      std::vector<size_t>& indices = out[it->second].indices;
      indices.insert(indices.end(), row.indices.begin(), row.indices.end());
    }
    if (number) numbers[it->second].push_back(*number);
  }
  for (size_t i = 0; i < out.size(); ++i) {
    if (numbers[i].empty()) continue;
    std::sort(numbers[i].begin(), numbers[i].end());
    out[i].numbers[index] = RangesText(numbers[i]);
  }
  return out;
}

}  // namespace

std::string Pluralize(int64_t count, std::string_view noun) {
  return absl::StrCat(count, " ", ToAbsl(noun), count == 1 ? "" : "s");
}

int EditDistance(std::string_view a, std::string_view b) {
  // Only the rows i - 2, i - 1 and i of the table of distances between prefixes are kept.
  std::vector<int> prev2(b.size() + 1), prev(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    std::swap(prev2, prev);
    std::swap(prev, row);
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int changed = prev[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({changed, prev[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], prev2[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::string DidYouMean(std::string_view word, const std::vector<std::string>& names) {
  std::vector<std::pair<int, std::string>> near;
  for (const std::string& name : names) {
    int distance = EditDistance(word, name);
    if (HasPrefixOrComponent(name, word)) distance = std::min(distance, 1);
    if (distance <= MaxEditDistance(word)) near.emplace_back(distance, name);
  }
  // Sort by distance. Names with equal distance stay in the order of the list.
  std::stable_sort(near.begin(), near.end(),
                   [](const auto& x, const auto& y) { return x.first < y.first; });
  if (near.size() > kMaxSuggestions) near.resize(kMaxSuggestions);
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

std::vector<CollapsedName> CollapseNumberedNames(const std::vector<std::string>& names) {
  std::vector<NumberedName> rows;
  size_t max_numbers = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    rows.push_back(SplitAtNumbers(names[i]));
    rows.back().indices = {i};
    max_numbers = std::max(max_numbers, rows.back().numbers.size());
  }
  // Merge from the last number to the first. So when a number is merged, the numbers after it are
  // ranges already.
  for (size_t i = max_numbers; i-- > 0;) rows = MergeAt(i, std::move(rows));
  std::vector<CollapsedName> out;
  for (NumberedName& row : rows) {
    std::sort(row.indices.begin(), row.indices.end());
    out.push_back({row.Text(), std::move(row.indices)});
  }
  return out;
}

// Collapses the names of each group first and then joins the results, up to kMaxRowChars per row,
// so that a row fits into a line of a table. The rows are sorted by their first name, because the
// order of the keys means nothing to a reader.
std::vector<CollapsedName> CollapseByKey(const std::vector<std::string>& names,
                                         const std::vector<std::string>& keys) {
  std::map<std::string, std::vector<size_t>> groups;
  for (size_t i = 0; i < keys.size(); ++i) groups[keys[i]].push_back(i);
  std::vector<CollapsedName> rows;
  for (const auto& [key, indices] : groups) {
    std::vector<std::string> group;
    for (size_t i : indices) group.push_back(names[i]);
    bool has_row = false;
    for (CollapsedName& name : CollapseNumberedNames(group)) {
      for (size_t& index : name.indices) index = indices[index];
      if (has_row && rows.back().text.size() + name.text.size() <= kMaxRowChars) {
        CollapsedName& row = rows.back();
        absl::StrAppend(&row.text, ", ", name.text);
        row.indices.insert(row.indices.end(), name.indices.begin(), name.indices.end());
      } else {
        rows.push_back(std::move(name));
        has_row = true;
      }
    }
  }
  for (CollapsedName& row : rows) std::sort(row.indices.begin(), row.indices.end());
  std::sort(rows.begin(), rows.end(), [](const CollapsedName& a, const CollapsedName& b) {
    return a.indices[0] < b.indices[0];
  });
  return rows;
}

std::string VersionText(std::string_view program) {
  return absl::StrCat(ToAbsl(program), " ", BuildText(ThisBuild()), "\n");
}

}  // namespace tessera
