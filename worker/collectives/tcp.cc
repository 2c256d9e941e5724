// The connections between the executors of a communicator: making them, writing and reading frames,
// and sending failures to peers. HostCollectives owns a TcpLinks if a rank is not local, and
// InterProcExchange sends through it. The received frames go through receive.cc to the mailboxes.
#include "worker/collectives/tcp.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <list>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "base/thread_name.h"
#include "worker/collectives/receive.h"
#include "worker/collectives/retry.h"

namespace tessera::worker {
namespace {

// kHelloTime: the time from accepting a connection until its Hello must be complete. kShutdownTime:
// how long the destructor waits for peers to read what was sent.
constexpr absl::Duration kHelloTime = absl::Seconds(5);
constexpr absl::Duration kShutdownTime = absl::Seconds(1);
// kFailedLaunchWriteTime: how long a peer may take to read the rest of a frame after its launch has
// failed. kFailurePoll: how often a blocked write checks whether the launch has failed, and how
// long a question about a launch waits for another thread that writes to the peer.
constexpr absl::Duration kFailedLaunchWriteTime = absl::Milliseconds(500);
constexpr absl::Duration kFailurePoll = absl::Milliseconds(50);
constexpr absl::Duration kAcceptPause = absl::Milliseconds(500);
constexpr size_t kMaxPending = 256;  // further connections wait in the kernel's backlog

iovec ToIovec(const void* data, size_t size) { return {const_cast<void*>(data), size}; }

// A frame that holds `failure`, which is borrowed.
struct FailureFrame {
  FailureFrame(FrameType type, const absl::Status& failure, size_t max_message_bytes)
      : reason(InfoOf(KindOf(failure)).reason),
        message(failure.message().substr(0, max_message_bytes)) {
    header.type = type;
    header.payload_length = static_cast<uint32_t>(message.size());
    header.label_length = static_cast<uint16_t>(reason.size());
  }

  FrameHeader header;
  std::string reason;
  absl::string_view message;
  iovec parts[3] = {ToIovec(&header, sizeof(header)), ToIovec(reason.data(), reason.size()),
                    ToIovec(message.data(), message.size())};
};

// Accepts a connection from a listening socket, or reads one from the pipe of a PeerPort. Returns
// -1 and sets errno if there is none.
int TakeConnection(int source) {
  const int accepted = accept4(source, nullptr, nullptr, SOCK_CLOEXEC);
  if (accepted >= 0 || errno != ENOTSOCK) return accepted;
  int fd = -1;
  const ssize_t got = read(source, &fd, sizeof(fd));
  if (got == sizeof(fd)) return fd;
  if (got >= 0) errno = EAGAIN;
  return -1;
}

// Returns the worker's part of an executor's name: "w0" for "w0/1".
std::string WorkerOf(const std::string& executor) {
  return executor.substr(0, executor.rfind('/'));
}

}  // namespace

struct TcpLinks::Peer {
  explicit Peer(const RankInfo& rank) : info(rank) {}

  // Call after an incomplete write: no frame can follow a part of a frame. Returns false if writing
  // was closed before.
  bool CloseWriting() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    if (write_closed) return false;
    write_closed = true;
    shutdown(fd.get(), SHUT_WR);
    return true;
  }

  // Immutable.
  const RankInfo& info;  // the first rank of the executor

  std::thread thread;

  absl::Mutex mu;
  absl::CondVar changed;
  // The socket is set once, before kUp. Only the destructor closes it, so that no other file gets
  // its descriptor.
  UniqueFd fd ABSL_GUARDED_BY(mu);
  std::unique_ptr<TlsStream> tls ABSL_GUARDED_BY(mu);  // the TLS stream of `fd`; null without TLS
  Connection accepted ABSL_GUARDED_BY(mu);        // handed from the acceptor to the peer's thread
  bool was_accepted ABSL_GUARDED_BY(mu) = false;  // whether a connection was accepted
  LinkState state ABSL_GUARDED_BY(mu) = LinkState::kConnecting;
  std::string reason ABSL_GUARDED_BY(mu);  // why the connection is down, or not up yet
  bool writing ABSL_GUARDED_BY(mu) = false;
  bool write_closed ABSL_GUARDED_BY(mu) = false;
  // Launches whose failure the peer has not been told yet.
  std::deque<uint64_t> failed_launches ABSL_GUARDED_BY(mu);
  bool stopping ABSL_GUARDED_BY(mu) = false;
  bool finished ABSL_GUARDED_BY(mu) = false;  // whether the thread has stopped reading
};

// A connection whose Hello is not complete yet.
struct TcpLinks::PendingConnection {
  explicit PendingConnection(int accepted) : fd(accepted), deadline(kHelloTime) {}

  UniqueFd fd;
  Deadline deadline;
  HelloReader reader;
  // The next four members are used only with TLS: the part of the TlsHello that has arrived, and
  // then the handshake.
  TlsHello tls_hello;
  size_t tls_hello_read = 0;
  std::unique_ptr<TlsStream> tls;
  bool handshake_done = false;
  int16_t poll_events = POLLIN;
};

TcpLinks::TcpLinks(const CommunicatorConfig* config, int listen_fd, FailureLatch* failure,
                   std::vector<Mailbox*> mailboxes)
    : config_(config),
      listen_fd_(listen_fd),
      failure_(failure),
      mailboxes_(std::move(mailboxes)),
      self_(config->ranks[config->local_ranks[0]]) {
  for (const RankInfo& info : config_->ranks) {
    Peer* peer = nullptr;
    if (info.executor != self_.executor) {
      auto& owned = peers_[info.executor];
      if (owned == nullptr) owned = std::make_unique<Peer>(info);
      peer = owned.get();
    }
    peer_of_rank_.push_back(peer);
  }
}

void TcpLinks::Start() {
  if (stop_signal_.fd() < 0 || failure_signal_.fd() < 0) {
    // The threads could not be stopped, so they are not started.
    constexpr char kWhy[] = "this process may open no more files";
    for (auto& [name, peer] : peers_) MarkDown(*peer, kWhy);
    return failure_->Set(
        MakeError(ErrorKind::kInternal, absl::StrCat("communicator: ", kWhy, "; raise its limit")));
  }
  if (listen_fd_ >= 0) {
    fcntl(listen_fd_, F_SETFL, fcntl(listen_fd_, F_GETFL) | O_NONBLOCK);
    acceptor_ = std::thread([this] { RunAcceptor(); });
  }
  for (auto& [name, peer] : peers_) {
    peer->thread = std::thread([this, p = peer.get()] { RunPeer(*p); });
  }
}

TcpLinks::~TcpLinks() {
  stop_signal_.Raise();
  if (acceptor_.joinable()) acceptor_.join();
  for (auto& [name, peer] : peers_) {
    absl::MutexLock lock(&peer->mu);
    peer->stopping = true;
    peer->changed.SignalAll();
    if (peer->fd.ok()) shutdown(peer->fd.get(), SHUT_WR);
  }
  const Deadline shutdown_deadline(kShutdownTime);
  for (auto& [name, peer] : peers_) {
    {
      absl::MutexLock lock(&peer->mu);
      while (!peer->finished && !shutdown_deadline.Passed()) {
        peer->changed.WaitWithTimeout(&peer->mu, shutdown_deadline.Left());
      }
      if (peer->fd.ok()) shutdown(peer->fd.get(), SHUT_RDWR);
    }
    if (peer->thread.joinable()) peer->thread.join();
  }
}

LinkState TcpLinks::StateOf(int rank, std::string* reason) const {
  Peer& peer = *peer_of_rank_[rank];
  absl::MutexLock lock(&peer.mu);
  *reason = peer.reason;
  return peer.state;
}

// Writes one frame, after waiting for other threads that write to the same connection. The lock is
// not held during the write, since it may block; the flag `writing` reserves the connection
// instead. Broadcasts of failures skip a connection that is being written to, so the writer sends
// the failures that they left out. A frame that was written in part makes the connection unusable,
// because the reader at the other end could not find the next frame.
bool TcpLinks::Send(const FrameHeader& header, const std::string& label,
                    absl::Span<const std::byte> payload, const Deadline& deadline) {
  Peer& peer = *peer_of_rank_[header.to];
  int fd = -1;
  TlsStream* tls = nullptr;
  {
    absl::MutexLock lock(&peer.mu);
    while (peer.writing && !failure_->failed(header.launch) && !deadline.Passed()) {
      peer.changed.WaitWithTimeout(&peer.mu, deadline.Left());
    }
    if (peer.writing || peer.write_closed || peer.state != LinkState::kUp) return false;
    peer.writing = true;
    fd = peer.fd.get();
    tls = peer.tls.get();
  }
  iovec parts[] = {ToIovec(&header, sizeof(header)), ToIovec(label.data(), label.size()),
                   ToIovec(payload.data(), payload.size())};
  const bool written = WriteFrame(fd, tls, absl::MakeSpan(parts), header.launch, deadline);
  {
    absl::MutexLock lock(&peer.mu);
    peer.writing = false;
    if (!written && peer.CloseWriting()) broken_ = true;
    peer.changed.SignalAll();
  }
  if (!written && header.launch != 0 && failure_->failed(header.launch)) FailUnresponsivePeer(peer);
  // Broadcasts skip a connection that is being written to, so the failures are sent here.
  if (failure_->failed()) {
    SendFailure(peer);
  } else {
    SendLaunchFailures(peer);
  }
  return written;
}

void TcpLinks::SendIfRoom(const FrameHeader& header) {
  Peer& peer = *peer_of_rank_[header.to];
  pollfd writable = {-1, POLLOUT, 0};
  {
    absl::MutexLock lock(&peer.mu);
    // The ranks of one executor ask at about the same time, so the connection is often busy for a
    // moment.
    const Deadline deadline(kFailurePoll);
    while (peer.writing && !deadline.Passed())
      peer.changed.WaitWithTimeout(&peer.mu, deadline.Left());
    if (peer.writing || peer.write_closed || peer.state != LinkState::kUp) return;
    writable.fd = peer.fd.get();
  }
  // A socket that is writable has room for many headers. The deadline matters only if another
  // thread fills the socket first.
  if (poll(&writable, 1, 0) > 0) Send(header, "", {}, Deadline(kFailedLaunchWriteTime));
}

bool TcpLinks::WriteFrame(int fd, TlsStream* tls, absl::Span<iovec> parts, uint64_t launch,
                          const Deadline& deadline) {
  std::optional<Deadline> failed_launch_deadline;
  while (true) {
    const Deadline until_poll(std::min(kFailurePoll, deadline.Left()));
    if (WriteAll(fd, tls, parts, until_poll, failure_signal_.fd())) return true;
    if (!until_poll.Passed() || deadline.Passed() || failure_->failed()) return false;
    if (!failure_->failed(launch)) continue;
    if (!failed_launch_deadline) failed_launch_deadline.emplace(kFailedLaunchWriteTime);
    if (failed_launch_deadline->Passed()) return false;
  }
}

void TcpLinks::FailUnresponsivePeer(const Peer& peer) {
  failure_->Set(MakeError(ErrorKind::kWorkerLost,
                          absl::StrCat("executor ", peer.info.executor, " on host ", peer.info.host,
                                       " does not receive the data that is sent to it")));
}

void TcpLinks::BroadcastLaunchFailure(uint64_t launch) {
  for (auto& [name, peer] : peers_) {
    {
      absl::MutexLock lock(&peer->mu);
      peer->failed_launches.push_back(launch);
      if (peer->failed_launches.size() > FailureLatch::kLaunchesKept) {
        peer->failed_launches.pop_front();
      }
      peer->changed.SignalAll();
    }
    SendLaunchFailures(*peer);
  }
}

// Sends the failures of launches that the peer does not know yet, one frame each. It never waits
// for the peer, because it runs on the thread that fails the launch. If nothing of a frame fits
// into the socket, the failure stays queued and the next writer sends it. If a part of a frame was
// written, nothing can follow it, so the peer counts as lost. With TLS a begun frame cannot be told
// from an untouched one, so every incomplete write counts as begun.
void TcpLinks::SendLaunchFailures(Peer& peer) {
  while (true) {
    uint64_t launch = 0;
    int fd = -1;
    TlsStream* tls = nullptr;
    {
      absl::MutexLock lock(&peer.mu);
      if (peer.state != LinkState::kUp || peer.writing || peer.write_closed ||
          peer.failed_launches.empty()) {
        return;
      }
      peer.writing = true;
      launch = peer.failed_launches.front();
      peer.failed_launches.pop_front();
      fd = peer.fd.get();
      tls = peer.tls.get();
    }
    const absl::Status failure = failure_->status(launch);
    FailureFrame frame(FrameType::kAbortLaunch, failure, kMaxLaunchErrorBytes);
    frame.header.generation = config_->generation;
    frame.header.launch = launch;
    // The thread that fails a launch must not wait for a peer that does not read.
    const bool written =
        failure.ok() || WriteAll(fd, tls, absl::MakeSpan(frame.parts),
                                 Deadline(absl::ZeroDuration()), failure_signal_.fd());
    const bool begun = tls != nullptr || frame.parts[0].iov_len < sizeof(FrameHeader);
    {
      absl::MutexLock lock(&peer.mu);
      peer.writing = false;
      peer.changed.SignalAll();
      if (written) continue;
      if (!begun) peer.failed_launches.push_front(launch);
      if (!begun) return;
      if (peer.CloseWriting()) broken_ = true;
    }
    return FailUnresponsivePeer(peer);
  }
}

void TcpLinks::BroadcastFailure() {
  failure_signal_.Raise();
  for (auto& [name, peer] : peers_) SendFailure(*peer);
}

void TcpLinks::SendFailure(Peer& peer) {
  const absl::Status failure = failure_->status();
  int fd = -1;
  TlsStream* tls = nullptr;
  {
    absl::MutexLock lock(&peer.mu);
    peer.changed.SignalAll();
    if (peer.state != LinkState::kUp || peer.writing || peer.write_closed) return;
    peer.write_closed = true;
    fd = peer.fd.get();
    tls = peer.tls.get();
  }
  FailureFrame frame(FrameType::kAbort, failure, kMaxPayloadBytes);
  frame.header.generation = config_->generation;
  // If the frame does not fit into the socket's buffer at once, the peer only sees the end of the
  // stream.
  WriteAll(fd, tls, absl::MakeSpan(frame.parts), Deadline(absl::ZeroDuration()),
           failure_signal_.fd());
  shutdown(fd, SHUT_WR);
}

void TcpLinks::WakeRanks() {
  for (Mailbox* mailbox : mailboxes_) {
    if (mailbox != nullptr) mailbox->Wake();
  }
}

void TcpLinks::MarkDown(Peer& peer, const std::string& reason) {
  {
    absl::MutexLock lock(&peer.mu);
    peer.state = LinkState::kDown;
    peer.reason = reason;
    peer.finished = true;
    peer.changed.SignalAll();
    // The peer's writes then fail at once, instead of waiting for this side to read.
    if (peer.fd.ok()) shutdown(peer.fd.get(), SHUT_RDWR);
  }
  WakeRanks();
}

void TcpLinks::RunPeer(Peer& peer) {
  NameThread(absl::StrCat("peer ", peer.info.executor).c_str());
  std::string reason;
  const bool connects = self_.executor < peer.info.executor;
  Connection connection = connects ? ConnectTo(peer, &reason) : AwaitAccepted(peer, &reason);
  if (!connection.ok()) return MarkDown(peer, reason);
  {
    absl::MutexLock lock(&peer.mu);
    peer.fd = std::move(connection.fd);
    peer.tls = std::move(connection.tls);
    peer.state = LinkState::kUp;
    if (peer.stopping) shutdown(peer.fd.get(), SHUT_WR);
  }
  // Failures that were broadcast before the connection was up have not been sent on it.
  if (failure_->failed()) SendFailure(peer);
  SendLaunchFailures(peer);
  WakeRanks();
  TESSERA_LOG(INFO) << "peer connected" << Field("executor", peer.info.executor)
                    << Field("generation", config_->generation);
  const std::string end = ReadFrames(peer);
  TESSERA_LOG(INFO) << "peer disconnected" << Field("executor", peer.info.executor)
                    << Field("generation", config_->generation) << Field("reason", end);
  MarkDown(peer, end);
}

// Tries until it succeeds, the links are destroyed, or the peer turns out to be at a later
// generation. A peer that does not answer may only be paused, so it does not count as lost: a
// collective that needs the peer ends at its own deadline, and the error says how far the
// connection got. The wait for the answer to a Hello has no deadline. If the connection were given
// up, the peer could still accept it later, and would then refuse the next one.
Connection TcpLinks::ConnectTo(Peer& peer, std::string* reason) {
  const Deadline no_deadline(absl::InfiniteDuration());
  const auto set_reason = [&](std::string why) {
    absl::MutexLock lock(&peer.mu);
    peer.reason = *reason = std::move(why);
  };
  const Deadline first_timeout(config_->timeout);
  for (absl::Duration pause = kFirstPause;;) {
    absl::StatusOr<UniqueFd> fd =
        Connect(peer.info.endpoint, Deadline(config_->timeout), stop_signal_.fd());
    Connection connection;
    std::string tls_error;
    if (fd.ok()) {
      connection.fd = *std::move(fd);
      set_reason(absl::StrCat(peer.info.endpoint, " has sent no welcome"));
      tls_error = StartTls(peer, &connection, no_deadline);
    }
    HelloAck ack;
    if (!connection.ok()) {
      set_reason(absl::StrCat("no connection: ", fd.status().message()));
    } else if (!tls_error.empty()) {
      set_reason(absl::StrCat(peer.info.endpoint, ": ", tls_error));
    } else if (!ExchangeHello(peer, connection, &ack, no_deadline)) {
      set_reason(absl::StrCat(peer.info.endpoint, " closed the connection before a welcome"));
    } else if (ack.code == HelloAckCode::kWelcome) {
      return connection;
    } else if (ack.code == HelloAckCode::kStale) {
      set_reason("the peer is at a later generation");
      FailGeneration(peer.info.executor, ack.generation);
      return {};
    } else {
      set_reason(absl::StrCat(peer.info.endpoint, " refused: it is at generation ", ack.generation,
                              ", or expects another incarnation"));
    }
    if (AwaitSignal(stop_signal_.fd(), Deadline(pause))) return {};
    pause = NextPause(pause, first_timeout.Left(), config_->timeout);
  }
}

std::string TcpLinks::StartTls(const Peer& peer, Connection* connection, const Deadline& deadline) {
  if (config_->tls == nullptr) return "";
  TlsHello hello;
  hello.generation = config_->generation;
  iovec part = ToIovec(&hello, sizeof(hello));
  const int fd = connection->fd.get();
  if (!WriteAll(fd, nullptr, absl::MakeSpan(&part, 1), deadline, stop_signal_.fd())) {
    return "it closed the connection before TLS";
  }
  connection->tls = MakeTlsStream(*config_->tls, fd, /*connects=*/true);
  if (!Handshake(fd, *connection->tls, deadline, stop_signal_.fd())) {
    const std::string why = connection->tls->Reason();
    return why.empty() ? "no TLS handshake" : why;
  }
  return connection->tls->PeerIs(WorkerOf(peer.info.executor))
             ? ""
             : absl::StrCat("its certificate does not name worker ", WorkerOf(peer.info.executor));
}

bool TcpLinks::ExchangeHello(const Peer& peer, const Connection& connection, HelloAck* ack,
                             const Deadline& deadline) {
  Hello hello;
  hello.name_length = static_cast<uint16_t>(self_.executor.size());
  hello.secret_length = static_cast<uint32_t>(config_->secret.size());
  hello.generation = config_->generation;
  hello.from_incarnation = self_.incarnation;
  hello.to_incarnation = peer.info.incarnation;
  iovec parts[] = {ToIovec(&hello, sizeof(hello)),
                   ToIovec(self_.executor.data(), self_.executor.size()),
                   ToIovec(config_->secret.data(), config_->secret.size())};
  const int fd = connection.fd.get();
  TlsStream* const tls = connection.tls.get();
  return WriteAll(fd, tls, absl::MakeSpan(parts), deadline, stop_signal_.fd()) &&
         ReadAll(fd, tls, ack, sizeof(*ack), deadline, stop_signal_.fd()) &&
         ack->magic == kHelloMagic;
}

Connection TcpLinks::AwaitAccepted(Peer& peer, std::string* reason) {
  absl::MutexLock lock(&peer.mu);
  while (!peer.accepted.ok() && !peer.stopping) peer.changed.Wait(&peer.mu);
  *reason = "this executor is stopping";
  return std::move(peer.accepted);
}

std::string TcpLinks::ReadFrames(Peer& peer) {
  int fd = -1;
  TlsStream* tls = nullptr;
  {
    absl::MutexLock lock(&peer.mu);
    fd = peer.fd.get();
    tls = peer.tls.get();
  }
  BufferedReader reader(fd, tls);
  while (true) {
    Frame frame;
    std::string fault = ReadFrame(reader, config_->generation, &frame);
    if (fault.empty()) {
      std::optional<FrameHeader> answer;
      fault = DeliverFrame(*config_, peer.info, mailboxes_, failure_, std::move(frame), &answer);
      if (answer) SendIfRoom(*answer);
    }
    if (!fault.empty()) return fault;
  }
}

// Accepts connections and reads their Hellos, many at a time, until the links stop. A slow or
// silent peer must not hold up the others, so nothing here blocks on one connection, and each has a
// deadline for its Hello. The number of unfinished connections is bounded; the rest wait in the
// kernel's backlog. All connections are advanced after each poll.
void TcpLinks::RunAcceptor() {
  NameThread("peers accept");
  std::list<PendingConnection> pending_connections;
  while (true) {
    std::vector<pollfd> fds = {{stop_signal_.fd(), POLLIN, 0}};
    const bool room = pending_connections.size() < kMaxPending;
    fds.push_back({room ? listen_fd_ : -1, POLLIN, 0});
    int millis = -1;
    for (const PendingConnection& pending : pending_connections) {
      fds.push_back({pending.fd.get(), pending.poll_events, 0});
      const int left = pending.deadline.PollMillis();
      millis = millis < 0 ? left : std::min(millis, left);
    }
    poll(fds.data(), fds.size(), millis);
    if (fds[0].revents != 0) return;
    pending_connections.remove_if([this](PendingConnection& pending) {
      if (!Advance(pending) || pending.deadline.Passed()) return true;
      if (pending.reader.whole()) Admit(pending);
      return pending.reader.whole();
    });
    if (fds[1].revents == 0) continue;
    const int fd = TakeConnection(listen_fd_);
    if (fd >= 0) {
      TuneSocket(fd);
      pending_connections.emplace_back(fd);
    } else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
      // The process may have too many open files, for example: wait instead of polling in a busy
      // loop.
      if (AwaitSignal(stop_signal_.fd(), Deadline(kAcceptPause))) return;
    }
  }
}

// Reads the part of a Hello that has arrived, and nothing after it. Returns false if it is not a
// Hello.
bool TcpLinks::Advance(PendingConnection& pending) {
  bool ready = config_->tls == nullptr || pending.handshake_done;
  if (!ready && !AdvanceTls(pending, &ready)) return false;
  while (ready && !pending.reader.whole()) {
    const absl::Span<char> wanted = pending.reader.Wanted();
    ptrdiff_t got = -1;
    if (pending.tls == nullptr) {
      got = recv(pending.fd.get(), wanted.data(), wanted.size(), MSG_DONTWAIT);
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    } else {
      TlsWant want = TlsWant::kNothing;
      got = pending.tls->Read(wanted.data(), wanted.size(), &want);
      if (got < 0 && want != TlsWant::kNothing) return true;
    }
    if (got <= 0 || !pending.reader.Wrote(static_cast<size_t>(got))) return false;
  }
  return true;
}

bool TcpLinks::AdvanceTls(PendingConnection& pending, bool* done) {
  while (pending.tls == nullptr) {
    char* const into = reinterpret_cast<char*>(&pending.tls_hello) + pending.tls_hello_read;
    const ssize_t got =
        recv(pending.fd.get(), into, sizeof(TlsHello) - pending.tls_hello_read, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (got <= 0) return false;
    pending.tls_hello_read += static_cast<size_t>(got);
    if (pending.tls_hello_read < sizeof(TlsHello)) continue;
    if (pending.tls_hello.magic != kTlsMagic || pending.tls_hello.version != kWireVersion) {
      TESSERA_LOG(WARNING) << "a peer connected without TLS"
                           << Field("generation", config_->generation);
      return false;
    }
    pending.tls = MakeTlsStream(*config_->tls, pending.fd.get(), /*connects=*/false);
  }
  TlsWant want = TlsWant::kNothing;
  pending.handshake_done = *done = pending.tls->Handshake(&want);
  pending.poll_events = want == TlsWant::kWrite ? POLLOUT : POLLIN;
  if (!pending.handshake_done && want == TlsWant::kNothing) {
    TESSERA_LOG(WARNING) << "a peer's TLS handshake ended" << Field("why", pending.tls->Reason());
    return false;
  }
  return true;
}

// Decides about a connection whose Hello is complete: checks the secret, the certificate and the
// Hello, answers, and hands the connection to the peer's thread. A peer without the secret gets no
// answer, so that it learns nothing of this cluster. A Hello of a later generation ends this
// communicator, because the communicator is then stale.
void TcpLinks::Admit(PendingConnection& pending) {
  const Hello& hello = pending.reader.hello();
  const std::string name = pending.reader.name();
  // A peer without the secret gets no answer.
  if (!ConstantTimeEquals(pending.reader.secret(), config_->secret)) {
    TESSERA_LOG(WARNING) << "a peer connected with a wrong secret"
                         << Field("generation", config_->generation);
    return;
  }
  if (pending.tls != nullptr && !pending.tls->PeerIs(WorkerOf(name))) {
    TESSERA_LOG(WARNING) << "a peer's certificate does not name its worker"
                         << Field("executor", name);
    return;
  }
  Peer* peer = nullptr;
  HelloAck ack;
  ack.code = ValidateHello(hello, name, &peer);
  ack.generation = config_->generation;
  iovec part = ToIovec(&ack, sizeof(ack));
  // The socket's buffer is empty, so the answer fits, or the peer is gone.
  if (!WriteAll(pending.fd.get(), pending.tls.get(), absl::MakeSpan(&part, 1),
                Deadline(absl::ZeroDuration()), stop_signal_.fd())) {
    return;
  }
  if (ack.code == HelloAckCode::kTooSoon) return FailGeneration(name, hello.generation);
  if (ack.code != HelloAckCode::kWelcome) return;
  absl::MutexLock lock(&peer->mu);
  peer->was_accepted = true;
  peer->accepted = {std::move(pending.fd), std::move(pending.tls)};
  peer->changed.SignalAll();
}

void TcpLinks::FailGeneration(const std::string& executor, uint64_t generation) {
  failure_->Set(MakeError(ErrorKind::kPeerFailed,
                          absl::StrCat("generation ", config_->generation, " is stale: executor ",
                                       executor, " is at generation ", generation)));
}

HelloAckCode TcpLinks::ValidateHello(const Hello& hello, const std::string& name, Peer** peer) {
  if (hello.generation < config_->generation) return HelloAckCode::kStale;
  if (hello.generation > config_->generation) return HelloAckCode::kTooSoon;
  const auto at = peers_.find(name);
  if (at == peers_.end() || name >= self_.executor) return HelloAckCode::kRefused;
  *peer = at->second.get();
  if (hello.from_incarnation != (*peer)->info.incarnation ||
      hello.to_incarnation != self_.incarnation) {
    return HelloAckCode::kRefused;
  }
  absl::MutexLock lock(&(*peer)->mu);
  return (*peer)->was_accepted ? HelloAckCode::kRefused : HelloAckCode::kWelcome;
}

}  // namespace tessera::worker
