// Proves the parts of the remote client that need no server: the slices of shards, request ids, the
// translation of gRPC statuses, and what Connect says about addresses, CA files and its waits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "base/pki.h"
#include "base/testing/status_matchers.h"
#include "base/testing/stopwatch.h"
#include "client/remote/enroll.h"
#include "client/remote/remote_service.h"
#include "client/remote/retry.h"
#include "client/remote/status.h"
#include "client/remote/transfer.h"
#include "google/rpc/status.pb.h"
#include "ir/serial/status.h"

namespace tessera::remote {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

api::ArraySpec Spec(ir::Dims shape, ir::DimAxes dims) {
  api::ArraySpec spec;
  spec.shape = std::move(shape);
  spec.placement.mesh.axes = {{"x", 2}, {"y", 3}};
  spec.placement.spec.dims = std::move(dims);
  return spec;
}

TEST(BlockTest, BlocksCoverTheArrayRowMajor) {
  const api::ArraySpec spec = Spec({4, 6}, {{"x"}, {"y"}});
  for (int k = 0; k < 6; ++k) {
    const auto block = BlockOf(spec, k);
    ASSERT_TRUE(block.ok()) << block.status();
    EXPECT_EQ(block->shape, (ir::Dims{2, 2}));
    EXPECT_EQ(block->starts, (ir::Dims{k / 3 * 2, k % 3 * 2}));
  }
  // Both axes shard one dim, and y is the major axis.
  const auto block = BlockOf(Spec({12}, {{"y", "x"}}), 4);
  ASSERT_TRUE(block.ok()) << block.status();
  EXPECT_EQ(block->starts, (ir::Dims{(1 * 2 + 1) * 2}));
}

TEST(BlockTest, RefusesPlacementsThatDoNotFitTheArray) {
  EXPECT_EQ(ReasonOf(BlockOf(Spec({5}, {{"x"}}), 0).status()), "INDIVISIBLE");
  EXPECT_EQ(ReasonOf(BlockOf(Spec({4}, {{"q"}}), 0).status()), "UNKNOWN_AXIS");
  EXPECT_EQ(ReasonOf(BlockOf(Spec({4}, {{"x"}}), 6).status()), "VALUE_ERROR");
}

// If a child had its parent's ids, the coordinator would answer its calls as repetitions of the
// parent's calls.
TEST(RequestIdTest, AForkedChildHasIdsOfItsOwn) {
  std::set<std::string> ids = {NewRequestId()};
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const std::string id = NewRequestId();
    _exit(write(pipes[1], id.data(), id.size()) == static_cast<ssize_t>(id.size()) ? 0 : 1);
  }
  close(pipes[1]);
  char bytes[65] = "";  // one byte more than an id may have
  const ssize_t size = read(pipes[0], bytes, sizeof(bytes));
  close(pipes[0]);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ASSERT_GT(size, 0);
  EXPECT_LE(size, 64);
  EXPECT_TRUE(ids.insert(std::string(bytes, static_cast<size_t>(size))).second);
  EXPECT_TRUE(ids.insert(NewRequestId()).second) << "the parent's next id is the child's id";
}

TEST(StatusTest, TheReasonOfAServersErrorIsKept) {
  const absl::Status want = MakeError(ErrorKind::kArrayDeleted, "gone");
  const grpc::Status wire(grpc::StatusCode::FAILED_PRECONDITION, "gone",
                          ir::serial::ToProto(want).SerializeAsString());
  const absl::Status got = FromGrpc(wire, "peer", ErrorKind::kWorkerLost);
  EXPECT_EQ(got.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(got), "ARRAY_DELETED");
}

TEST(StatusTest, TransportErrorsNameThePeer) {
  for (const auto code : {grpc::StatusCode::UNAVAILABLE, grpc::StatusCode::CANCELLED}) {
    const absl::Status got = FromGrpc({code, "reset"}, "peer", ErrorKind::kServerStopping);
    EXPECT_EQ(got.code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(ReasonOf(got), "SERVER_STOPPING");
    EXPECT_THAT(std::string(got.message()), HasSubstr("peer does not answer: reset"));
  }
  const absl::Status refused =
      FromGrpc({grpc::StatusCode::UNAVAILABLE,
                "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: Failed "
                "to connect to remote host: Connection refused"},
               "peer", ErrorKind::kServerStopping);
  EXPECT_EQ(ReasonOf(refused), "UNREACHABLE");
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("peer does not answer: Connection refused."));
  const absl::Status big = FromGrpc({grpc::StatusCode::RESOURCE_EXHAUSTED, "larger than max"},
                                    "peer", ErrorKind::kServerStopping);
  EXPECT_EQ(big.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(big), "LIMIT_EXCEEDED");
}

TEST(ConnectTest, AnUnreachableCoordinatorIsReportedWithinTheTimeout) {
  ConnectOptions options;
  // One attempt must fail within the timeout, even on a busy machine.
  options.timeout = absl::Seconds(2);
  // No server listens on port 1 of the loopback interface.
  const auto service = RemoteService::Connect("127.0.0.1:1", options);
  EXPECT_EQ(ReasonOf(service.status()), "UNREACHABLE");
  EXPECT_THAT(std::string(service.status().message()),
              HasSubstr("no coordinator answers at 127.0.0.1:1 within 2s: Connection refused. "
                        "Check that it runs"));
}

TEST(ConnectTest, InvalidAddressesAreRefusedAtOnce) {
  const auto connect_error = [](const std::string& address) {
    // The timeout is longer than the test may take, which shows that no connection is tried.
    ConnectOptions options;
    options.timeout = absl::Hours(1);
    return RemoteService::Connect(address, options).status();
  };
  EXPECT_THAT(connect_error("127.0.0.1:74006"), ReasonIs("VALUE_ERROR", "'74006' is not a port"));
  EXPECT_THAT(connect_error("127.0.0.1"),
              ReasonIs("VALUE_ERROR", "the port is missing; HOST:PORT is"));
  EXPECT_THAT(connect_error("http://127.0.0.1:1"),
              ReasonIs("VALUE_ERROR", "http:// does not belong"));
  EXPECT_THAT(FetchCa("127.0.0.1", absl::Hours(1)), ReasonIs("VALUE_ERROR", "the port is missing"));
}

TEST(ConnectTest, AHostNameThatDoesNotExistIsReportedAtOnce) {
  // A label of a name has at most 63 characters, so no resolver knows this name.
  const std::string unknown = std::string(64, 'x') + ".invalid";
  ConnectOptions options;
  options.timeout = absl::Hours(1);
  const testing::Stopwatch watch;
  EXPECT_THAT(RemoteService::Connect(unknown + ":8470", options),
              ReasonIs("UNREACHABLE", "the host name '" + unknown + "'"));
  EXPECT_LT(watch.Unhindered(), absl::Seconds(2));
}

TEST(ConnectTest, TheCallerHearsOfAWaitAndMayEndIt) {
  ConnectOptions options;
  options.timeout = absl::Hours(1);
  std::vector<std::string> heard;
  options.on_wait = [&](const std::string& what, absl::Duration left) {
    EXPECT_GT(left, absl::Minutes(59));
    EXPECT_LE(left, absl::Hours(1));
    heard.push_back(what);
    return heard.size() < 3;
  };
  // No server listens on port 1 of the loopback interface.
  EXPECT_THAT(RemoteService::Connect("127.0.0.1:1", options),
              ReasonIs("CANCELLED", "the wait for the coordinator at 127.0.0.1:1 was cancelled"));
  EXPECT_THAT(heard, ElementsAre("the coordinator at 127.0.0.1:1", "the coordinator at 127.0.0.1:1",
                                 "the coordinator at 127.0.0.1:1"));
}

TEST(ConnectTest, ACaFileWithoutACertificateIsNamedAtOnce) {
  ConnectOptions options;
  options.timeout = absl::Hours(1);
  options.ca_file = "/etc/passwd";
  EXPECT_THAT(RemoteService::Connect("127.0.0.1:1", options),
              ReasonIs("TLS_MISMATCH", "/etc/passwd holds no certificate"));
}

// With --ca-file, `tessera join` calls Enroll first, so Enroll cannot know that the server is
// there.
TEST(EnrollTest, ACoordinatorThatIsDownIsUnreachable) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const pki::Credential ca, pki::MakeCa("authority", absl::Now()));
  // No server listens on port 1 of the loopback interface.
  EXPECT_THAT(Enroll("127.0.0.1:1", ca.cert_pem, "tsr_x", "w0", "request", absl::Seconds(20)),
              ReasonIs("UNREACHABLE", "127.0.0.1:1 does not answer"));
}

TEST(ConnectTest, PlainTextToAnotherMachineIsRefused) {
  const auto service = RemoteService::Connect("192.0.2.1:8470", {});
  EXPECT_EQ(ReasonOf(service.status()), "TLS_MISMATCH");
  EXPECT_THAT(std::string(service.status().message()), HasSubstr("set TESSERA_CA_FILE"));
  ConnectOptions missing;
  missing.ca_file = "/nonexistent/ca.pem";
  EXPECT_THAT(std::string(RemoteService::Connect("192.0.2.1:1", missing).status().message()),
              HasSubstr("cannot be read from /nonexistent/ca.pem: No such file or directory; set "
                        "TESSERA_CA_FILE"));
}

}  // namespace
}  // namespace tessera::remote
