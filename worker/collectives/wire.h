// The wire format between two executors: a handshake, then frames. It is little-endian, with
// headers of fixed size.
//
// connector: Hello, name, secret.   acceptor: HelloAck.   then both: FrameHeader, label, payload.
// The connector is the executor that opens the connection, and the acceptor is the other one. With
// TLS the connector first sends a TlsHello in plaintext, from which the acceptor learns to which
// communicator the connection belongs; everything after it is encrypted. Readers check every length
// against the limits here before they allocate memory.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace tessera::worker {

static_assert(std::endian::native == std::endian::little, "headers are sent as they lie in memory");

inline constexpr uint32_t kHelloMagic = 0x48435354;  // "TSCH"
inline constexpr uint32_t kTlsMagic = 0x54435354;    // "TSCT"
inline constexpr uint32_t kFrameMagic = 0x46435354;  // "TSCF"
inline constexpr uint16_t kWireVersion = 3;

inline constexpr size_t kMaxPayloadBytes = 256 << 10;
inline constexpr size_t kMaxLabelBytes = 1024;
inline constexpr size_t kMaxLaunchErrorBytes = 2048;  // largest payload of a kAbortLaunch frame
inline constexpr size_t kMaxNameBytes = 256;
inline constexpr size_t kMaxSecretBytes = 256;

// The flow-control window: the number of unconsumed bytes that a rank may have sent to another. It
// bounds the memory of a mailbox. A frame counts as its payload plus kFrameCostBytes.
inline constexpr int64_t kWindowBytes = 4 << 20;
inline constexpr int64_t kFrameCostBytes = 256;

struct Hello {
  uint32_t magic = kHelloMagic;
  uint16_t version = kWireVersion;
  uint16_t name_length = 0;
  uint32_t secret_length = 0;
  uint32_t reserved = 0;
  uint64_t generation = 0;
  uint64_t from_incarnation = 0;
  uint64_t to_incarnation = 0;
};
static_assert(sizeof(Hello) == 40);

struct TlsHello {
  uint32_t magic = kTlsMagic;
  uint16_t version = kWireVersion;
  uint16_t reserved = 0;
  uint64_t generation = 0;
};
static_assert(sizeof(TlsHello) == 16);

enum class HelloAckCode : uint32_t {
  kWelcome,
  kStale,    // The acceptor is at a later generation. The connector gives up.
  kTooSoon,  // The acceptor is at an earlier generation. The connector tries again.
  // The connector is not a member, either incarnation is wrong, or the acceptor already has a
  // connection of the connector. The connector tries again.
  kRefused,
};

struct HelloAck {
  uint32_t magic = kHelloMagic;
  HelloAckCode code = HelloAckCode::kRefused;
  uint64_t generation = 0;
};
static_assert(sizeof(HelloAck) == 16);

enum class FrameType : uint8_t {
  kData = 1,
  // Rank `from` has consumed `byte_count` bytes that rank `to` sent. `phase` is a LaunchQuery.
  kCredit,
  kAbort,        // the sender's first failure; the label is its reason, the payload its message
  kAbortLaunch,  // like kAbort, for the failure of `launch` only; other launches go on
};

// A question or an answer about `launch`, in `phase` of a kCredit frame of no bytes. An executor of
// an earlier build takes such a frame as credit of no bytes, and gives no answer.
enum class LaunchQuery : uint16_t {
  kNone,
  kAsk,          // whether the executor of rank `to` has received the launch
  kNotReceived,  // the executor of rank `from` has not received it; no answer means that it has
};

struct FrameHeader {
  uint32_t magic = kFrameMagic;
  FrameType type = FrameType::kData;
  uint8_t call_kind = 0;  // the call_ fields describe the sender's call, for checks and errors
  uint8_t call_reduce = 0;
  uint8_t call_dtype = 0;
  uint64_t generation = 0;
  uint64_t launch = 0;
  uint64_t call_fingerprint = 0;
  uint64_t call_bytes = 0;
  // kData: size of the whole message, which may take several frames. kCredit: bytes consumed.
  uint64_t byte_count = 0;
  uint64_t offset = 0;  // offset of the payload in the message
  uint32_t op_sequence = 0;
  uint32_t from = 0;
  uint32_t to = 0;
  uint32_t payload_length = 0;
  uint16_t label_length = 0;
  // kData: phase of the call, which is 1 for the all-gather of a large all-reduce and otherwise 0.
  // kCredit: a LaunchQuery.
  uint16_t phase = 0;
  uint32_t call_group_size = 0;
};
static_assert(sizeof(FrameHeader) == 80);

// Compares in a time that depends on the lengths and not on the bytes.
inline bool ConstantTimeEquals(absl::string_view a, absl::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  }
  return difference == 0;
}

}  // namespace tessera::worker
