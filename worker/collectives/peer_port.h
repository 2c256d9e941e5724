// The listening socket of an executor, shared by the communicators of several generations.
//
// Accepts connections, peeks at the generation in each hello, and passes the connection to the
// communicator of that generation. One whose generation is not open yet is held for a while: its
// peer was configured first. Thread-safe; outlives the communicators.
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
  // `listen_fd` is bound and listens; borrowed.
  explicit PeerPort(int listen_fd);
  PeerPort(const PeerPort&) = delete;
  PeerPort& operator=(const PeerPort&) = delete;
  ~PeerPort();

  // The descriptor for MakeCollectives in a listening socket's place, valid until Close. A
  // generation is opened once. -1 if the process has too many open files.
  int Open(uint64_t generation) ABSL_LOCKS_EXCLUDED(mu_);
  // The communicator is destroyed; later connections for it are closed.
  void Close(uint64_t generation) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct PendingConnection {
    UniqueFd fd;
    absl::Time deadline;
    bool known = false;  // Whether the hello, and with it the generation, has been read.
    uint64_t generation = 0;
  };
  // A pipe through which the numbers of descriptors are passed, within the process.
  struct Channel {
    UniqueFd read_end, write_end;
  };

  void Run();
  void AcceptOne(std::list<PendingConnection>* pending_connections);
  // Returns true when the connection has been passed on or closed.
  bool Advance(PendingConnection& pending) ABSL_LOCKS_EXCLUDED(mu_);

  const int listen_fd_;
  Signal stopping_;
  UniqueFd opened_;  // eventfd: a generation was opened or closed
  absl::Mutex mu_;
  std::map<uint64_t, Channel> channels_ ABSL_GUARDED_BY(mu_);
  uint64_t closed_below_ ABSL_GUARDED_BY(mu_) = 0;
  std::set<uint64_t> closed_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;  // Uses the members above.
};

}  // namespace tessera::worker
