// Reads the input as the bytes of a peer's connection: a hello, then frames. A call of a rank then
// takes the frames from its mailbox. The first byte of the input is the size of the pieces in which
// the hello arrives.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "worker/collectives/call.h"
#include "worker/collectives/exchange.h"
#include "worker/collectives/receive.h"
#include "worker/collectives/tcp.h"

namespace tessera::worker {
namespace {

constexpr uint64_t kGeneration = 7;
constexpr size_t kMessageBytes = 64;

// A connection whose bytes lie in memory.
class Stream {
 public:
  Stream(const uint8_t* data, size_t size) : data_(data), left_(size) {}
  bool Read(void* into, size_t size) {
    if (size > left_) return false;
    if (size > 0) std::memcpy(into, data_, size);
    data_ += size;
    left_ -= size;
    return true;
  }
  std::string Reason() const { return "it closed the connection"; }
  size_t left() const { return left_; }

 private:
  const uint8_t* data_;
  size_t left_;
};

// Returns false if the bytes are not a hello.
bool ReadHello(Stream& stream, size_t piece) {
  HelloReader reader;
  while (!reader.whole()) {
    const absl::Span<char> wanted = reader.Wanted();
    TESSERA_CHECK(!wanted.empty());
    const size_t size = std::min({piece, wanted.size(), stream.left()});
    if (size == 0 || !stream.Read(wanted.data(), size)) return false;
    if (!reader.Wrote(size)) return false;
  }
  TESSERA_CHECK(reader.name().size() <= kMaxNameBytes && !reader.name().empty());
  TESSERA_CHECK(reader.secret().size() <= kMaxSecretBytes);
  return true;
}

const CommunicatorConfig& Config() {
  static const auto* const config = [] {
    auto* c = new CommunicatorConfig;
    c->generation = kGeneration;
    c->ranks = {{0, "a", 1, "127.0.0.1:1", "host-a"}, {1, "b", 2, "127.0.0.1:2", "host-b"}};
    c->local_ranks = {0};
    c->secret = "secret";
    c->timeout = absl::Seconds(1);
    c->has_launch = [](uint64_t launch) { return launch == 3; };
    return c;
  }();
  return *config;
}

// Makes one call in which rank 0 receives from rank 1, whose frames are in `mailbox`.
void Receive(Mailbox& mailbox, const FailureLatch& failure) {
  // The links are never started, so they have no threads and reach nobody.
  static FailureLatch* const links_failure = new FailureLatch;
  static TcpLinks* const links = new TcpLinks(&Config(), -1, links_failure, {nullptr, nullptr});
  LocalRendezvous rendezvous(&Config(), &failure);
  InterProcExchange exchange(&Config(), &failure, {&mailbox, nullptr}, links, &rendezvous);
  const int group[] = {0, 1};
  const PermutePair pairs[] = {{/*source=*/1, /*target=*/0}};
  const CallKey key = {/*launch=*/3, /*op_sequence=*/5, "ppermute at model.cc:41", "main"};
  const std::vector<std::byte> in(kMessageBytes);
  std::vector<std::byte> out(kMessageBytes);
  CheckedCall call({.kind = ir::CollectiveKind::kPermute,
                    .group = group,
                    .key = key,
                    .in = in,
                    .out = absl::MakeSpan(out),
                    .pairs = pairs});
  const absl::Status valid = Validate(Config(), call);
  TESSERA_CHECK(valid.ok()) << valid;
  call.fingerprint = 0;  // a fixed value, so that inputs can contain frames that match the call
  static_cast<void>(exchange.Run(call, Deadline(absl::ZeroDuration())));
}

}  // namespace
}  // namespace tessera::worker

// Feeds one input to the hello reader and then frame by frame to a mailbox, and checks that the
// mailbox never holds more than the window. An input without a valid hello is read as frames,
// because random inputs seldom begin with one.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera::worker;
  if (size == 0) return 0;
  Stream stream(data + 1, size - 1);
  if (!ReadHello(stream, 1 + data[0])) {
    // All bytes after the first are then read as frames.
    stream = Stream(data + 1, size - 1);
  }
  FailureLatch failure;
  Mailbox mailbox;
  Mailbox* const mailboxes[] = {&mailbox, nullptr};
  int64_t kept_bytes = 0;
  while (true) {
    Frame frame;
    if (!ReadFrame(stream, kGeneration, &frame).empty()) break;
    const bool data_frame = frame.header.type == FrameType::kData;
    const int64_t cost = frame.Cost();
    std::optional<FrameHeader> answer;
    const std::string fault =
        DeliverFrame(Config(), Config().ranks[1], mailboxes, &failure, std::move(frame), &answer);
    TESSERA_CHECK(!answer || (answer->from == 0 && answer->to == 1)) << answer->from;
    if (!fault.empty()) break;
    if (data_frame) kept_bytes += cost;
    TESSERA_CHECK(kept_bytes <= kWindowBytes) << kept_bytes;
  }
  Receive(mailbox, failure);
  return 0;
}
