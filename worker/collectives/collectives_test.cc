// Proves that the collectives work over each transport (memory, TCP, TLS and mixtures), by the
// shared suite, and that lost, late, stale and malicious peers are reported as collectives.h says.
// The executors of a cluster all live in this process and connect over loopback; RawPeer speaks the
// wire format by hand.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "base/pki.h"
#include "ir/api/identity.h"
#include "worker/collectives/host_collectives.h"
#include "worker/collectives/mailbox.h"
#include "worker/collectives/retry.h"
#include "worker/collectives/socket.h"
#include "worker/collectives/testing/collectives_suite.h"
#include "worker/collectives/testing/test_cluster.h"
#include "worker/collectives/tls.h"
#include "worker/collectives/wire.h"

namespace tessera::worker {
namespace {

const pki::Credential& Authority() {
  static const auto* const authority = new pki::Credential(*pki::MakeCa("test", absl::Now()));
  return *authority;
}

// The TLS identity of a worker of this name, and the authority that it trusts.
std::shared_ptr<const TlsContext> TlsOf(const std::string& worker,
                                        const pki::Credential& authority = Authority()) {
  pki::CertificateSpec spec;
  spec.common_name = worker;
  spec.dns = {api::kWorkerServerName};
  spec.uris = {api::kWorkerUriPrefix + worker};
  const auto own = pki::Issue(authority, spec, absl::Now());
  EXPECT_TRUE(own.ok()) << own.status();
  const auto context = MakeTlsContext(own->cert_pem, own->key_pem, authority.cert_pem);
  EXPECT_TRUE(context.ok()) << context.status();
  return *context;
}

void UseTls(TestCluster& cluster) {
  cluster.tls_of = [](const std::string& worker) { return TlsOf(worker); };
}

CollectivesImpl Impl(std::string name, int executors, int ranks_each, bool tls = false) {
  return {std::move(name), executors * ranks_each, [=](absl::Duration timeout) {
            auto cluster = std::make_unique<TestCluster>(executors, ranks_each, timeout);
            if (tls) UseTls(*cluster);
            cluster->StartAll();
            // The suite sees a Cluster; the rest of the object is released with it.
            return std::unique_ptr<Cluster>(std::move(cluster));
          }};
}

INSTANTIATE_TEST_SUITE_P(InProcess, CollectivesSuite,
                         ::testing::Values(Impl("Ranks1", 1, 1), Impl("Ranks2", 1, 2),
                                           Impl("Ranks4", 1, 4)),
                         ImplName);
INSTANTIATE_TEST_SUITE_P(Tcp, CollectivesSuite,
                         ::testing::Values(Impl("Executors2", 2, 1), Impl("Executors4", 4, 1)),
                         ImplName);
INSTANTIATE_TEST_SUITE_P(Mixed, CollectivesSuite, ::testing::Values(Impl("Executors2Ranks2", 2, 2)),
                         ImplName);
INSTANTIATE_TEST_SUITE_P(Tls, CollectivesSuite,
                         ::testing::Values(Impl("Executors3", 3, 1, /*tls=*/true),
                                           Impl("Executors2Ranks2", 2, 2, /*tls=*/true)),
                         ImplName);

const CallKey kKey = {7, 1, "psum at model.cc:41", "train_step"};
const std::vector<int> kBoth = {0, 1};

std::string Text(const absl::Status& status) { return std::string(status.message()); }

// The peer has a certificate of another worker or of another authority, or none at all.
TEST(TlsCollectives, APeerWithoutTheRightCertificateIsRefused) {
  const auto other = pki::MakeCa("other", absl::Now());
  ASSERT_TRUE(other.ok());
  struct Row {
    std::string what;
    std::shared_ptr<const TlsContext> of_w0, of_w1;
  };
  const Row rows[] = {{"another authority", TlsOf("w0"), TlsOf("w1", *other)},
                      {"the acceptor is another worker", TlsOf("w0"), TlsOf("w9")},
                      {"the connector is another worker", TlsOf("w9"), TlsOf("w1")},
                      {"the acceptor speaks plain text", TlsOf("w0"), nullptr},
                      {"the connector speaks plain text", nullptr, TlsOf("w1")}};
  for (const Row& row : rows) {
    TestCluster cluster(2, 1, absl::Milliseconds(400));
    for (const int e : {0, 1}) {
      CommunicatorConfig config = cluster.ConfigOf(e);
      config.tls = e == 0 ? row.of_w0 : row.of_w1;
      cluster.Start(e, config);
    }
    for (const absl::Status& status : cluster.Run(kBoth, [&](int rank) {
           return cluster.of(rank).Run(
               {.kind = ir::CollectiveKind::kBarrier, .rank = rank, .group = kBoth, .key = kKey});
         })) {
      EXPECT_FALSE(status.ok()) << row.what;
    }
  }
}

TEST(TlsCollectives, LosingAPeerInMidCallIsReportedAtOnce) {
  TestCluster cluster(2, 1, absl::Seconds(60));
  UseTls(cluster);
  cluster.StartAll();
  ASSERT_TRUE(cluster
                  .Run(kBoth,
                       [&](int rank) {
                         return cluster.of(rank).Run({.kind = ir::CollectiveKind::kBarrier,
                                                      .rank = rank,
                                                      .group = kBoth,
                                                      .key = kKey});
                       })[0]
                  .ok());
  std::thread dropper([&] { cluster.executors[1].reset(); });
  const absl::Status status = cluster.of(0).Run(
      {.kind = ir::CollectiveKind::kBarrier, .rank = 0, .group = kBoth, .key = kKey});
  dropper.join();
  EXPECT_EQ(ReasonOf(status), "WORKER_LOST") << status;
}

TEST(TlsContextTest, AnInvalidArgumentIsNamed) {
  const pki::Credential& authority = Authority();
  EXPECT_THAT(Text(MakeTlsContext("", authority.key_pem, authority.cert_pem).status()),
              ::testing::HasSubstr("certificate"));
  EXPECT_THAT(Text(MakeTlsContext(authority.cert_pem, "x", authority.cert_pem).status()),
              ::testing::HasSubstr("key"));
  EXPECT_THAT(Text(MakeTlsContext(authority.cert_pem, authority.key_pem, "").status()),
              ::testing::HasSubstr("authorities"));
}

TEST(TcpCollectives, LosingAPeerInMidCallIsReportedAtOnce) {
  TestCluster cluster(2, 1, absl::Seconds(60));
  cluster.StartAll();
  ASSERT_TRUE(cluster
                  .Run(kBoth,
                       [&](int rank) {
                         return cluster.of(rank).Run({.kind = ir::CollectiveKind::kBarrier,
                                                      .rank = rank,
                                                      .group = kBoth,
                                                      .key = kKey});
                       })[0]
                  .ok());
  std::thread dropper([&] { cluster.executors[1].reset(); });
  const absl::Status status = cluster.of(0).Run(
      {.kind = ir::CollectiveKind::kBarrier, .rank = 0, .group = kBoth, .key = kKey});
  dropper.join();
  EXPECT_EQ(ReasonOf(status), "WORKER_LOST") << status;
  EXPECT_THAT(Text(status), ::testing::HasSubstr(
                                "psum at model.cc:41: lost rank 1 (device 11 of executor w1, host "
                                "host-1): it closed the connection [program train_step"));
  EXPECT_EQ(cluster.of(0).Run(
                {.kind = ir::CollectiveKind::kBarrier, .rank = 0, .group = kBoth, .key = kKey}),
            status)
      << "the first failure is final";
}

// The peer sends its block and leaves at once: the block must still be received.
TEST(TcpCollectives, ABlockSentBeforeThePeerLeftIsReceived) {
  TestCluster cluster(2, 1, absl::Seconds(60));
  cluster.StartAll();
  const std::vector<PermutePair> pairs = {{0, 1}};
  const std::vector<uint8_t> in(1000000, 8);
  std::vector<uint8_t> out(in.size());
  ASSERT_TRUE(cluster.of(0)
                  .Run({.kind = ir::CollectiveKind::kPermute,
                        .rank = 0,
                        .group = kBoth,
                        .key = kKey,
                        .in = BytesOf(in),
                        .out = MutableBytesOf(out),
                        .pairs = pairs})
                  .ok());
  cluster.executors[0].reset();
  const absl::Status status = cluster.of(1).Run({.kind = ir::CollectiveKind::kPermute,
                                                 .rank = 1,
                                                 .group = kBoth,
                                                 .key = kKey,
                                                 .in = BytesOf(in),
                                                 .out = MutableBytesOf(out),
                                                 .pairs = pairs});
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(out == in);
}

TEST(TcpCollectives, AnExecutorMayStartLate) {
  for (const int late : {0, 1}) {
    TestCluster cluster(2, 1, absl::Seconds(60));
    cluster.Start(1 - late);
    std::thread starter([&] {
      cluster.Start(late);
      EXPECT_TRUE(
          cluster.of(late)
              .Run(
                  {.kind = ir::CollectiveKind::kBarrier, .rank = late, .group = kBoth, .key = kKey})
              .ok());
    });
    EXPECT_TRUE(cluster.of(1 - late)
                    .Run({.kind = ir::CollectiveKind::kBarrier,
                          .rank = 1 - late,
                          .group = kBoth,
                          .key = kKey})
                    .ok());
    starter.join();
  }
}

TEST(TcpCollectives, AnExecutorThatNeverConnectsIsNamedAsNotConnected) {
  TestCluster cluster(2, 1, absl::Milliseconds(200));
  cluster.Start(1);
  const absl::Status status = cluster.of(1).Run(
      {.kind = ir::CollectiveKind::kBarrier, .rank = 1, .group = kBoth, .key = kKey});
  EXPECT_EQ(ReasonOf(status), "COLLECTIVE_TIMEOUT") << status;
  EXPECT_THAT(Text(status), ::testing::HasSubstr("executor w0, host host-0): not connected"));
}

TEST(TcpCollectives, AnExecutorThatRefusesConnectionsIsNamedWithTheReason) {
  TestCluster cluster(2, 1, absl::Milliseconds(200));
  CommunicatorConfig config = cluster.ConfigOf(0);
  config.ranks[1].endpoint = "127.0.0.1:1";
  cluster.Start(0, config);
  const absl::Status status = cluster.of(0).Run(
      {.kind = ir::CollectiveKind::kBarrier, .rank = 0, .group = kBoth, .key = kKey});
  EXPECT_EQ(ReasonOf(status), "COLLECTIVE_TIMEOUT") << status;
  EXPECT_THAT(Text(status), ::testing::HasSubstr("not connected (no connection: "));
}

// Two executors of two ranks each, of which the second one may not have received a launch.
class LaunchThatIsLate : public ::testing::TestWithParam<size_t> {
 protected:
  static constexpr absl::Duration kTimeout = absl::Milliseconds(400);

  // `has_launch` is the second executor's. The number of the first one's questions is counted.
  void Start(absl::Duration patience, std::function<bool()> has_launch) {
    cluster_.config.launch_patience = patience;
    cluster_.Start(0);
    CommunicatorConfig second = cluster_.ConfigOf(1);
    second.has_launch = [this, has_launch = std::move(has_launch)](uint64_t launch) {
      EXPECT_EQ(launch, 7u);
      absl::MutexLock lock(&mu_);
      ++num_questions_;
      return has_launch();
    };
    cluster_.Start(1, second);
  }
  // Sums GetParam() numbers.
  absl::Status Sum(int rank, uint32_t op) {
    const CallKey key = {/*launch=*/7, op, "psum at model.cc:41", "train_step"};
    const int group[] = {0, 1, 2, 3};
    const std::vector<float> in(GetParam(), 1);
    std::vector<float> out(GetParam());
    const absl::Status status = cluster_.of(rank).Run({.kind = ir::CollectiveKind::kAllReduce,
                                                       .rank = rank,
                                                       .group = group,
                                                       .key = key,
                                                       .in = BytesOf(in),
                                                       .out = MutableBytesOf(out),
                                                       .reduce = ir::ReduceKind::kSum,
                                                       .dtype = ir::DType::kF32});
    if (status.ok()) {
      EXPECT_THAT(out, ::testing::Each(4));
    }
    return status;
  }
  // Runs Sum on both ranks of the first executor.
  std::vector<absl::Status> SumEarly(uint32_t op) {
    return cluster_.Run({0, 1}, [&](int rank) { return Sum(rank, op); });
  }
  void AwaitQuestions(int count) {
    absl::MutexLock lock(&mu_);
    const auto asked = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return num_questions_ >= count; };
    mu_.Await(absl::Condition(&asked));
  }

  std::atomic<bool> received_{false};
  absl::Mutex mu_;
  int num_questions_ ABSL_GUARDED_BY(mu_) = 0;
  TestCluster cluster_{2, 2, kTimeout};
};

TEST_P(LaunchThatIsLate, IsAwaited) {
  Start(absl::Minutes(5), [this] { return received_.load(); });
  std::thread early([&] {
    for (const uint32_t op : {0, 1})
      for (const absl::Status& status : SumEarly(op)) EXPECT_TRUE(status.ok()) << status;
  });
  // Both ranks ask after half of the timeout, and then after each quarter.
  AwaitQuestions(24);
  received_ = true;
  for (const uint32_t op : {0, 1}) {
    for (const absl::Status& status :
         cluster_.Run({2, 3}, [&](int rank) { return Sum(rank, op); })) {
      EXPECT_TRUE(status.ok()) << status;
    }
  }
  early.join();
}

TEST_P(LaunchThatIsLate, IsNotAwaitedByACallThatDoesNotWantTo) {
  Start(absl::Minutes(5), [] { return false; });
  const CallKey key = {/*launch=*/7, 0, "psum at model.cc:41", "train_step"};
  const int group[] = {0, 2};
  const absl::Status status = cluster_.of(0).Run({.kind = ir::CollectiveKind::kBarrier,
                                                  .rank = 0,
                                                  .group = group,
                                                  .key = key,
                                                  .awaits_launch = false});
  EXPECT_EQ(ReasonOf(status), "COLLECTIVE_TIMEOUT") << status;
}

TEST_P(LaunchThatIsLate, IsNotAwaitedForEver) {
  Start(absl::Seconds(1), [] { return false; });
  for (const absl::Status& status : SumEarly(0)) {
    EXPECT_EQ(ReasonOf(status), "COLLECTIVE_TIMEOUT") << status;
    EXPECT_THAT(
        std::string(status.message()),
        ::testing::ContainsRegex("2 of 4 members missing after 1.4s .an executor had not received "
                                 "the launch from the coordinator., seen from rank [01]: rank 2"));
  }
}

TEST_P(LaunchThatIsLate, IsNotAwaitedOnceItWasReceived) {
  // The second executor receives the launch and does not come.
  Start(absl::Minutes(5), [] { return true; });
  for (const absl::Status& status : SumEarly(0)) {
    EXPECT_EQ(ReasonOf(status), "COLLECTIVE_TIMEOUT") << status;
    EXPECT_THAT(std::string(status.message()),
                ::testing::ContainsRegex(
                    "2 of 4 members missing after 400ms, seen from rank [01]: rank 2"));
  }
  AwaitQuestions(1);
}

// A block that goes through the leaders, and a large all-reduce in chunks.
INSTANTIATE_TEST_SUITE_P(Sizes, LaunchThatIsLate, ::testing::Values(3, 100'000));

// The kernel accepts connections for a paused executor, which sends no welcome until it goes on.
TEST(TcpCollectives, AnExecutorThatIsPausedBeforeItsWelcomeIsNotLost) {
  for (const bool tls : {false, true}) {
    TestCluster cluster(2, 1, absl::Milliseconds(500));
    if (tls) UseTls(cluster);
    cluster.Start(0);
    CallKey key = kKey;
    for (; key.launch < kKey.launch + 3; ++key.launch) {
      const absl::Status status = cluster.of(0).Run(
          {.kind = ir::CollectiveKind::kBarrier, .rank = 0, .group = kBoth, .key = key});
      EXPECT_EQ(ReasonOf(status), "COLLECTIVE_TIMEOUT") << status;
      EXPECT_THAT(Text(status), ::testing::HasSubstr("has sent no welcome)"));
    }
    cluster.Start(1);
    for (const absl::Status& result : cluster.Run(kBoth, [&](int rank) {
           return cluster.of(rank).Run(
               {.kind = ir::CollectiveKind::kBarrier, .rank = rank, .group = kBoth, .key = key});
         })) {
      EXPECT_TRUE(result.ok()) << result;
    }
  }
}

TEST(TcpCollectives, AttemptsToConnectBecomeRareAfterTheFirstTimeout) {
  const auto pause_after = [](int attempts, absl::Duration left, absl::Duration timeout) {
    absl::Duration pause = kFirstPause;
    for (int i = 0; i < attempts; ++i) pause = NextPause(pause, left, timeout);
    return pause;
  };
  const absl::Duration minute = absl::Minutes(1), none = absl::ZeroDuration();
  EXPECT_EQ(pause_after(3, absl::Seconds(1), minute), 8 * kFirstPause);
  EXPECT_EQ(pause_after(100, absl::Seconds(1), minute), kLongestPauseAtFirst);
  EXPECT_EQ(pause_after(100, none, minute), kLongestPause);
  EXPECT_EQ(pause_after(100, none, absl::Seconds(8)), absl::Seconds(2));
  EXPECT_EQ(pause_after(100, none, absl::Milliseconds(10)), kLongestPauseAtFirst);
}

TEST(TcpCollectives, TheStaleGenerationFailsAndTheLaterOneDoesNot) {
  for (const int stale : {0, 1}) {
    TestCluster cluster(2, 1, absl::Seconds(60));
    CommunicatorConfig later = cluster.ConfigOf(1 - stale);
    later.generation = 4;
    cluster.Start(1 - stale, later);
    cluster.Start(stale);
    const absl::Status status = cluster.of(stale).Run(
        {.kind = ir::CollectiveKind::kBarrier, .rank = stale, .group = kBoth, .key = kKey});
    EXPECT_EQ(ReasonOf(status), "PEER_FAILED") << status;
    EXPECT_THAT(Text(status), ::testing::HasSubstr("generation 3 is stale: executor"));
    // The executor at the stale generation is configured anew, and the two meet.
    cluster.executors[stale].reset();
    later = cluster.ConfigOf(stale);
    later.generation = 4;
    cluster.Start(stale, later);
    for (const absl::Status& result : cluster.Run(kBoth, [&](int rank) {
           return cluster.of(rank).Run(
               {.kind = ir::CollectiveKind::kBarrier, .rank = rank, .group = kBoth, .key = kKey});
         })) {
      EXPECT_TRUE(result.ok()) << result;
    }
  }
}

TEST(TcpCollectives, APeerWithAWrongSecretOrIncarnationIsRefused) {
  for (const bool wrong_secret : {true, false}) {
    TestCluster cluster(2, 1, absl::Milliseconds(300));
    CommunicatorConfig config = cluster.ConfigOf(0);
    if (wrong_secret) config.secret = "open sesamf";
    config.ranks[0].incarnation += wrong_secret ? 0 : 1;
    cluster.Start(0, config);
    cluster.Start(1);
    const absl::Status status = cluster.of(1).Run(
        {.kind = ir::CollectiveKind::kBarrier, .rank = 1, .group = kBoth, .key = kKey});
    EXPECT_EQ(ReasonOf(status), "COLLECTIVE_TIMEOUT") << status;
    EXPECT_THAT(Text(status), ::testing::HasSubstr("not connected"));
  }
}

TEST(TcpCollectives, AnInvalidConfigurationIsReportedByEveryCall) {
  const auto barrier = [](const CommunicatorConfig& config, int fd) {
    return Text(MakeCollectives(config, fd)
                    ->Run({.kind = ir::CollectiveKind::kBarrier,
                           .rank = 0,
                           .group = std::vector<int>{0},
                           .key = kKey}));
  };
  const TestCluster cluster(2, 1, absl::Seconds(1));
  CommunicatorConfig config = cluster.ConfigOf(1);
  EXPECT_THAT(barrier(config, -1), ::testing::HasSubstr("a socket is needed"));
  config.local_ranks = {};
  EXPECT_THAT(barrier(config, -1), ::testing::HasSubstr("no local ranks"));
  config.local_ranks = {2};
  EXPECT_THAT(barrier(config, -1), ::testing::HasSubstr("a local rank is not a member"));
  config.local_ranks = {0, 1};
  EXPECT_THAT(barrier(config, -1), ::testing::HasSubstr("not the members of one executor"));
  config.local_ranks = {0};
  config.ranks[1].executor = "";
  EXPECT_THAT(barrier(config, -1), ::testing::HasSubstr("no executor name"));
  config.secret.assign(kMaxSecretBytes + 1, 'x');
  EXPECT_THAT(barrier(config, -1), ::testing::HasSubstr("the secret is too long"));
}

TEST(TcpCollectives, AnExecutorWithoutDescriptorsFailsAndEnds) {
  TestCluster cluster(2, 1, absl::Seconds(60));
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 64;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  {
    std::vector<UniqueFd> all;
    for (int fd = 0; (fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) all.emplace_back(fd);
    cluster.Start(0);
  }
  setrlimit(RLIMIT_NOFILE, &before);
  const absl::Status status = cluster.of(0).Run(
      {.kind = ir::CollectiveKind::kBarrier, .rank = 0, .group = kBoth, .key = kKey});
  EXPECT_EQ(ReasonOf(status), "INTERNAL") << status;
  EXPECT_THAT(Text(status), ::testing::HasSubstr("may open no more files"));
}

TEST(MailboxTest, CreditThatWasTakenInVainIsThereAgain) {
  Mailbox mailbox;
  ASSERT_TRUE(mailbox.TakeCredit(/*to=*/1, kWindowBytes));
  ASSERT_FALSE(mailbox.TakeCredit(1, 1));
  mailbox.UndoTakeCredit(1, kWindowBytes);
  EXPECT_TRUE(mailbox.TakeCredit(1, kWindowBytes));

  EXPECT_EQ(mailbox.TakeDueCredit(/*from=*/1), 0);
  for (int64_t due = 0; due < kWindowBytes / 4; due += kMaxPayloadBytes) {
    Frame frame;
    frame.header.payload_length = kMaxPayloadBytes;
    ASSERT_TRUE(mailbox.Deliver(1, std::move(frame)));
    ASSERT_TRUE(mailbox.Take(1).has_value());
  }
  const int64_t due = mailbox.TakeDueCredit(1);
  EXPECT_GE(due, kWindowBytes / 4);
  EXPECT_EQ(mailbox.TakeDueCredit(1), 0);
  mailbox.UndoTakeDueCredit(1, due);
  EXPECT_EQ(mailbox.TakeDueCredit(1), due);
}

// Plays executor w0 by hand on the wire, against a real w1.
class RawPeer : public ::testing::Test {
 protected:
  RawPeer() : cluster_(2, 1, absl::Seconds(2)), deadline_(absl::Seconds(20)) {
    cluster_.Start(1);
    fd_ = Dial();
  }
  UniqueFd Dial() {
    absl::StatusOr<UniqueFd> fd = Connect(cluster_.listeners[1].endpoint, deadline_, quiet_.fd());
    EXPECT_TRUE(fd.ok()) << fd.status();
    return fd.ok() ? *std::move(fd) : UniqueFd();
  }
  void Write(const UniqueFd& fd, const void* data, size_t size) {
    iovec part = {const_cast<void*>(data), size};
    WriteAll(fd.get(), nullptr, absl::MakeSpan(&part, 1), deadline_, quiet_.fd());
  }
  void SayHello(const UniqueFd& fd) {
    Hello hello;
    hello.name_length = 2;
    hello.secret_length = static_cast<uint32_t>(cluster_.config.secret.size());
    hello.generation = 3;
    hello.from_incarnation = 100;
    hello.to_incarnation = 101;
    Write(fd, &hello, sizeof(hello));
    Write(fd, "w0", 2);
    Write(fd, cluster_.config.secret.data(), cluster_.config.secret.size());
  }
  HelloAckCode ReadWelcome(const UniqueFd& fd) {
    HelloAck welcome;
    EXPECT_TRUE(ReadAll(fd.get(), nullptr, &welcome, sizeof(welcome), deadline_, quiet_.fd()));
    return welcome.code;
  }
  bool Closed(const UniqueFd& fd) {
    char byte;
    return !ReadAll(fd.get(), nullptr, &byte, 1, deadline_, quiet_.fd()) && !deadline_.Passed();
  }
  absl::Status Barrier() {
    return cluster_.of(1).Run(
        {.kind = ir::CollectiveKind::kBarrier, .rank = 1, .group = kBoth, .key = kKey});
  }
  FrameHeader Header() {
    FrameHeader header;
    header.generation = 3;
    header.launch = 7;
    header.from = 0;
    header.to = 1;
    return header;
  }
  // Returns the error of a call during which `copies` frames with this header arrive.
  std::string ErrorAfterFrames(const FrameHeader& header, size_t copies = 1) {
    SayHello(fd_);
    EXPECT_EQ(ReadWelcome(fd_), HelloAckCode::kWelcome);
    const std::string payload(header.payload_length, 'x');
    std::string bytes;
    for (size_t i = 0; i < copies; ++i) {
      bytes.append(reinterpret_cast<const char*>(&header), sizeof(header));
      if (header.payload_length <= kMaxPayloadBytes) bytes.append(payload);
    }
    std::thread writer([&] { Write(fd_, bytes.data(), bytes.size()); });
    const absl::Status status = Barrier();
    writer.join();
    return absl::StrCat(ToAbsl(ReasonOf(status)), " ", status.message());
  }

  TestCluster cluster_;
  Signal quiet_;  // never raised
  Deadline deadline_;
  UniqueFd fd_;
};

TEST_F(RawPeer, AConnectionThatSendsGarbageIsClosedAndOthersWork) {
  const std::string garbage(300, '\x7f');
  Write(fd_, garbage.data(), garbage.size());
  EXPECT_TRUE(Closed(fd_));
  UniqueFd second = Dial();
  Hello hello;
  hello.name_length = kMaxNameBytes + 1;
  Write(second, &hello, sizeof(hello));
  EXPECT_TRUE(Closed(second));
  UniqueFd half_a_hello = Dial();
  Write(half_a_hello, &hello, 7);
  cluster_.Start(0);
  std::vector<absl::Status> results = cluster_.Run(kBoth, [&](int rank) {
    return cluster_.of(rank).Run(
        {.kind = ir::CollectiveKind::kBarrier, .rank = rank, .group = kBoth, .key = kKey});
  });
  EXPECT_TRUE(results[0].ok() && results[1].ok()) << results[0] << results[1];
}

TEST_F(RawPeer, OnlyOneConnectionPerExecutor) {
  SayHello(fd_);
  EXPECT_EQ(ReadWelcome(fd_), HelloAckCode::kWelcome);
  UniqueFd second = Dial();
  SayHello(second);
  EXPECT_EQ(ReadWelcome(second), HelloAckCode::kRefused);
  EXPECT_TRUE(Closed(second));
}

TEST_F(RawPeer, AHelloMayComeInPieces) {
  Hello hello;
  hello.name_length = 2;
  hello.generation = 2;
  hello.secret_length = static_cast<uint32_t>(cluster_.config.secret.size());
  std::string bytes(reinterpret_cast<const char*>(&hello), sizeof(hello));
  bytes += "w0" + cluster_.config.secret;
  for (const char& byte : bytes) Write(fd_, &byte, 1);
  EXPECT_EQ(ReadWelcome(fd_), HelloAckCode::kStale);
}

TEST_F(RawPeer, AFrameWithoutMagicEndsTheConnection) {
  FrameHeader header = Header();
  header.magic = 0;
  EXPECT_THAT(ErrorAfterFrames(header), ::testing::AllOf(::testing::StartsWith("WORKER_LOST"),
                                                         ::testing::HasSubstr("malformed frame")));
}
TEST_F(RawPeer, AFrameTooLongEndsTheConnection) {
  FrameHeader header = Header();
  header.payload_length = kMaxPayloadBytes + 1;
  EXPECT_THAT(ErrorAfterFrames(header), ::testing::HasSubstr("malformed frame"));
}
TEST_F(RawPeer, AFrameOfAnotherGenerationEndsTheConnection) {
  FrameHeader header = Header();
  header.generation = 2;
  EXPECT_THAT(ErrorAfterFrames(header), ::testing::HasSubstr("a frame of generation 2, this is 3"));
}
TEST_F(RawPeer, AFrameForAnUnknownRankEndsTheConnection) {
  FrameHeader header = Header();
  header.to = 9;
  EXPECT_THAT(ErrorAfterFrames(header), ::testing::HasSubstr("not a rank of the sender"));
}
TEST_F(RawPeer, AFrameOfUnknownTypeEndsTheConnection) {
  FrameHeader header = Header();
  header.type = static_cast<FrameType>(77);
  EXPECT_THAT(ErrorAfterFrames(header), ::testing::HasSubstr("unknown type"));
}
TEST_F(RawPeer, TooMuchCreditEndsTheConnection) {
  FrameHeader header = Header();
  header.type = FrameType::kCredit;
  header.byte_count = uint64_t{1} << 63;
  EXPECT_THAT(ErrorAfterFrames(header), ::testing::HasSubstr("more credit than was used"));
}
TEST_F(RawPeer, AFrameOfAnUnknownCallIsReportedAsAMismatch) {
  FrameHeader header = Header();
  header.call_kind = header.call_reduce = header.call_dtype = 255;
  EXPECT_THAT(ErrorAfterFrames(header),
              ::testing::AllOf(::testing::StartsWith("INTERNAL"),
                               ::testing::HasSubstr("(unknown, 0 bytes")));
}
TEST(StatusForPeersTest, LostExecutorsAndMissedDeadlinesAreToldAsSuch) {
  for (const ErrorKind kind : {ErrorKind::kWorkerLost, ErrorKind::kCollectiveTimeout}) {
    EXPECT_EQ(KindOf(StatusForPeers(MakeError(kind, "why"))), kind);
  }
  EXPECT_EQ(KindOf(StatusForPeers(MakeError(ErrorKind::kCancelled, "why"))),
            ErrorKind::kPeerFailed);
}

TEST_F(RawPeer, ACallReturnsTheFailureOfAPeer) {
  FrameHeader header = Header();
  header.type = FrameType::kAbort;
  header.payload_length = 4;
  EXPECT_EQ(ErrorAfterFrames(header), "PEER_FAILED executor w0 on host host-0 failed first: xxxx");
}

// The message that a launch has failed may arrive after frames of that launch.
TEST_F(RawPeer, FramesOfALaunchAreDroppedOnceItsFailureIsKnown) {
  SayHello(fd_);
  EXPECT_EQ(ReadWelcome(fd_), HelloAckCode::kWelcome);
  FrameHeader leftover = Header();
  leftover.launch = 50;
  Write(fd_, &leftover, sizeof(leftover));
  absl::Status status;
  std::thread caller([&] { status = Barrier(); });
  FrameHeader theirs;
  EXPECT_TRUE(ReadAll(fd_.get(), nullptr, &theirs, sizeof(theirs), deadline_, quiet_.fd()));
  std::string label(theirs.label_length, '\0');
  EXPECT_TRUE(ReadAll(fd_.get(), nullptr, label.data(), label.size(), deadline_, quiet_.fd()));
  FrameHeader abort_frame = Header();
  abort_frame.type = FrameType::kAbortLaunch;
  abort_frame.launch = 50;
  abort_frame.payload_length = 4;
  Write(fd_, &abort_frame, sizeof(abort_frame));
  Write(fd_, "xxxx", 4);
  FrameHeader ours = theirs;
  std::swap(ours.from, ours.to);
  ours.label_length = 0;
  Write(fd_, &ours, sizeof(ours));
  caller.join();
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(RawPeer, AFrameOfAnotherLaunchIsReportedAtTheTimeout) {
  FrameHeader header = Header();
  header.launch = 50;
  EXPECT_THAT(ErrorAfterFrames(header), ::testing::AllOf(::testing::StartsWith("INTERNAL"),
                                                         ::testing::HasSubstr("launch 50")));
}

TEST_F(RawPeer, ASenderThatExceedsItsWindowIsDisconnected) {
  SayHello(fd_);
  EXPECT_EQ(ReadWelcome(fd_), HelloAckCode::kWelcome);
  FrameHeader header = Header();
  header.payload_length = kMaxPayloadBytes;
  const std::string payload(kMaxPayloadBytes, 'x');
  for (int64_t sent = 0; sent <= kWindowBytes; sent += kMaxPayloadBytes) {
    Write(fd_, &header, sizeof(header));
    Write(fd_, payload.data(), payload.size());
  }
  EXPECT_TRUE(Closed(fd_));
}

TEST_F(RawPeer, APeerThatStallsInMidMessageIsReportedAsStalled) {
  SayHello(fd_);
  EXPECT_EQ(ReadWelcome(fd_), HelloAckCode::kWelcome);
  std::vector<uint8_t> in(2 * kMaxPayloadBytes), out(2 * in.size());
  absl::Status status;
  std::thread caller([&] {
    status = cluster_.of(1).Run({.kind = ir::CollectiveKind::kAllGather,
                                 .rank = 1,
                                 .group = kBoth,
                                 .key = kKey,
                                 .in = BytesOf(in),
                                 .out = MutableBytesOf(out)});
  });
  // Answer the first frame of the executor with one like it, and send nothing more.
  FrameHeader header;
  EXPECT_TRUE(ReadAll(fd_.get(), nullptr, &header, sizeof(header), deadline_, quiet_.fd()));
  std::swap(header.from, header.to);
  header.label_length = 0;
  const std::string payload(header.payload_length, 'x');
  Write(fd_, &header, sizeof(header));
  Write(fd_, payload.data(), payload.size());
  caller.join();
  EXPECT_EQ(ReasonOf(status), "COLLECTIVE_TIMEOUT") << status;
  EXPECT_THAT(Text(status), ::testing::HasSubstr("stalled: 262144 of 524288 bytes received"));
}

TEST_F(RawPeer, APeerThatStopsReadingIsTimedOut) {
  SayHello(fd_);
  EXPECT_EQ(ReadWelcome(fd_), HelloAckCode::kWelcome);
  const std::vector<PermutePair> pairs = {{1, 0}};
  std::vector<uint8_t> in(64 << 20), out(in.size());
  const absl::Status status = cluster_.of(1).Run({.kind = ir::CollectiveKind::kPermute,
                                                  .rank = 1,
                                                  .group = kBoth,
                                                  .key = kKey,
                                                  .in = BytesOf(in),
                                                  .out = MutableBytesOf(out),
                                                  .pairs = pairs});
  EXPECT_EQ(ReasonOf(status), "COLLECTIVE_TIMEOUT") << status;
  EXPECT_THAT(Text(status), ::testing::HasSubstr("not receiving: "));
}

}  // namespace
}  // namespace tessera::worker
