#include "base/address.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(IsLoopbackTest, IsTheAddressesOfThisMachine) {
  for (const char* address :
       {"127.0.0.1", "127.0.0.1:8470", "127.255.0.3:1", "localhost", "localhost:8470",
        "LocalHost:8470", "[::1]", "[::1]:8470", "::1", "unix:/run/tessera.sock"}) {
    EXPECT_TRUE(IsLoopback(address)) << address;
  }
}

TEST(IsLoopbackTest, IsNoNameThatLooksLikeOne) {
  for (const char* address :
       {"127.example.com", "127.example.com:8470", "127.0.0.1.example.com:8470", "127.0.0.1x",
        "127.0.0", "127.1:8470", "localhost.example.com:8470", "localhosts", "[::1].example.com:80",
        "[::1", "[::2]:8470", "128.0.0.1:8470", "0.0.0.0:8470", "[::]:8470", "10.127.0.1", "",
        ":80", "127.0.0.1 "}) {
    EXPECT_FALSE(IsLoopback(address)) << address;
  }
}

}  // namespace
}  // namespace tessera
