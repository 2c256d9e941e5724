// Reads and splits the handwritten digits of examples/data. See data/README.md.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace tessera::examples {

struct Digits {
  std::vector<double> pixels;  // 64 numbers from 0 to 1 for each image
  std::vector<int32_t> labels;
  int64_t size() const { return static_cast<int64_t>(labels.size()); }
  // Returns the images whose indices are order[begin] to order[end - 1], in this order.
  Digits Select(const std::vector<int64_t>& order, int64_t begin, int64_t end) const;
};

// Reads the digits of a file. Throws std::runtime_error, which names the file and the line.
Digits ReadDigits(const std::string& path);
// Returns a permutation of 0..n-1, which depends on `seed` but not on the platform.
std::vector<int64_t> Permutation(int64_t n, uint64_t seed);

}  // namespace tessera::examples
