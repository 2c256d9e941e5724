// The connections of one executor to the others of its communicator: one per pair of executors.
//
// The executor with the lesser name connects, and tries again until the communicator's timeout; the
// other accepts, on the listening socket it was given. Each peer has one thread, which connects and
// then reads: it delivers frames to mailboxes and never waits for anybody to consume them. Frames
// are written by the threads that have something to say, one at a time per connection.
//
// Owned by the communicator. The destructor says goodbye, waits up to a
// second for peers to read what was sent, and joins the threads. Send, StateOf and BroadcastFailure
// may be called by any thread.
#pragma once
#include <sys/uio.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "worker/collectives/collectives.h"
#include "worker/collectives/deadline.h"
#include "worker/collectives/failure.h"
#include "worker/collectives/mailbox.h"
#include "worker/collectives/socket.h"
#include "worker/collectives/wire.h"

namespace tessera::worker {

enum class LinkState { kConnecting, kUp, kDown };

class TcpLinks {
 public:
  // Everything borrowed outlives this. `mailboxes` is by rank, null where not local. At least one
  // rank is local. `listen_fd` may be -1 if no executor has a lesser name.
  TcpLinks(const CommunicatorConfig* config, int listen_fd, FailureLatch* failure,
           std::vector<Mailbox*> mailboxes);
  ~TcpLinks();

  // Starts the threads.
  void Start();

  // Of the connection to the executor of `rank`, which is not local. `*reason` says why it is down.
  LinkState StateOf(int rank, std::string* reason) const;

  // Writes one frame to the executor of `header.to`. False if it could not be written whole: the
  // connection is then of no use, and its reader will say why.
  bool Send(const FrameHeader& header, const std::string& label,
            absl::Span<const std::byte> payload, const Deadline& deadline);

  // Tells every peer the latched failure, and sends nothing after it.
  void BroadcastFailure();
  // Tells every peer the latched failure of a launch, those that are not connected yet once they
  // are. One whose socket is full is told before the next frame.
  void BroadcastLaunchFailure(uint64_t launch);
  // Whether a frame broke off in the middle: the communicator is of no more use.
  bool broken() const { return broken_.load(); }

 private:
  struct Peer;
  struct Arrival;

  // The peer's thread.
  void RunPeer(Peer& peer);
  Connection ConnectTo(Peer& peer, std::string* reason);
  Connection AwaitAccepted(Peer& peer, std::string* reason);
  // Makes `connection` a TLS one, if there are to be such. Why not, or "".
  std::string Secure(const Peer& peer, Connection* connection, const Deadline& deadline);
  bool Introduce(const Peer& peer, const Connection& connection, Welcome* welcome,
                 const Deadline& deadline);
  std::string ReadFrames(Peer& peer);
  void MarkDown(Peer& peer, const std::string& reason);

  // The acceptor's thread.
  void RunAcceptor();
  bool Advance(Arrival& arrival);
  // Towards TLS. False: this is none. `*done` once its Hello may come.
  bool AdvanceTls(Arrival& arrival, bool* done);
  WelcomeCode Judge(const Hello& hello, const std::string& name, Peer** peer);
  void Admit(Arrival& arrival);
  void FailAsStale(const std::string& executor, uint64_t generation);

  void SendFailure(Peer& peer);
  // Writes a frame of a launch; one that fails meanwhile leaves the peer little time to take it.
  bool WriteFrame(int fd, TlsStream* tls, absl::Span<iovec> parts, uint64_t launch,
                  const Deadline& deadline);
  // Tells the peer of the launches that failed, unless somebody is writing, who then does it.
  void TellLaunches(Peer& peer);
  void FailAsDeaf(const Peer& peer);
  void WakeRanks();

  // Immutable once Start has run.
  const CommunicatorConfig* const config_;
  const int listen_fd_;
  FailureLatch* const failure_;
  const std::vector<Mailbox*> mailboxes_;
  const Member& self_;
  std::map<std::string, std::unique_ptr<Peer>> peers_;  // By executor.
  std::vector<Peer*> peer_of_rank_;                     // Null where local.
  std::thread acceptor_;

  Signal stopping_;
  Signal failed_;
  std::atomic<bool> broken_{false};
};

}  // namespace tessera::worker
