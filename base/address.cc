// Parses and checks the addresses that users give. The servers and clients call it before they
// listen or connect, so that a mistake is an error that names the address and the expected form,
// and not one of gRPC's guesses.
#include "base/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstring>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status.h"

namespace tessera {
namespace {

constexpr int kPortMax = 65535;

}  // namespace

// Tests the common mistakes one by one, each with a message of its own. A scheme other than
// "dns:///" and an IPv6 address without brackets are found before the text is split at its last
// colon, because both contain colons that do not precede a port.
absl::StatusOr<HostPort> ParseHostPort(absl::string_view address) {
  const auto wrong = [&](absl::string_view why) {
    return MakeError(ErrorKind::kValueError,
                     absl::StrCat("'", address.substr(0, 256), "': ", why,
                                  "; HOST:PORT is expected, such as 127.0.0.1:8470"));
  };
  absl::string_view rest = address;
  absl::ConsumePrefix(&rest, "dns:///");
  if (rest.empty()) return wrong("the address is empty");
  if (const size_t scheme = rest.find("://"); scheme != absl::string_view::npos)
    return wrong(absl::StrCat(rest.substr(0, scheme + 3), " does not belong to an address"));
  const size_t colon = rest.rfind(':');
  const size_t bracket = rest.rfind(']');
  const bool v6 = rest[0] == '[';
  if (!v6 && colon != rest.find(':'))
    return wrong("an IPv6 address has to be in brackets, such as [::1]:8470");
  if (colon == absl::string_view::npos ||
      (v6 && bracket != absl::string_view::npos && colon < bracket))
    return wrong("the port is missing");
  if (v6 && (bracket != colon - 1 || bracket == 1))
    return wrong("the brackets do not hold an IPv6 address");
  const absl::string_view host = v6 ? rest.substr(1, bracket - 1) : rest.substr(0, colon);
  if (host.empty()) return wrong("the host is missing");
  const absl::string_view port_text = rest.substr(colon + 1);
  if (port_text.empty()) return wrong("the port is missing");
  int port = 0;
  if (!absl::SimpleAtoi(port_text, &port) || port < 1 || port > kPortMax)
    return wrong(
        absl::StrCat("'", port_text, "' is not a port; a port is a number from 1 to ", kPortMax));
  return HostPort{std::string(host), absl::StrCat(port)};
}

absl::Status CheckAddress(absl::string_view address) {
  if (absl::StartsWith(address, "unix:")) return absl::OkStatus();
  return ParseHostPort(address).status();
}

absl::string_view WithoutPort(absl::string_view address) {
  if (absl::StartsWith(address, "[")) {
    const size_t end = address.find(']');
    if (end == absl::string_view::npos) return "";
    const absl::string_view rest = address.substr(end + 1);
    return rest.empty() || rest[0] == ':' ? address.substr(0, end + 1) : "";
  }
  const size_t colon = address.find(':');
  return colon == address.rfind(':') ? address.substr(0, colon) : address;
}

std::string WithBrackets(absl::string_view host) {
  return absl::StrContains(host, ':') ? absl::StrCat("[", host, "]") : std::string(host);
}

absl::string_view WithoutBrackets(absl::string_view host) {
  const bool bracketed = absl::StartsWith(host, "[") && absl::EndsWith(host, "]");
  return bracketed ? host.substr(1, host.size() - 2) : host;
}

bool IsLoopback(absl::string_view address) {
  if (absl::StartsWith(address, "unix:")) return true;
  const std::string host(WithoutBrackets(WithoutPort(address)));
  if (absl::AsciiStrToLower(host) == "localhost") return true;
  in_addr v4;
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  in6_addr v6;
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

}  // namespace tessera
