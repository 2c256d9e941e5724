// Describes the build of a process and chooses the protocol between two builds.
//
// A coordinator and its workers may come from different builds. When a worker registers, each side
// says which protocols it knows, and the coordinator chooses one. Protocols are numbered. A greater
// number adds features of worker.proto that a peer has to know about. A build that is older than
// this mechanism sends no protocol numbers and speaks protocol 1.
//
// Stateless; thread-safe.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tessera {

// 1  The protocol of builds that send no protocol numbers. An executor attaches only once, so its
//    arrays are lost when its connection to the coordinator ends.
// 2  Executors outlive the connection: they send inventories, and their reports are acknowledged.
//    Daemons answer inquiries.
inline constexpr int32_t kProtocolMin = 1;
inline constexpr int32_t kProtocolMax = 2;
// The first protocol in which daemons answer inquiries.
inline constexpr int32_t kInquiryProtocol = 2;

// The default protocol numbers are right for a peer that sends none.
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
