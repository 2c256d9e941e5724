// The connections of one executor to the others of its communicator: one per pair of executors.
//
// A peer is another executor. The one of two executors whose name sorts first connects, and
// retries until its TcpLinks is destroyed. The other one accepts, on the listening socket that it
// was given. There is one thread for each peer, which connects and then reads: it delivers frames
// to mailboxes and never waits for them to be consumed. Frames are written by the threads that call
// Send, one at a time on each connection.
//
// Owned by the communicator. The destructor shuts the connections down, waits up to a second for
// peers to read what was sent, and joins the threads. Send, StateOf and BroadcastFailure may be
// called by any thread.
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
  // Borrows all arguments, which outlive this. `mailboxes` is by rank, and null for ranks that are
  // not local. At least one rank is local. `listen_fd` may be -1 if no executor has a name that
  // sorts before this executor's.
  TcpLinks(const CommunicatorConfig* config, int listen_fd, FailureLatch* failure,
           std::vector<Mailbox*> mailboxes);
  ~TcpLinks();

  // Starts the threads. Stores a failure instead if the process has no descriptors left.
  void Start();

  // Returns the state of the connection to the executor of `rank`, which is not local. Sets
  // `*reason` to the reason why it is down or not up yet.
  LinkState StateOf(int rank, std::string* reason) const;

  // Writes one frame to the executor of `header.to`. Returns false if it was not written
  // completely. A connection on which a write has failed is unusable, and its reader reports the
  // error.
  bool Send(const FrameHeader& header, const std::string& label,
            absl::Span<const std::byte> payload, const Deadline& deadline);
  // Writes a frame that has only a header, unless the connection stays busy or its socket is full.
  // Does not wait for the peer.
  void SendIfRoom(const FrameHeader& header);

  // Sends the communicator's failure to every peer, and closes the connections for writing.
  void BroadcastFailure();
  // Sends the failure of a launch to every peer, once that peer is connected. If the socket of a
  // peer is full, the failure is sent after the next frame to it.
  void BroadcastLaunchFailure(uint64_t launch);
  // Returns whether a frame to any peer was written only in part. The communicator is then
  // unusable.
  bool broken() const { return broken_.load(); }

 private:
  struct Peer;
  struct PendingConnection;

  // The functions below run on the peer's thread.
  void RunPeer(Peer& peer);
  Connection ConnectTo(Peer& peer, std::string* reason);
  Connection AwaitAccepted(Peer& peer, std::string* reason);
  // Starts TLS on `connection` if it is configured. Returns the error, or "".
  std::string StartTls(const Peer& peer, Connection* connection, const Deadline& deadline);
  bool ExchangeHello(const Peer& peer, const Connection& connection, HelloAck* ack,
                     const Deadline& deadline);
  std::string ReadFrames(Peer& peer);
  void MarkDown(Peer& peer, const std::string& reason);

  // The functions below run on the acceptor's thread.
  void RunAcceptor();
  bool Advance(PendingConnection& pending);
  // Advances the TLS handshake. Returns false if it fails. Sets `*done` once the Hello may arrive.
  bool AdvanceTls(PendingConnection& pending, bool* done);
  HelloAckCode ValidateHello(const Hello& hello, const std::string& name, Peer** peer);
  void Admit(PendingConnection& pending);
  void FailGeneration(const std::string& executor, uint64_t generation);

  void SendFailure(Peer& peer);
  // Writes a frame of a launch. Once the launch has failed, the peer gets only
  // kFailedLaunchWriteTime to read the rest of the frame.
  bool WriteFrame(int fd, TlsStream* tls, absl::Span<iovec> parts, uint64_t launch,
                  const Deadline& deadline);
  // Tells the peer of the launches that have failed. If another thread is writing to the peer, that
  // thread does it afterwards.
  void SendLaunchFailures(Peer& peer);
  void FailUnresponsivePeer(const Peer& peer);
  void WakeRanks();

  // Immutable once Start has run.
  const CommunicatorConfig* const config_;
  const int listen_fd_;
  FailureLatch* const failure_;
  const std::vector<Mailbox*> mailboxes_;
  const RankInfo& self_;
  std::map<std::string, std::unique_ptr<Peer>> peers_;  // by executor name
  std::vector<Peer*> peer_of_rank_;                     // null for local ranks
  std::thread acceptor_;

  Signal stop_signal_;
  Signal failure_signal_;
  std::atomic<bool> broken_{false};
};

}  // namespace tessera::worker
