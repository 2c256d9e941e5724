// Describes the build of a process (the version and revision of the source from which its binary
// was made) and chooses the protocol that two processes speak with each other.
//
// A coordinator and its workers may come from different builds. A protocol is a numbered set of
// rules for the messages of worker.proto; each number adds features that both sides have to know.
// When a worker registers, each side says which protocols it knows, and the coordinator chooses
// one. Builds that are older than this choice send no protocol numbers and speak protocol 1.
//
// Stateless; thread-safe.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tessera {

// 1  The protocol of builds that send no protocol numbers. An executor connects to the coordinator
//    only once, so its arrays are lost when that connection ends.
// 2  Executors outlive the connection: when they connect again, they send an inventory of their
//    arrays, and the coordinator acknowledges their reports. Daemons answer inquiries (requests of
//    the coordinator for diagnostics).
inline constexpr int32_t kProtocolMin = 1;
inline constexpr int32_t kProtocolMax = 2;
// The first protocol in which daemons answer inquiries.
inline constexpr int32_t kInquiryProtocol = 2;

// The defaults of the protocol numbers describe a peer that sends none.
struct Build {
  std::string version;   // "0.1.0"; empty if the peer sends no version
  std::string revision;  // "0123456789ab"
  int32_t protocol_min = 1;
  int32_t protocol_max = 1;
  bool operator==(const Build&) const = default;
};

// Returns the build of this process.
Build ThisBuild();

// Returns a text such as "0.1.0 (revision 0123456789ab)", or "an earlier build" if there is no
// version.
std::string BuildText(const Build& build);

// Returns the greatest protocol that both builds speak. Returns PROTOCOL_MISMATCH if there is none.
// The message then begins with `who`, for example "registration: worker w0", names both builds and
// says which one to upgrade.
absl::StatusOr<int32_t> ChooseProtocol(std::string_view who, const Build& coordinator,
                                       const Build& worker);

}  // namespace tessera
