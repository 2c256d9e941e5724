// Proves that a port can be held by one process only, whether it listens or only reserves, and that
// wrong addresses are refused. The tests bind real loopback sockets.
#include "worker/daemon/listen.h"

#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace tessera::worker {
namespace {

// Returns the address of a port that was free a moment ago.
std::string FreeAddress() { return absl::StrCat("127.0.0.1:", Listen("127.0.0.1:0").value().port); }

TEST(ListenTest, AReservedPortIsTakenBeforeAnybodyListens) {
  const std::string address = FreeAddress();
  TESSERA_ASSERT_OK_AND_ASSIGN(const Listener first, Reserve(address));
  EXPECT_THAT(Reserve(address), ReasonIs("ALREADY_EXISTS", "the port is taken"));
}

TEST(ListenTest, AReservationEndsWithItsHolder) {
  const std::string address = FreeAddress();
  EXPECT_THAT(Reserve(address), IsOk());
  EXPECT_THAT(Reserve(address), IsOk());
}

TEST(ListenTest, PortZeroGivesAFreePort) {
  std::vector<Listener> listeners;
  std::set<int> ports;
  for (int i = 0; i < 64; ++i) {
    TESSERA_ASSERT_OK_AND_ASSIGN(Listener listener, Reserve("127.0.0.1:0"));
    EXPECT_TRUE(ports.insert(listener.port).second) << listener.port;
    listeners.push_back(std::move(listener));
  }
}

TEST(ListenTest, APortThatIsListenedOnIsTaken) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const Listener first, Listen("127.0.0.1:0"));
  EXPECT_THAT(Listen(first.endpoint()), ReasonIs("ALREADY_EXISTS", "the port is taken"));
  EXPECT_THAT(Reserve(first.endpoint()), ReasonIs("ALREADY_EXISTS", "the port is taken"));
}

TEST(ListenTest, AnInvalidAddressIsRefused) {
  EXPECT_THAT(Listen("nowhere"), ReasonIs("VALUE_ERROR", "expected host:port"));
  EXPECT_THAT(Listen("127.0.0.1:x"), ReasonIs("VALUE_ERROR", "cannot listen"));
}

}  // namespace
}  // namespace tessera::worker
