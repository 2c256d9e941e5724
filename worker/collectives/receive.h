// The reading side of what peers send, without sockets: whoever reads brings the bytes.
//
// A peer is trusted with nothing: every length is checked against wire.h before memory is taken for
// it, and every rank against the members. HelloReader is a value of one thread. DeliverFrame may be
// called by the readers of several connections at once.
#pragma once
#include <cstddef>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/collectives/collectives.h"
#include "worker/collectives/failure.h"
#include "worker/collectives/mailbox.h"
#include "worker/collectives/wire.h"

namespace tessera::worker {

// A hello that comes in pieces.
class HelloReader {
 public:
  // Where the next bytes go; empty once it is whole. Valid until Took.
  absl::Span<char> Wanted();
  // `size` of the wanted bytes have come, 1 at least. False if this is no hello.
  bool Took(size_t size);

  bool whole() const { return read_ >= sizeof(Hello) && read_ == sizeof(Hello) + text_.size(); }
  // The rest is for one that is whole.
  const Hello& hello() const { return hello_; }
  std::string name() const { return text_.substr(0, hello_.name_length); }
  absl::string_view secret() const { return absl::string_view(text_).substr(hello_.name_length); }

 private:
  Hello hello_;
  std::string text_;  // Name, then secret.
  size_t read_ = 0;   // Of both.
};

// What is wrong with the header of a frame, or "".
std::string FrameFault(const FrameHeader& header, uint64_t generation);

// Reads one frame. `source` has bool Read(void* into, size_t size), which reads all or fails, and
// std::string Reason(), which says why. Returns why there is no frame, or "".
template <class Source>
std::string ReadFrame(Source& source, uint64_t generation, Frame* frame) {
  FrameHeader& header = frame->header;
  if (!source.Read(&header, sizeof(header))) return source.Reason();
  std::string fault = FrameFault(header, generation);
  if (!fault.empty()) return fault;
  frame->label.resize(header.label_length);
  if (!source.Read(frame->label.data(), frame->label.size())) return source.Reason();
  frame->payload.reset(new std::byte[header.length]);
  if (!source.Read(frame->payload.get(), header.length)) return source.Reason();
  return "";
}

// Gives a frame that the executor of `sender` sent to whom it is for: the latch, or a mailbox
// (`mailboxes` is by rank, null where not local). Returns what was wrong with it, or "".
std::string DeliverFrame(const CommunicatorConfig& config, const Member& sender,
                         absl::Span<Mailbox* const> mailboxes, FailureLatch* failure, Frame frame);

}  // namespace tessera::worker
