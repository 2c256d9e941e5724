// The listening socket of an executor, shared by communicators of several generations.
//
// The port accepts connections, peeks at the generation in the Hello (wire.h) of each, and passes
// the connection to the communicator of that generation. If that generation is not open yet, since
// the peer was configured first, the connection waits for it, but not for ever. Thread-safe;
// outlives the communicators.
#pragma once
#include <cstdint>
#include <list>
#include <map>
#include <set>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "worker/collectives/socket.h"

namespace tessera::worker {

class PeerPort {
 public:
  // `listen_fd` is a bound, listening socket, which is borrowed.
  explicit PeerPort(int listen_fd);
  PeerPort(const PeerPort&) = delete;
  PeerPort& operator=(const PeerPort&) = delete;
  ~PeerPort();

  // Returns a descriptor that MakeCollectives takes in place of a listening socket. It is valid
  // until Close. A generation may be opened only once. Returns -1 if the process has too many open
  // files.
  int Open(uint64_t generation) ABSL_LOCKS_EXCLUDED(mu_);
  // Call when the communicator is destroyed. Later connections for its generation are closed.
  void Close(uint64_t generation) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct PendingConnection {
    UniqueFd fd;
    absl::Time deadline;
    bool generation_known = false;  // whether the hello, which has the generation, has been read
    uint64_t generation = 0;
  };
  // A pipe within the process. It passes the accepted connections of one generation to its
  // communicator, as the numbers of their descriptors.
  struct Channel {
    UniqueFd read_end, write_end;
  };

  void Run();
  void AcceptOne(std::list<PendingConnection>* pending_connections);
  // Returns true when the connection has been passed on or closed.
  bool Advance(PendingConnection& pending) ABSL_LOCKS_EXCLUDED(mu_);

  const int listen_fd_;
  Signal stop_signal_;
  UniqueFd wake_fd_;  // eventfd; raised when a generation is opened or closed
  absl::Mutex mu_;
  std::map<uint64_t, Channel> channels_ ABSL_GUARDED_BY(mu_);  // of the open generations
  // The closed generations: all in closed_generations_, and all below closed_below_ that
  // have no channel.
  uint64_t closed_below_ ABSL_GUARDED_BY(mu_) = 0;
  std::set<uint64_t> closed_generations_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;  // uses the members above
};

}  // namespace tessera::worker
