#include "base/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstring>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace tessera {
namespace {

// The host of "host", "host:port", "[v6]" and "[v6]:port"; empty when it is none of these.
absl::string_view HostOf(absl::string_view address) {
  if (absl::StartsWith(address, "[")) {
    const size_t end = address.find(']');
    if (end == absl::string_view::npos) return "";
    const absl::string_view rest = address.substr(end + 1);
    return rest.empty() || rest[0] == ':' ? address.substr(1, end - 1) : "";
  }
  const size_t colon = address.find(':');
  // Two or more are an address of version 6 without brackets, and so without a port.
  if (colon != address.rfind(':')) return address;
  return address.substr(0, colon);
}

}  // namespace

bool IsLoopback(absl::string_view address) {
  if (absl::StartsWith(address, "unix:")) return true;
  const std::string host(HostOf(address));
  if (absl::AsciiStrToLower(host) == "localhost") return true;
  in_addr v4;
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  in6_addr v6;
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

}  // namespace tessera
