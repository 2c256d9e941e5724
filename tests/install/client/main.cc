// A user's program that is linked only with Tessera::client. It tries to reach a coordinator that
// does not run, and to start an embedded cluster, which is not linked. It exits with 0 if both are
// refused with an error that tells what to do.
#include <netinet/in.h>
#include <sys/socket.h>

#include <iostream>
#include <string>

#include "client/tessera.h"

namespace {

// Returns the address of a port that was free a moment ago, so that nobody listens on it.
std::string NobodysAddress() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  bind(fd, reinterpret_cast<sockaddr*>(&address), size);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
}

template <class Call>
bool IsRefused(Call call, const std::string& words) {
  try {
    call();
  } catch (const tessera::Error& error) {
    const std::string what = error.what();
    std::cout << what << "\n";
    return what.find(words) != std::string::npos;
  }
  std::cout << "it was not refused\n";
  return false;
}

}  // namespace

int main() {
  using tessera::Session;
  const std::string address = NobodysAddress();
  tessera::ConnectOptions options;
  options.timeout = absl::Seconds(1);
  const bool remote = IsRefused([&] { Session::Connect(address, options); },
                                "no coordinator answers at " + address);
  const bool embedded = IsRefused([] { Session::Embedded(); }, "Tessera::embedded");
  return remote && embedded ? 0 : 1;
}
