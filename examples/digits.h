// The handwritten digits of examples/data: reading and splitting them. See data/README.md.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace tessera::examples {

struct Digits {
  std::vector<double> pixels;  // 64 an image, 0 to 1
  std::vector<int32_t> labels;
  int64_t size() const { return static_cast<int64_t>(labels.size()); }
  // Images [begin, end) of `order`.
  Digits Select(const std::vector<int64_t>& order, int64_t begin, int64_t end) const;
};

// Throws std::runtime_error naming the file and the line.
Digits ReadDigits(const std::string& path);
// A permutation of 0..n-1, the same on every platform for the same seed.
std::vector<int64_t> Permutation(int64_t n, uint64_t seed);

}  // namespace tessera::examples
