// Proves that Crc32c agrees with published values and with the bitwise definition, for sizes and
// alignments around the fast paths, and that checksums of parts combine to the checksum of the
// whole.
#include "ir/api/crc32c.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

namespace tessera::api {
namespace {

// The values are from RFC 3720, B.4.
TEST(Crc32cTest, PublishedValues) {
  EXPECT_EQ(Crc32c(0, "123456789", 9), 0xe3069283u);
  EXPECT_EQ(Crc32c(0, std::string(32, '\0').data(), 32), 0x8a9136aau);
  EXPECT_EQ(Crc32c(0, std::string(32, '\xff').data(), 32), 0x62a8ab43u);
  EXPECT_EQ(Crc32c(0, nullptr, 0), 0u);
}

TEST(Crc32cTest, PartsMakeUpTheWhole) {
  std::vector<unsigned char> bytes(1000);
  std::iota(bytes.begin(), bytes.end(), 7);
  const uint32_t whole = Crc32c(0, bytes.data(), bytes.size());
  for (size_t cut : {size_t{0}, size_t{1}, size_t{8}, size_t{13}, size_t{512}, bytes.size()}) {
    const uint32_t first = Crc32c(0, bytes.data(), cut);
    const uint32_t second = Crc32c(0, bytes.data() + cut, bytes.size() - cut);
    EXPECT_EQ(Crc32c(first, bytes.data() + cut, bytes.size() - cut), whole) << cut;
    EXPECT_EQ(Crc32cCombine(first, second, bytes.size() - cut), whole) << cut;
  }
}

// Computes the checksum bit by bit, as it is defined.
uint32_t Crc32cByDefinition(const unsigned char* p, size_t size) {
  uint32_t c = ~0u;
  for (size_t i = 0; i < size; ++i) {
    c ^= p[i];
    for (int k = 0; k < 8; ++k) c = (c >> 1) ^ ((c & 1) != 0 ? 0x82f63b78u : 0u);
  }
  return ~c;
}

TEST(Crc32cTest, AnySizeAndAlignment) {
  std::vector<unsigned char> bytes((200 << 10) + 16);
  uint64_t state = 1;
  for (unsigned char& b : bytes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    b = static_cast<unsigned char>(state >> 56);
  }
  for (const size_t size :
       {1, 7, 3071, 3072, 3073, 6150, 49151, 49152, 49160, 52224, 147456, 200000}) {
    for (const size_t at : {0, 3, 8}) {
      EXPECT_EQ(Crc32c(0, &bytes[at], size), Crc32cByDefinition(&bytes[at], size))
          << size << " at " << at;
    }
  }
}

TEST(Crc32cTest, CopiesPieces) {
  char to[9] = {};
  EXPECT_EQ(CopyWithCrc32c({"1", "", "2345678", "9"}, to), 0xe3069283u);
  EXPECT_EQ(std::string(to, 9), "123456789");
  EXPECT_EQ(CopyWithCrc32c({}, nullptr), 0u);
}

TEST(Crc32cTest, CombinesLargeSizes) {
  constexpr uint64_t kSize = 16 << 20;
  const std::string zeros(kSize, '\0');
  uint32_t crc = Crc32c(0, zeros.data(), 1 << 10);
  for (uint64_t size = 1 << 10; size < kSize; size *= 2) crc = Crc32cCombine(crc, crc, size);
  EXPECT_EQ(crc, Crc32c(0, zeros.data(), kSize));
}

}  // namespace
}  // namespace tessera::api
