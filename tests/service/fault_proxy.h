// A TCP proxy in this process that does to connections what networks do: cuts them, delays them,
// swallows what they carry, changes a byte, closes one half.
//
// Thread-safe. Faults may be set at any time; those that count bytes count from when they are set,
// over all connections, in one direction, and strike once. The destructor closes everything.
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
  enum class Way { kUp, kDown };  // towards the server, towards the client

  // Listens on `listen`, an IPv4 address and a port, 0 for any. The target may be set later; until
  // then connections wait.
  static absl::StatusOr<std::unique_ptr<FaultProxy>> Start(
      const std::string& target = "", const std::string& listen = "127.0.0.1:0");
  FaultProxy(const FaultProxy&) = delete;
  FaultProxy& operator=(const FaultProxy&) = delete;
  ~FaultProxy();

  // host:port.
  const std::string& address() const { return address_; }
  void SetTarget(const std::string& target) ABSL_LOCKS_EXCLUDED(mu_);

  // Resets the connection that carries the byte.
  void CutAfter(Way way, int64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  // Flips a bit of the byte.
  void CorruptAfter(Way way, int64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  // Says end of stream to the receiver of the byte, and takes no more from its sender.
  void CloseHalfAfter(Way way, int64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  // Takes nothing and passes nothing on, as a cable that was pulled; new connections too.
  void Blackhole(bool on) ABSL_LOCKS_EXCLUDED(mu_);
  // Holds everything back for so long.
  void Delay(absl::Duration delay) ABSL_LOCKS_EXCLUDED(mu_);
  // Resets every connection that is open.
  void CutAll() ABSL_LOCKS_EXCLUDED(mu_);

  int64_t bytes(Way way) const ABSL_LOCKS_EXCLUDED(mu_);
  int64_t connections() const ABSL_LOCKS_EXCLUDED(mu_);
  // Of the faults that strike once, how many have.
  int64_t struck() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  enum class Fault { kCut, kCorrupt, kCloseHalf };
  struct Pending {
    Fault fault;
    int64_t at;  // of the bytes of its way
  };
  struct Connection;

  FaultProxy() = default;
  absl::Status Listen(const std::string& address);
  void Accept();
  void Pump(Connection& connection, Way way);
  // Waits while nothing is carried. False: this ends.
  bool AwaitFlow() ABSL_LOCKS_EXCLUDED(mu_);
  void SetFault(Way way, Fault fault, int64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  // Passes `size` bytes on. False when the connection is over.
  bool Forward(Connection& connection, Way way, char* data, size_t size) ABSL_LOCKS_EXCLUDED(mu_);
  void Reap();

  std::string address_;
  int listen_fd_ = -1;
  int stop_fd_ = -1;  // eventfd, readable once this ends

  mutable absl::Mutex mu_;
  std::string target_ ABSL_GUARDED_BY(mu_);
  std::map<Way, std::vector<Pending>> faults_ ABSL_GUARDED_BY(mu_);
  std::map<Way, int64_t> passed_ ABSL_GUARDED_BY(mu_);
  bool blackhole_ ABSL_GUARDED_BY(mu_) = false;
  absl::Duration delay_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  int64_t accepted_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t struck_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<std::unique_ptr<Connection>> connections_ ABSL_GUARDED_BY(mu_);
  std::thread acceptor_;
};

}  // namespace tessera::service
