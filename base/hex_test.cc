// Proves that BytesFromHex decodes every byte in both cases of letters and refuses all other texts.
#include "base/hex.h"

#include <optional>
#include <string>

#include "gtest/gtest.h"

namespace tessera {
namespace {

TEST(BytesFromHex, TwoDigitsAreAByte) {
  EXPECT_EQ(BytesFromHex(""), "");
  EXPECT_EQ(BytesFromHex("00fF7a"), std::string("\0\xff\x7a", 3));
  for (int i = 0; i < 256; ++i) {
    const char* const digits = "0123456789abcdef";
    const std::string two = {digits[i / 16], digits[i % 16]};
    EXPECT_EQ(BytesFromHex(two), std::string(1, static_cast<char>(i)));
  }
}

TEST(BytesFromHex, OtherTextsAreRefused) {
  for (const char* text : {"0", "000", "0g", "g0", "0x", " 0", "/0", ":0", "@0", "`0"})
    EXPECT_EQ(BytesFromHex(text), std::nullopt) << text;
}

}  // namespace
}  // namespace tessera
