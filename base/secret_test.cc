// Proves that random texts differ, that hashes are those of SHA-256, and that comparison is exact.
#include "base/secret.h"

#include <set>
#include <string>

#include "base/sha256.h"
#include "gtest/gtest.h"

namespace tessera {
namespace {

TEST(Secret, RandomTextsDiffer) {
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) seen.insert(RandomHex(16));
  EXPECT_EQ(seen.size(), 100u);
  EXPECT_EQ(seen.begin()->size(), 32u);
}

TEST(Secret, TheHashIsSha256) {
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Secret, EqualTextsAreEqual) {
  EXPECT_TRUE(EqualInConstantTime("", ""));
  EXPECT_TRUE(EqualInConstantTime("abc", "abc"));
  EXPECT_FALSE(EqualInConstantTime("abc", "abd"));
  EXPECT_FALSE(EqualInConstantTime("abc", "abcd"));
}

}  // namespace
}  // namespace tessera
