// The listening socket of an executor, shared by the communicators of several generations.
//
// Accepts connections, looks at the generation that each names in its hello, without taking it, and
// hands it to the communicator of that generation. One that names a generation not open yet is held
// for a while: its peer was configured first. Thread-safe; outlives the communicators.
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

  // What MakeCollectives takes in a listening socket's place, good until Close. A generation is
  // opened once. -1, which no communicator with callers opens on, where the process has as many
  // files open as it may.
  int Open(uint64_t generation) ABSL_LOCKS_EXCLUDED(mu_);
  // The communicator is gone; who still calls for it is hung up on.
  void Close(uint64_t generation) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Arrival {
    UniqueFd fd;
    absl::Time deadline;
    bool known = false;
    uint64_t generation = 0;
  };
  // Both ends of the pipe over which descriptors are handed.
  struct Door {
    UniqueFd out, in;
  };

  void Run();
  void AcceptOne(std::list<Arrival>* arrivals);
  // True when the arrival has been dealt with.
  bool Advance(Arrival& arrival) ABSL_LOCKS_EXCLUDED(mu_);

  const int listen_fd_;
  Signal stopping_;
  UniqueFd opened_;  // eventfd: a generation was opened or closed
  absl::Mutex mu_;
  std::map<uint64_t, Door> doors_ ABSL_GUARDED_BY(mu_);
  uint64_t closed_below_ ABSL_GUARDED_BY(mu_) = 0;
  std::set<uint64_t> closed_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;  // Last.
};

}  // namespace tessera::worker
