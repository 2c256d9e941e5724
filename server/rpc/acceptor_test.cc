// Proves that the acceptor goes on after it has run out of file descriptors, and which addresses it
// listens on. The test connects with sockets of its own and only counts accepted connections.
#include "server/rpc/acceptor.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "absl/synchronization/mutex.h"
#include "base/testing/processes.h"
#include "base/testing/status_matchers.h"

namespace tessera::server::rpc {
namespace {

using testing::Eventually;

constexpr absl::Duration kPeerTimeout = absl::Seconds(20);

// Keeps the connections that an acceptor accepts.
class AcceptedConnections {
 public:
  // Returns the callback that keeps each connection.
  Acceptor::ConnectionFn KeepFn() {
    return [this](int fd) {
      absl::MutexLock lock(&mu_);
      fds_.emplace_back(fd);
    };
  }
  size_t size() {
    absl::MutexLock lock(&mu_);
    return fds_.size();
  }

 private:
  absl::Mutex mu_;
  std::vector<UniqueFd> fds_ ABSL_GUARDED_BY(mu_);
};

UniqueFd NewSocket() { return UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

// Connects to the port on the IPv4 loopback address. The kernel completes the connection even if no
// thread accepts it.
void Connect(const UniqueFd& fd, int port) {
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
}

// A shortage of descriptors: opens descriptors until this process may open no more.
class DescriptorShortage {
 public:
  DescriptorShortage() {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit few = before_;
    few.rlim_cur = 256;
    setrlimit(RLIMIT_NOFILE, &few);
    for (int fd = 0; (fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) fds_.emplace_back(fd);
    EXPECT_EQ(errno, EMFILE);
  }
  ~DescriptorShortage() { setrlimit(RLIMIT_NOFILE, &before_); }
  void Free(size_t count) { fds_.resize(fds_.size() - count); }

 private:
  rlimit before_;
  std::vector<UniqueFd> fds_;
};

TEST(AcceptorTest, AConnectionIsAcceptedOnceADescriptorIsFree) {
  AcceptedConnections accepted;
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto acceptor, Acceptor::Listen("127.0.0.1", 0, kPeerTimeout));
  acceptor->Start(accepted.KeepFn());
  const UniqueFd before = NewSocket(), first = NewSocket(), second = NewSocket();
  Connect(before, acceptor->port());
  ASSERT_TRUE(Eventually([&] { return accepted.size() == 1; }));
  DescriptorShortage shortage;
  Connect(first, acceptor->port());
  Connect(second, acceptor->port());
  EXPECT_FALSE(Eventually([&] { return accepted.size() > 1; }, absl::Milliseconds(200)));
  shortage.Free(1);
  EXPECT_TRUE(Eventually([&] { return accepted.size() == 2; }));
  shortage.Free(1);
  EXPECT_TRUE(Eventually([&] { return accepted.size() == 3; }));
}

TEST(AcceptorTest, WildcardsAndNamesListenOnIPv4) {
  for (const char* host : {"0.0.0.0", "[::]", "localhost", "127.0.0.1"}) {
    SCOPED_TRACE(host);
    AcceptedConnections accepted;
    TESSERA_ASSERT_OK_AND_ASSIGN(const auto acceptor, Acceptor::Listen(host, 0, kPeerTimeout));
    acceptor->Start(accepted.KeepFn());
    const UniqueFd fd = NewSocket();
    Connect(fd, acceptor->port());
    EXPECT_TRUE(Eventually([&] { return accepted.size() == 1; }));
  }
}

TEST(AcceptorTest, ATakenPortAndAnUnknownHostAreRefused) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto first, Acceptor::Listen("127.0.0.1", 0, kPeerTimeout));
  EXPECT_EQ(
      Acceptor::Listen("127.0.0.1", first->port(), kPeerTimeout).status().message(),
      absl::StrCat("listen: 127.0.0.1:", first->port(), " cannot be bound; is the port taken?"));
  EXPECT_EQ(Acceptor::Listen("no.such.host.invalid", 0, kPeerTimeout).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST(AcceptorTest, ThePortIsFreeOnceTheAcceptorIsGone) {
  TESSERA_ASSERT_OK_AND_ASSIGN(auto first, Acceptor::Listen("127.0.0.1", 0, kPeerTimeout));
  const int port = first->port();
  first->Start([](int fd) { close(fd); });
  first = nullptr;
  EXPECT_THAT(Acceptor::Listen("127.0.0.1", port, kPeerTimeout), IsOk());
}

}  // namespace
}  // namespace tessera::server::rpc
