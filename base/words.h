// Human-readable text: plurals, suggestions for misspelt names, short lists of numbered names.
//
// Stateless; thread-safe.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// "1 device", "2 devices".
std::string Pluralize(int64_t count, std::string_view noun);

// The Damerau-Levenshtein distance: insertions, deletions, substitutions and transpositions.
int EditDistance(std::string_view a, std::string_view b);

// "; did you mean --address?": at most three of `names`, the nearest to `word` first; empty when
// none is near. A name is near by its edit distance, or if `word` is its prefix or a component of
// it.
std::string DidYouMean(std::string_view word, const std::vector<std::string>& names);

// "0..3,7" for 0, 1, 2, 3, 7. Requires: the numbers ascend.
std::string RangesText(const std::vector<size_t>& numbers);

// Collapses names that differ only in a number into one name with a range, repeatedly: "[0].w",
// "[1].w", "[2].w" become "[0..2].w". Numbers count in brackets and at the end of a name. In the
// order of the first of each; `indices` into `names` ascend.
struct CollapsedName {
  std::string text;
  std::vector<size_t> indices;
};
std::vector<CollapsedName> CollapseNumberedNames(const std::vector<std::string>& names);
// Collapses the names with equal `keys` into one text, with commas: "%a, %b, w[0..3]"; into several
// if it would be too long.
std::vector<CollapsedName> CollapseByKey(const std::vector<std::string>& names,
                                         const std::vector<std::string>& keys);

// The output of --version: "tessera-worker 0.1.0 (revision 0123456789ab)\n".
std::string VersionText(std::string_view program);

}  // namespace tessera
