// Which build a process is, and which protocol two builds speak with each other.
//
// Coordinator and workers need not be of one build: each says which protocols it knows when a
// worker registers, and the coordinator chooses. Protocols are numbered; a greater one adds to
// worker.proto what a peer has to know of. A build from before that says nothing and speaks
// protocol 1.
//
// Stateless; thread-safe.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tessera {

// 1  What was there before builds said what they speak. An executor attaches once: its arrays are
//    lost with its connection to the coordinator.
// 2  Executors outlive the connection, with inventories and acknowledged reports; inquiries.
inline constexpr int32_t kProtocolMin = 1;
inline constexpr int32_t kProtocolMax = 2;
// From which on daemons answer inquiries.
inline constexpr int32_t kInquiryProtocol = 2;

// The numbers are those of a peer that says nothing.
struct Build {
  std::string version;   // "0.1.0"; empty: it does not say
  std::string revision;  // "0123456789ab"
  int32_t protocol_min = 1;
  int32_t protocol_max = 1;
  bool operator==(const Build&) const = default;
};

// That of this process.
Build ThisBuild();

// "0.1.0 (revision 0123456789ab)", or "an earlier build".
std::string BuildText(const Build& build);

// The greatest protocol that both speak. PROTOCOL_MISMATCH: there is none; the message, which
// begins with `who`, as "registration: worker w0", names both builds and says which to upgrade.
absl::StatusOr<int32_t> ChooseProtocol(std::string_view who, const Build& coordinator,
                                       const Build& worker);

}  // namespace tessera
