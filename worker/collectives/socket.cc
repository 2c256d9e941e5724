// Reads, writes and waits on non-blocking sockets, with and without TLS. TcpLinks and PeerPort use
// these functions for everything that they do with a connection. Every wait is a poll(2) of the
// socket together with a signal, so that it ends at a deadline or when its owner stops.
#include "worker/collectives/socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace tessera::worker {
namespace {

bool WouldBlock(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

// Waits for events of `fd`. Returns false at the deadline, or once `stop_fd` is raised.
bool AwaitEvents(int fd, int16_t events, const Deadline& deadline, int stop_fd) {
  while (true) {
    pollfd fds[] = {{fd, events, 0}, {stop_fd, POLLIN, 0}};
    const int ready = poll(fds, 2, deadline.PollMillis());
    if (ready < 0 && errno != EINTR) return false;
    if (ready > 0) return fds[1].revents == 0;
    if (ready == 0 && deadline.Passed()) return false;
  }
}

absl::Status Unavailable(const std::string& endpoint, absl::string_view reason) {
  return absl::UnavailableError(absl::StrCat(endpoint, ": ", reason));
}

// Removes the bytes that have been written from the front of `parts`.
absl::Span<iovec> Advance(absl::Span<iovec> parts, size_t written) {
  while (!parts.empty() && written >= parts[0].iov_len) {
    written -= parts[0].iov_len;
    parts[0].iov_len = 0;
    parts.remove_prefix(1);
  }
  if (!parts.empty()) {
    parts[0].iov_base = static_cast<char*>(parts[0].iov_base) + written;
    parts[0].iov_len -= written;
  }
  return parts;
}

absl::StatusOr<UniqueFd> ConnectTo(const addrinfo& address, const std::string& endpoint,
                                   const Deadline& deadline, int stop_fd) {
  UniqueFd fd(socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.ok()) return Unavailable(endpoint, std::strerror(errno));
  if (connect(fd.get(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return Unavailable(endpoint, std::strerror(errno));
    if (!AwaitEvents(fd.get(), POLLOUT, deadline, stop_fd)) {
      return Unavailable(endpoint, "no answer in time");
    }
    int error = 0;
    socklen_t size = sizeof(error);
    getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return Unavailable(endpoint, std::strerror(error));
  }
  TuneSocket(fd.get());
  return fd;
}

bool AwaitTls(int fd, TlsWant want, const Deadline& deadline, int stop_fd) {
  return want != TlsWant::kNothing &&
         AwaitEvents(fd, want == TlsWant::kRead ? POLLIN : POLLOUT, deadline, stop_fd);
}

// Copies small parts into one TLS record, which saves system calls and overhead.
bool WriteTls(int fd, TlsStream& tls, absl::Span<iovec> parts, const Deadline& deadline,
              int stop_fd) {
  constexpr size_t kRecordBytes = 16 << 10;
  char record[kRecordBytes];
  parts = Advance(parts, 0);
  while (!parts.empty()) {
    const void* from = parts[0].iov_base;
    size_t size = parts[0].iov_len;
    if (parts.size() > 1 && size < kRecordBytes) {
      size = 0;
      for (const iovec& part : parts) {
        const size_t copied = std::min(part.iov_len, kRecordBytes - size);
        if (copied == 0) continue;  // an empty part may have a null address
        std::memcpy(record + size, part.iov_base, copied);
        size += copied;
      }
      from = record;
    }
    TlsWant want = TlsWant::kNothing;
    ptrdiff_t put = tls.Write(from, size, &want);
    while (put < 0 && AwaitTls(fd, want, deadline, stop_fd)) put = tls.Write(from, size, &want);
    if (put <= 0) return false;
    parts = Advance(parts, static_cast<size_t>(put));
  }
  return true;
}

}  // namespace

Signal::Signal() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void Signal::Raise() {
  const uint64_t one = 1;
  // The write fails only if the counter is full, and then the signal is already raised.
  [[maybe_unused]] const ssize_t written = write(fd_.get(), &one, sizeof(one));
}

ptrdiff_t BufferedReader::Receive(std::byte* into, size_t size) {
  while (tls_ != nullptr) {
    TlsWant want = TlsWant::kNothing;
    const ptrdiff_t got = tls_->Read(into, size, &want);
    if (got >= 0) return got;
    if (want == TlsWant::kNothing) {
      tls_reason_ = tls_->Reason();
      return -1;
    }
    pollfd wait = {fd_, static_cast<int16_t>(want == TlsWant::kRead ? POLLIN : POLLOUT), 0};
    poll(&wait, 1, /*timeout=*/-1);
  }
  while (true) {
    const ssize_t got = recv(fd_, into, size, 0);
    if (got >= 0) return got;
    if (errno == EINTR) continue;
    if (WouldBlock(errno)) {
      pollfd wait = {fd_, POLLIN, 0};
      poll(&wait, 1, /*timeout=*/-1);  // the owner ends this wait by shutting the socket down
      continue;
    }
    error_ = errno;
    return -1;
  }
}

bool BufferedReader::Read(void* into, size_t size) {
  auto* at = static_cast<std::byte*>(into);
  while (size > 0) {
    if (begin_ < end_) {
      const size_t copied = std::min(size, end_ - begin_);
      std::memcpy(at, buffer_.get() + begin_, copied);
      begin_ += copied;
      at += copied;
      size -= copied;
    } else if (size >= kBufferBytes) {
      const ptrdiff_t got = Receive(at, size);
      if (got <= 0) return false;
      at += got;
      size -= got;
    } else {
      const ptrdiff_t got = Receive(buffer_.get(), kBufferBytes);
      if (got <= 0) return false;
      begin_ = 0;
      end_ = got;
    }
  }
  return true;
}

std::string BufferedReader::Reason() const {
  if (!tls_reason_.empty()) return tls_reason_;
  return error_ == 0 ? "it closed the connection" : std::strerror(error_);
}

bool Handshake(int fd, TlsStream& tls, const Deadline& deadline, int stop_fd) {
  TlsWant want = TlsWant::kNothing;
  while (!tls.Handshake(&want)) {
    if (!AwaitTls(fd, want, deadline, stop_fd)) return false;
  }
  return true;
}

bool WriteAll(int fd, TlsStream* tls, absl::Span<iovec> parts, const Deadline& deadline,
              int stop_fd) {
  if (tls != nullptr) return WriteTls(fd, *tls, parts, deadline, stop_fd);
  parts = Advance(parts, 0);
  while (!parts.empty()) {
    msghdr message = {};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    const ssize_t written = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (written >= 0) {
      parts = Advance(parts, written);
    } else if (WouldBlock(errno)) {
      if (!AwaitEvents(fd, POLLOUT, deadline, stop_fd)) return false;
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

bool ReadAll(int fd, TlsStream* tls, void* into, size_t size, const Deadline& deadline,
             int stop_fd) {
  auto* at = static_cast<std::byte*>(into);
  while (size > 0 && tls != nullptr) {
    TlsWant want = TlsWant::kNothing;
    const ptrdiff_t got = tls->Read(at, size, &want);
    if (got == 0 || (got < 0 && !AwaitTls(fd, want, deadline, stop_fd))) return false;
    at += std::max<ptrdiff_t>(got, 0);
    size -= static_cast<size_t>(std::max<ptrdiff_t>(got, 0));
  }
  while (size > 0) {
    const ssize_t got = recv(fd, at, size, MSG_DONTWAIT);
    if (got > 0) {
      at += got;
      size -= got;
    } else if (got < 0 && WouldBlock(errno)) {
      if (!AwaitEvents(fd, POLLIN, deadline, stop_fd)) return false;
    } else if (got == 0 || errno != EINTR) {
      return false;
    }
  }
  return true;
}

bool AwaitSignal(int stop_fd, const Deadline& deadline) {
  while (true) {
    pollfd wait = {stop_fd, POLLIN, 0};
    if (poll(&wait, 1, deadline.PollMillis()) > 0) return true;
    if (deadline.Passed()) return false;
  }
}

absl::StatusOr<UniqueFd> Connect(const std::string& endpoint, const Deadline& deadline,
                                 int stop_fd) {
  const size_t colon = endpoint.rfind(':');
  if (colon == std::string::npos) return Unavailable(endpoint, "expected host:port");
  std::string host = endpoint.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host.c_str(), endpoint.c_str() + colon + 1, &hints, &list);
  if (error != 0) return Unavailable(endpoint, gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(list, &freeaddrinfo);
  absl::StatusOr<UniqueFd> fd = Unavailable(endpoint, "no address");
  for (const addrinfo* address = list; address != nullptr && !fd.ok(); address = address->ai_next) {
    fd = ConnectTo(*address, endpoint, deadline, stop_fd);
  }
  return fd;
}

void TuneSocket(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
}

}  // namespace tessera::worker
