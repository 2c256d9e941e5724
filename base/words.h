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

// How many letters to add, take away or change; two neighbours that change places count once.
int EditDistance(std::string_view a, std::string_view b);

// "; did you mean --address?": those of `names` that are nearest to `word`, the nearest first, at
// most three; empty when none is near.
std::string DidYouMean(std::string_view word, const std::vector<std::string>& names);

// What --version prints: "tessera-worker 0.1.0 (revision 0123456789ab)" and a line end.
std::string VersionText(std::string_view program);

}  // namespace tessera
