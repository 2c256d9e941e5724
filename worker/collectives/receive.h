// Parses the bytes that peers send, independently of sockets.
//
// Peers are not trusted: every length is checked against wire.h before memory is allocated for it,
// and every rank against the configuration. HelloReader is thread-compatible. DeliverFrame may be
// called by the readers of several connections at once.
#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/collectives/collectives.h"
#include "worker/collectives/failure.h"
#include "worker/collectives/mailbox.h"
#include "worker/collectives/wire.h"

namespace tessera::worker {

// Parses a hello that arrives in pieces.
class HelloReader {
 public:
  // The memory for the next bytes; empty once the hello is complete. Valid until Wrote is called.
  absl::Span<char> Wanted();
  // Call when `size` >= 1 of the wanted bytes have been written. Returns false if the bytes are not
  // a hello.
  bool Wrote(size_t size);

  bool whole() const { return read_ >= sizeof(Hello) && read_ == sizeof(Hello) + text_.size(); }
  // The functions below require whole().
  const Hello& hello() const { return hello_; }
  std::string name() const { return text_.substr(0, hello_.name_length); }
  absl::string_view secret() const { return absl::string_view(text_).substr(hello_.name_length); }

 private:
  Hello hello_;
  std::string text_;  // the name, then the secret
  size_t read_ = 0;   // number of bytes read of the hello and of the text
};

// Returns the header of a question or an answer about a launch. It has neither label nor payload.
FrameHeader LaunchQueryFrame(const CommunicatorConfig& config, LaunchQuery query, uint64_t launch,
                             int from, int to);

// Returns the error of an invalid frame header, or "" if the header is valid.
std::string FrameFault(const FrameHeader& header, uint64_t generation);

// Reads one frame. `source` has two functions: bool Read(void* into, size_t size) reads all bytes
// or fails, and std::string Reason() says why it failed. Returns the error, or "".
template <class Source>
std::string ReadFrame(Source& source, uint64_t generation, Frame* frame) {
  FrameHeader& header = frame->header;
  if (!source.Read(&header, sizeof(header))) return source.Reason();
  std::string fault = FrameFault(header, generation);
  if (!fault.empty()) return fault;
  frame->label.resize(header.label_length);
  if (!source.Read(frame->label.data(), frame->label.size())) return source.Reason();
  frame->payload.reset(new std::byte[header.payload_length]);
  if (!source.Read(frame->payload.get(), header.payload_length)) return source.Reason();
  return "";
}

// Delivers a frame from the executor of `sender` to the latch or to a mailbox. `mailboxes` is by
// rank, and null for ranks that are not local. Sets `*answer` if the frame is a question that the
// caller must answer with a frame of this header. Returns the error of an invalid frame, or "".
std::string DeliverFrame(const CommunicatorConfig& config, const RankInfo& sender,
                         absl::Span<Mailbox* const> mailboxes, FailureLatch* failure, Frame frame,
                         std::optional<FrameHeader>* answer);

}  // namespace tessera::worker
