// For tests: the executors of a communicator, all in the process of the test.
#pragma once
#include <netinet/in.h>
#include <sys/socket.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "worker/collectives/collectives.h"
#include "worker/collectives/host_collectives.h"
#include "worker/collectives/socket.h"

namespace tessera::worker {

struct Cluster {
  virtual ~Cluster() = default;

  std::vector<std::unique_ptr<Collectives>> executors;
  std::vector<int> executor_of_rank;

  int ranks() const { return static_cast<int>(executor_of_rank.size()); }
  Collectives& of(int rank) { return *executors[executor_of_rank[rank]]; }

  // Runs `body` for every rank in `group` at the same time, each on its own thread.
  std::vector<absl::Status> Run(const std::vector<int>& group,
                                const std::function<absl::Status(int)>& body) {
    std::vector<absl::Status> results(group.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < group.size(); ++i) {
      threads.emplace_back([&, i] { results[i] = body(group[i]); });
    }
    for (std::thread& thread : threads) thread.join();
    return results;
  }
};

// The names of a rank's device, executor and host in the errors that the suite expects.
inline std::string DeviceOf(int rank) { return absl::StrCat("device ", 10 + rank); }
inline std::string ExecutorOf(int executor) { return absl::StrCat("w", executor); }
inline std::string HostOf(int executor) { return absl::StrCat("host-", executor); }

// A listening socket on a free loopback port.
struct Listener {
  Listener() : fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(fd.get(), generic, size), 0);
    EXPECT_EQ(listen(fd.get(), 64), 0);
    EXPECT_EQ(getsockname(fd.get(), generic, &size), 0);
    endpoint = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  }
  UniqueFd fd;
  std::string endpoint;
};

// A cluster of executors w0, w1, ... with `ranks_each` ranks each.
class TestCluster : public Cluster {
 public:
  TestCluster(int executor_count, int ranks_each, absl::Duration timeout)
      : listeners(executor_count) {
    config.generation = 3;
    config.secret = "open sesame";
    config.timeout = timeout;
    for (int rank = 0; rank < executor_count * ranks_each; ++rank) {
      const int e = rank / ranks_each;
      executor_of_rank.push_back(e);
      config.ranks.push_back(
          {10 + rank, ExecutorOf(e), /*incarnation=*/100u + e, listeners[e].endpoint, HostOf(e)});
    }
    executors.resize(executor_count);
  }

  // The configuration of executor `e`.
  CommunicatorConfig ConfigOf(int e) const {
    CommunicatorConfig result = config;
    if (tls_of) result.tls = tls_of(ExecutorOf(e));
    for (int rank = 0; rank < ranks(); ++rank) {
      if (executor_of_rank[rank] == e) result.local_ranks.push_back(rank);
    }
    return result;
  }
  void Start(int e, const CommunicatorConfig& with) {
    executors[e] = MakeCollectives(with, executors.size() == 1 ? -1 : listeners[e].fd.get());
  }
  void Start(int e) { Start(e, ConfigOf(e)); }
  void StartAll() {
    for (size_t e = 0; e < executors.size(); ++e) Start(static_cast<int>(e));
  }

  ~TestCluster() override {
    // All executors stop at once, as separate processes would.
    std::vector<std::thread> threads;
    for (auto& executor : executors) threads.emplace_back([&executor] { executor.reset(); });
    for (std::thread& thread : threads) thread.join();
  }

  std::vector<Listener> listeners;
  CommunicatorConfig config;
  // The TLS identity of an executor; empty if the connections are plaintext.
  std::function<std::shared_ptr<const TlsContext>(const std::string& executor)> tls_of;
};

}  // namespace tessera::worker
