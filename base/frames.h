// Messages over a stream socket: a 32-bit length, then that many bytes.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace tessera {

// The largest message either side accepts.
inline constexpr size_t kFrameBytesMax = size_t{1} << 30;

// The length of a message, which goes before it.
std::string FrameHeader(size_t message_bytes);
// Prepends the length.
std::string EncodeFrame(std::string_view message);
// Blocks; false on an error. One thread at a time.
bool WriteFrame(int fd, std::string_view message);

// Splits received bytes, in chunks of any size, into messages.
class FrameParser {
 public:
  FrameParser() = default;
  explicit FrameParser(size_t frame_bytes_max) : frame_bytes_max_(frame_bytes_max) {}
  void Add(const char* bytes, size_t size) { buffer_.append(bytes, size); }
  std::optional<std::string> Next();
  bool broken() const { return broken_; }  // a length exceeded frame_bytes_max

 private:
  size_t frame_bytes_max_ = kFrameBytesMax;
  std::string buffer_;
  size_t begin_ = 0;  // of the next frame in buffer_
  bool broken_ = false;
};

// Reads messages from a blocking socket, with few system calls. One thread at a time.
class FrameReader {
 public:
  explicit FrameReader(int fd) : fd_(fd) {}
  // nullopt on an error or at the end of the stream.
  std::optional<std::string> Next();

 private:
  const int fd_;
  FrameParser parser_;
};

}  // namespace tessera
