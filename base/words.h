// Makes human-readable text: plurals, suggestions for misspelt names, short lists of numbered
// names.
//
// Stateless; thread-safe.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// Returns a count with its noun: "1 device", "2 devices".
std::string Pluralize(int64_t count, std::string_view noun);

// Returns the Damerau-Levenshtein distance: the number of insertions, deletions, substitutions and
// transpositions between the two texts.
int EditDistance(std::string_view a, std::string_view b);

// Returns a text such as "; did you mean --address?" with at most three of `names`, the nearest to
// `word` first. Returns "" if none is near. A name is near if its edit distance to `word` is small,
// or if `word` is a prefix of the name or one of the name's components between underscores.
std::string DidYouMean(std::string_view word, const std::vector<std::string>& names);

// Returns the numbers as ranges: "0..3,7" for 0, 1, 2, 3, 7. The numbers must ascend.
std::string RangesText(const std::vector<size_t>& numbers);

// Collapses names that differ only in a number into one name with a range, repeatedly: "[0].w",
// "[1].w", "[2].w" become "[0..2].w". Only numbers in brackets or at the end of a name are
// collapsed. The results are in the order of the first name that each stands for. `indices` are the
// positions in `names` of all the names that a result stands for, in ascending order.
struct CollapsedName {
  std::string text;
  std::vector<size_t> indices;
};
std::vector<CollapsedName> CollapseNumberedNames(const std::vector<std::string>& names);
// Collapses the names whose `keys` are equal into one text with commas: "%a, %b, w[0..3]". If that
// text would be too long, makes several texts.
std::vector<CollapsedName> CollapseByKey(const std::vector<std::string>& names,
                                         const std::vector<std::string>& keys);

// Returns the output of --version: "tessera-worker 0.1.0 (revision 0123456789ab)\n".
std::string VersionText(std::string_view program);

}  // namespace tessera
