// Parses and checks the bytes of a peer's connection. The threads of TcpLinks (tcp.cc) call these
// functions with the bytes that they read, and the fuzzer with bytes from memory. Frames go to a
// mailbox or, if they report a failure, to the failure latch.
#include "worker/collectives/receive.h"

#include <utility>

#include "base/status.h"

namespace tessera::worker {
namespace {

// Converts a failure that a peer has sent. Failures of collectives keep their kind and message; all
// others become PEER_FAILED.
absl::Status FailureFromPeer(const RankInfo& sender, const std::string& reason,
                             const std::string& message) {
  for (const ErrorKind kind :
       {ErrorKind::kCollectiveTimeout, ErrorKind::kWorkerLost, ErrorKind::kPeerFailed}) {
    if (reason == InfoOf(kind).reason) return MakeError(kind, message);
  }
  return MakeError(ErrorKind::kPeerFailed, absl::StrCat("executor ", sender.executor, " on host ",
                                                        sender.host, " failed first: ", message));
}

}  // namespace

absl::Span<char> HelloReader::Wanted() {
  if (read_ < sizeof(Hello)) {
    return {reinterpret_cast<char*>(&hello_) + read_, sizeof(Hello) - read_};
  }
  return absl::MakeSpan(text_).subspan(read_ - sizeof(Hello));
}

bool HelloReader::Wrote(size_t size) {
  const bool had_head = read_ >= sizeof(Hello);
  read_ += size;
  if (had_head || read_ < sizeof(Hello)) return true;
  if (hello_.magic != kHelloMagic || hello_.version != kWireVersion || hello_.name_length == 0 ||
      hello_.name_length > kMaxNameBytes || hello_.secret_length > kMaxSecretBytes) {
    return false;
  }
  text_.resize(hello_.name_length + hello_.secret_length);
  return true;
}

FrameHeader LaunchQueryFrame(const CommunicatorConfig& config, LaunchQuery query, uint64_t launch,
                             int from, int to) {
  FrameHeader header;
  header.type = FrameType::kCredit;
  header.phase = static_cast<uint16_t>(query);
  header.generation = config.generation;
  header.launch = launch;
  header.from = static_cast<uint32_t>(from);
  header.to = static_cast<uint32_t>(to);
  return header;
}

std::string FrameFault(const FrameHeader& header, uint64_t generation) {
  if (header.magic != kFrameMagic || header.payload_length > kMaxPayloadBytes ||
      header.label_length > kMaxLabelBytes) {
    return "it sent a malformed frame";
  }
  if (header.generation != generation) {
    return absl::StrCat("it sent a frame of generation ", header.generation, ", this is ",
                        generation);
  }
  return "";
}

// Delivers one frame by its type: failures go to the latch, credit and data to the mailbox of the
// receiving rank. A question about a launch is answered only if the launch was not received. The
// peer is not trusted. The sending rank must belong to the executor at the other end of the
// connection, the receiving rank must be local, and credit and data must stay within the window.
// The caller closes the connection if an error is returned.
std::string DeliverFrame(const CommunicatorConfig& config, const RankInfo& sender,
                         absl::Span<Mailbox* const> mailboxes, FailureLatch* failure, Frame frame,
                         std::optional<FrameHeader>* answer) {
  const FrameHeader& header = frame.header;
  if (header.type == FrameType::kAbort) {
    const std::string message(reinterpret_cast<const char*>(frame.payload.get()),
                              header.payload_length);
    failure->Set(FailureFromPeer(sender, frame.label, message));
    return "";
  }
  if (header.type == FrameType::kAbortLaunch) {
    const std::string message(reinterpret_cast<const char*>(frame.payload.get()),
                              header.payload_length);
    failure->SetLaunchFailure(header.launch, FailureFromPeer(sender, frame.label, message),
                              FailureLatch::From::kPeer);
    return "";
  }
  const size_t ranks = mailboxes.size();
  if (header.from >= ranks || header.to >= ranks || mailboxes[header.to] == nullptr ||
      config.ranks[header.from].executor != sender.executor) {
    return absl::StrCat("it sent a frame from rank ", header.from, " to rank ", header.to,
                        ", but they are not a rank of the sender and a rank of this executor");
  }
  const int from = static_cast<int>(header.from);
  Mailbox& mailbox = *mailboxes[header.to];
  if (header.type == FrameType::kCredit) {
    const bool owed = header.byte_count <= static_cast<uint64_t>(kWindowBytes) &&
                      mailbox.ReturnCredit(from, static_cast<int64_t>(header.byte_count));
    if (!owed) return "it returned more credit than was used";
    if (header.phase == static_cast<uint16_t>(LaunchQuery::kNotReceived)) {
      mailbox.DeliverNotReceived(header.launch);
    } else if (header.phase == static_cast<uint16_t>(LaunchQuery::kAsk) &&
               config.has_launch != nullptr && !config.has_launch(header.launch)) {
      *answer = LaunchQueryFrame(config, LaunchQuery::kNotReceived, header.launch,
                                 static_cast<int>(header.to), from);
    }
    return "";
  }
  if (header.type != FrameType::kData) return "it sent a frame of unknown type";
  return mailbox.Deliver(from, std::move(frame)) ? "" : "it sent more than its window";
}

}  // namespace tessera::worker
