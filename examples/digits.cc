// Reads the file of handwritten digits and shuffles the images, for the examples that learn to read
// digits. The random numbers are made here and not by the standard library, so that a seed gives
// the same order on every platform.
#include "examples/digits.h"

#include <fstream>
#include <numeric>
#include <stdexcept>
#include <utility>

namespace tessera::examples {
namespace {

constexpr size_t kPixels = 64;

// The value of a base-17 digit, 0 to 16; -1 for another character.
int PixelValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'g' ? c - 'a' + 10 : -1;
}

// The next number of the generator splitmix64.
uint64_t NextRandom(uint64_t* state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace

Digits Digits::Select(const std::vector<int64_t>& order, int64_t begin, int64_t end) const {
  Digits out;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t at = order[i];
    out.pixels.insert(out.pixels.end(), pixels.begin() + at * kPixels,
                      pixels.begin() + (at + 1) * kPixels);
    out.labels.push_back(labels[at]);
  }
  return out;
}

Digits ReadDigits(const std::string& path) {
  std::ifstream in(path);
  if (!in)
    throw std::runtime_error(path +
                             ": cannot be read. Run from the repository's root, or give --data");
  Digits digits;
  std::string line;
  for (int line_number = 1; std::getline(in, line); ++line_number) {
    bool ok = line.size() == kPixels + 2 && line[kPixels] == ' ' && line[kPixels + 1] >= '0' &&
              line[kPixels + 1] <= '9';
    for (size_t i = 0; ok && i < kPixels; ++i) {
      const int pixel = PixelValue(line[i]);
      ok = pixel >= 0;
      digits.pixels.push_back(pixel / 16.0);
    }
    if (!ok) {
      throw std::runtime_error(path + ":" + std::to_string(line_number) +
                               ": 64 letters of 0-9a-g, a blank and a digit are expected");
    }
    digits.labels.push_back(line[kPixels + 1] - '0');
  }
  return digits;
}

std::vector<int64_t> Permutation(int64_t n, uint64_t seed) {
  std::vector<int64_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  for (int64_t i = n - 1; i > 0; --i) {
    std::swap(order[i], order[NextRandom(&seed) % static_cast<uint64_t>(i + 1)]);
  }
  return order;
}

}  // namespace tessera::examples
