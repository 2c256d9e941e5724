// The sockets of `tessera doctor`, which finds out at which step a connection fails. The functions
// report the system's own error, which gRPC would hide.
#include "client/cli/net.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/unique_fd.h"

namespace tessera::cli {
namespace {

constexpr size_t kMaxBodyBytes = 64 << 10;

// Waits until the descriptor is ready for `events`. Returns false at `deadline` or on an error.
bool AwaitReady(int fd, short events, absl::Time deadline) {  // NOLINT(google-runtime-int)
  while (true) {
    pollfd entry{fd, events, 0};
    const int64_t ms = absl::ToInt64Milliseconds(deadline - SteadyNow());
    if (ms <= 0) return false;
    const int got = poll(&entry, 1, static_cast<int>(std::min<int64_t>(ms, 1000)));
    if (got > 0) return true;
    if (got < 0 && errno != EINTR) return false;
  }
}

// Connects to the first address of the host that accepts. The socket does not block, so that the
// deadline also bounds a connection attempt that gets no answer. The error is that of the last
// address that was tried.
absl::StatusOr<UniqueFd> Open(const HostPort& target, absl::Duration timeout) {
  const std::string where = absl::StrCat(target.host, ":", target.port);
  const absl::Time deadline = SteadyNow() + timeout;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(target.host.c_str(), target.port.c_str(), &hints, &found);
      error != 0) {
    return absl::UnavailableError(absl::StrCat(where, ": ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(found, freeaddrinfo);
  std::string reason = "no address";
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    UniqueFd s(socket(a->ai_family, a->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, a->ai_protocol));
    if (!s.ok()) continue;
    int error = connect(s.get(), a->ai_addr, a->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      socklen_t size = sizeof(error);
      if (!AwaitReady(s.get(), POLLOUT, deadline)) {
        reason = absl::StrCat("no answer within ", absl::FormatDuration(timeout));
        continue;
      }
      getsockopt(s.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (error == 0) return s;
    reason = std::strerror(error);
  }
  return absl::UnavailableError(absl::StrCat(where, ": ", reason));
}

}  // namespace

absl::Status TryConnect(const HostPort& target, absl::Duration timeout) {
  return Open(target, timeout).status();
}

// Speaks HTTP/1.0, in which the server closes the connection after its response. So the response
// ends where the connection ends, and neither chunks nor lengths need to be read.
absl::StatusOr<HttpResponse> HttpGet(const std::string& url, absl::Duration timeout) {
  const absl::Time deadline = SteadyNow() + timeout;
  absl::string_view rest = url;
  absl::ConsumePrefix(&rest, "http://");
  const size_t slash = rest.find('/');
  const std::string authority(rest.substr(0, slash));
  const std::string path = slash == absl::string_view::npos ? "/" : std::string(rest.substr(slash));
  TESSERA_ASSIGN_OR_RETURN(const HostPort target, ParseHostPort(authority));
  TESSERA_ASSIGN_OR_RETURN(const UniqueFd s, Open(target, timeout));
  std::string out = absl::StrCat("GET ", path, " HTTP/1.0\r\nHost: ", authority, "\r\n\r\n");
  while (!out.empty()) {
    if (!AwaitReady(s.get(), POLLOUT, deadline)) {
      return absl::UnavailableError(absl::StrCat(url, ": no answer in time"));
    }
    const ssize_t sent = send(s.get(), out.data(), out.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) {
      return absl::UnavailableError(absl::StrCat(url, ": ", std::strerror(errno)));
    }
    out.erase(0, static_cast<size_t>(std::max<ssize_t>(sent, 0)));
  }
  std::string in;
  while (in.size() < kMaxBodyBytes) {
    if (!AwaitReady(s.get(), POLLIN, deadline)) {
      return absl::UnavailableError(absl::StrCat(url, ": no answer in time"));
    }
    char bytes[4096];
    const ssize_t got = recv(s.get(), bytes, sizeof(bytes), 0);
    if (got == 0) break;
    if (got < 0 && errno != EAGAIN && errno != EINTR) {
      return absl::UnavailableError(absl::StrCat(url, ": ", std::strerror(errno)));
    }
    if (got > 0) in.append(bytes, static_cast<size_t>(got));
  }
  HttpResponse response;
  const size_t blank = in.find(' ');
  if (!absl::StartsWith(in, "HTTP/") || blank == std::string::npos ||
      !absl::SimpleAtoi(in.substr(blank + 1, 3), &response.code)) {
    return absl::UnavailableError(absl::StrCat(url, ": the server does not speak HTTP"));
  }
  if (const size_t body = in.find("\r\n\r\n"); body != std::string::npos) {
    response.body = in.substr(body + 4);
  }
  return response;
}

}  // namespace tessera::cli
