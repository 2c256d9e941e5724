#include "ir/api/crc32c.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

namespace tessera::api {
namespace {

// RFC 3720, B.4.
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

TEST(Crc32cTest, CombinesLargeSizes) {
  constexpr uint64_t kSize = 16 << 20;
  const std::string zeros(kSize, '\0');
  uint32_t crc = Crc32c(0, zeros.data(), 1 << 10);
  for (uint64_t size = 1 << 10; size < kSize; size *= 2) crc = Crc32cCombine(crc, crc, size);
  EXPECT_EQ(crc, Crc32c(0, zeros.data(), kSize));
}

}  // namespace
}  // namespace tessera::api
