// Proves which texts are taken as addresses, what the errors say about the others, and which
// addresses count as loopback. The tests resolve no names and make no connections.
#include "base/address.h"

#include <gtest/gtest.h>

#include "base/testing/status_matchers.h"

namespace tessera {
namespace {

TEST(ParseHostPortTest, AcceptsHostAndPort) {
  const struct {
    const char *address, *host, *port;
  } rows[] = {
      {"127.0.0.1:8470", "127.0.0.1", "8470"},
      {"node-1.example:1", "node-1.example", "1"},
      {"[::1]:65535", "::1", "65535"},
      {"dns:///a:08470", "a", "8470"},
  };
  for (const auto& row : rows) {
    TESSERA_ASSERT_OK_AND_ASSIGN(const HostPort got, ParseHostPort(row.address));
    EXPECT_EQ(got.host, row.host);
    EXPECT_EQ(got.port, row.port);
    EXPECT_THAT(CheckAddress(row.address), IsOk());
  }
  EXPECT_THAT(CheckAddress("unix:/run/tessera.sock"), IsOk());
}

TEST(ParseHostPortTest, ErrorsSayWhatIsWrongAndWhatIsExpected) {
  const struct {
    const char *address, *message;
  } rows[] = {
      {"127.0.0.1:74006", "'74006' is not a port; a port is a number from 1 to 65535"},
      {"127.0.0.1:0", "'0' is not a port"},
      {"127.0.0.1:-1", "'-1' is not a port"},
      {"127.0.0.1:8470/x", "'8470/x' is not a port"},
      {"a:99999999999", "'99999999999' is not a port"},
      {"127.0.0.1",
       "'127.0.0.1': the port is missing; HOST:PORT is expected, such as 127.0.0.1:8470"},
      {"127.0.0.1:", "the port is missing"},
      {"[::1]", "the port is missing"},
      {"[::1]:", "the port is missing"},
      {"http://127.0.0.1:8470", "http:// does not belong to an address"},
      {"tcp://a", "tcp:// does not belong to an address"},
      {"::1:8470", "in brackets, such as [::1]:8470"},
      {"[::1]x:8470", "brackets"},
      {"[::1:8470", "brackets"},
      {"[]:8470", "brackets"},
      {":8470", "the host is missing"},
      {"dns:///", "the address is empty"},
      {"", "the address is empty"},
  };
  for (const auto& row : rows) {
    EXPECT_THAT(CheckAddress(row.address), ReasonIs("VALUE_ERROR", row.message)) << row.address;
    EXPECT_THAT(CheckAddress(row.address), ReasonIs("VALUE_ERROR", "HOST:PORT is expected"));
  }
}

TEST(WithoutPortTest, KeepsTheHostAsItIsWritten) {
  const struct {
    const char *address, *host;
  } rows[] = {
      {"node-1", "node-1"},
      {"node-1:8470", "node-1"},
      {"[::1]", "[::1]"},
      {"[::1]:8470", "[::1]"},
      {"::1", "::1"},
      {"[::1", ""},
      {"[::1]x:1", ""},
      {":8470", ""},
      {"", ""},
  };
  for (const auto& row : rows) EXPECT_EQ(WithoutPort(row.address), row.host) << row.address;
  EXPECT_EQ(WithBrackets("::1"), "[::1]");
  EXPECT_EQ(WithBrackets("node-1"), "node-1");
  EXPECT_EQ(WithoutBrackets("[::1]"), "::1");
  EXPECT_EQ(WithoutBrackets("node-1"), "node-1");
}

TEST(IsLoopbackTest, AcceptsTheAddressesOfThisMachine) {
  for (const char* address :
       {"127.0.0.1", "127.0.0.1:8470", "127.255.0.3:1", "localhost", "localhost:8470",
        "LocalHost:8470", "[::1]", "[::1]:8470", "::1", "unix:/run/tessera.sock"}) {
    EXPECT_TRUE(IsLoopback(address)) << address;
  }
}

TEST(IsLoopbackTest, RefusesNamesThatLookLikeLoopback) {
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
