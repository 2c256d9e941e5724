// A TCP proxy inside this process that injects faults of a network into connections: it can cut or
// delay them, swallow their data, change a byte, or close one direction.
//
// Thread-safe. Faults may be set at any time. A fault with a byte count strikes once, at that byte:
// it counts the bytes that pass in its direction over all connections together, from the time when
// it is set. The destructor closes everything.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tessera::service {

class FaultProxy {
 public:
  // kUp: from the client towards the server; kDown: from the server towards the client
  enum class Direction { kUp, kDown };

  // Listens on `listen`, an IPv4 address and a port; port 0 means any free port. The target may be
  // set later. Until then connections wait.
  static absl::StatusOr<std::unique_ptr<FaultProxy>> Start(
      const std::string& target = "", const std::string& listen = "127.0.0.1:0");
  FaultProxy(const FaultProxy&) = delete;
  FaultProxy& operator=(const FaultProxy&) = delete;
  ~FaultProxy();

  // Returns the address that the proxy listens on, as host:port.
  const std::string& address() const { return address_; }
  void SetTarget(const std::string& target) ABSL_LOCKS_EXCLUDED(mu_);

  // Resets the connection that carries byte number `bytes` from now on.
  void CutAfter(Direction direction, int64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  // Flips one bit of byte number `bytes` from now on.
  void CorruptAfter(Direction direction, int64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  // At byte number `bytes` from now on, ends the stream of that direction: the receiver sees its
  // end, and the proxy reads no more from the sender.
  void CloseHalfAfter(Direction direction, int64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  // Stops all traffic, as if a cable were pulled: nothing is read or passed on, and new connections
  // are not accepted.
  void SetBlackhole(bool on) ABSL_LOCKS_EXCLUDED(mu_);
  // Resets every open connection, and each new one as soon as it is made.
  void SetRefusing(bool on) ABSL_LOCKS_EXCLUDED(mu_);
  // Holds back each piece of data for `delay`.
  void SetDelay(absl::Duration delay) ABSL_LOCKS_EXCLUDED(mu_);
  // Resets every open connection.
  void CutAll() ABSL_LOCKS_EXCLUDED(mu_);

  // Returns the number of bytes that have passed in this direction, over all connections.
  int64_t bytes_passed(Direction direction) const ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the number of connections that were accepted so far.
  int64_t num_accepted() const ABSL_LOCKS_EXCLUDED(mu_);
  // Returns how many of the faults that strike once have struck.
  int64_t num_faults_struck() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  enum class Fault { kCut, kCorrupt, kCloseHalf };
  struct PendingFault {
    Fault fault;
    int64_t position;  // in the byte stream of its direction, counted over all connections
  };
  struct Connection;

  FaultProxy() = default;
  absl::Status Listen(const std::string& address);
  void Accept();
  void Pump(Connection& connection, Direction direction);
  // Waits while the proxy is blackholed. Returns false if the proxy is stopping.
  bool AwaitFlow() ABSL_LOCKS_EXCLUDED(mu_);
  void AddFault(Direction direction, Fault fault, int64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  // Passes `size` bytes on. Returns false when the connection is over.
  bool Forward(Connection& connection, Direction direction, char* data, size_t size)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Joins the threads of the connections that are over, and closes their sockets.
  void CloseEndedConnections();

  std::string address_;
  int listen_fd_ = -1;
  int stop_fd_ = -1;  // eventfd that becomes readable when the proxy stops

  mutable absl::Mutex mu_;
  std::string target_ ABSL_GUARDED_BY(mu_);
  std::map<Direction, std::vector<PendingFault>> faults_ ABSL_GUARDED_BY(mu_);
  std::map<Direction, int64_t> bytes_passed_ ABSL_GUARDED_BY(mu_);
  bool blackhole_ ABSL_GUARDED_BY(mu_) = false;
  bool refusing_ ABSL_GUARDED_BY(mu_) = false;
  absl::Duration delay_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  int64_t num_accepted_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t num_faults_struck_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<std::unique_ptr<Connection>> connections_ ABSL_GUARDED_BY(mu_);
  std::thread acceptor_;
};

}  // namespace tessera::service
