// Sends and receives messages over a stream socket. A message is sent as a frame: a 32-bit length
// and then that many bytes.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace tessera {

// The size in bytes of the largest message that either side accepts.
inline constexpr size_t kFrameBytesMax = size_t{1} << 30;

// Returns the header of a message of this size, which is sent before the message.
std::string FrameHeader(size_t message_bytes);
// Returns the header followed by the message.
std::string EncodeFrame(std::string_view message);
// Sends a message. Blocks until the socket has taken it. Returns false on an error. Only one thread
// at a time may write to a socket.
bool WriteFrame(int fd, std::string_view message);

// Splits received bytes, in chunks of any size, into messages.
class FrameParser {
 public:
  FrameParser() = default;
  explicit FrameParser(size_t frame_bytes_max) : frame_bytes_max_(frame_bytes_max) {}
  void Add(const char* bytes, size_t size) { buffer_.append(bytes, size); }
  // Returns the next message, or nullopt if its bytes have not all been added yet.
  std::optional<std::string> Next();
  bool broken() const { return broken_; }  // a message was longer than frame_bytes_max

 private:
  size_t frame_bytes_max_ = kFrameBytesMax;
  std::string buffer_;
  size_t begin_ = 0;  // start of the next frame in buffer_
  bool broken_ = false;
};

// Reads messages from a blocking socket with few system calls. Used by one thread at a time.
class FrameReader {
 public:
  explicit FrameReader(int fd) : fd_(fd) {}
  // Returns the next message. Blocks until it has arrived. Returns nullopt on an error or at the
  // end of the stream.
  std::optional<std::string> Next();

 private:
  const int fd_;
  FrameParser parser_;
};

}  // namespace tessera
