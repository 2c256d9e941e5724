// Words for people: how many of what, and which of the known names was meant.
//
// Pure; any thread.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// "1 device", "2 devices".
std::string Counted(int64_t count, std::string_view noun);

// The Damerau-Levenshtein distance: letters added, removed or changed, or swapped with a neighbour.
int EditDistance(std::string_view a, std::string_view b);

// "; did you mean --address?": those of `names` that are nearest to `word`, the nearest first, at
// most three; empty when no name is near. A name that contains `word` is near.
std::string DidYouMean(std::string_view word, const std::vector<std::string>& names);

// "0..3,7" of 0, 1, 2, 3, 7. Requires: they ascend.
std::string RangesText(const std::vector<size_t>& numbers);

// Names that differ in one number fold into one with the range of it, and such into one more:
// "[0].w", "[1].w", "[2].w" are "[0..2].w". A number is one in brackets, or one at the end. In the
// order of the first of each; `members` are places in `names` and ascend.
struct FoldedName {
  std::string text;
  std::vector<size_t> members;
};
std::vector<FoldedName> FoldNames(const std::vector<std::string>& names);
// Those whose `looks` are equal, folded and with commas between: "%a, %b, w[0..3]"; several rows of
// them where their names are long.
std::vector<FoldedName> FoldAlike(const std::vector<std::string>& names,
                                  const std::vector<std::string>& looks);

// What --version prints: "tessera-worker 0.1.0 (revision 0123456789ab)" and a line end.
std::string VersionText(std::string_view program);

}  // namespace tessera
