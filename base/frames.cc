// Splits a byte stream between two processes of one machine into messages: between a worker's
// daemon and its executors, and between the coordinator and its jailed processes.
#include "base/frames.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

namespace tessera {
namespace {

// The length is sent in the machine's byte order, because both ends are processes of one machine.
using Length = uint32_t;

bool SendAll(int fd, const char* bytes, size_t size) {
  while (size > 0) {
    const ssize_t sent = send(fd, bytes, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes += sent;
    size -= static_cast<size_t>(sent);
  }
  return true;
}

}  // namespace

std::string FrameHeader(size_t message_bytes) {
  const Length length = static_cast<Length>(message_bytes);
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length));
}

std::string EncodeFrame(std::string_view message) {
  std::string frame = FrameHeader(message.size());
  frame.append(message);
  return frame;
}

bool WriteFrame(int fd, std::string_view message) {
  if (message.size() > kFrameBytesMax) return false;
  const std::string frame = EncodeFrame(message);
  return SendAll(fd, frame.data(), frame.size());
}

std::optional<std::string> FrameParser::Next() {
  // Parsed frames are erased from the buffer once they hold more bytes than this.
  constexpr size_t kCompactBytes = 1 << 20;
  Length length = 0;
  if (broken_ || buffer_.size() - begin_ < sizeof(length)) return std::nullopt;
  std::memcpy(&length, buffer_.data() + begin_, sizeof(length));
  if (length > frame_bytes_max_) {
    broken_ = true;
    return std::nullopt;
  }
  if (buffer_.size() - begin_ - sizeof(length) < length) return std::nullopt;
  // If the buffer holds exactly one message, move it out instead of copying it.
  if (begin_ == 0 && buffer_.size() == sizeof(length) + length) {
    buffer_.erase(0, sizeof(length));
    return std::exchange(buffer_, {});
  }
  std::string message = buffer_.substr(begin_ + sizeof(length), length);
  begin_ += sizeof(length) + length;
  if (begin_ == buffer_.size() || begin_ > kCompactBytes) {
    buffer_.erase(0, begin_);
    begin_ = 0;
  }
  return message;
}

std::optional<std::string> FrameReader::Next() {
  while (true) {
    std::optional<std::string> message = parser_.Next();
    if (message || parser_.broken()) return message;
    char bytes[1 << 16];
    const ssize_t got = recv(fd_, bytes, sizeof(bytes), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return std::nullopt;
    parser_.Add(bytes, static_cast<size_t>(got));
  }
}

}  // namespace tessera
