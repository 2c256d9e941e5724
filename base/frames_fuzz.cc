// Fuzzes FrameParser: however a stream of arbitrary bytes is cut into pieces, the parser must find
// the same messages as in the whole stream. The first byte of the input gives the size of the
// pieces.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/frames.h"

namespace {

struct Parsed {
  std::vector<std::string> messages;
  bool broken = false;
};

Parsed Parse(const char* bytes, size_t size, size_t piece_size) {
  Parsed parsed;
  tessera::FrameParser parser;
  for (size_t at = 0; at < size; at += piece_size) {
    parser.Add(bytes + at, std::min(piece_size, size - at));
    while (auto message = parser.Next()) parsed.messages.push_back(*std::move(message));
  }
  parsed.broken = parser.broken();
  return parsed;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t piece_size = 1 + data[0] % 31;
  const char* bytes = reinterpret_cast<const char*>(data) + 1;
  const Parsed in_pieces = Parse(bytes, size - 1, piece_size);
  const Parsed whole = Parse(bytes, size - 1, size);
  TESSERA_CHECK(in_pieces.messages == whole.messages && in_pieces.broken == whole.broken)
      << "piece_size=" << piece_size;
  // Encoding the messages again must give the part of the stream that was parsed.
  std::string encoded;
  for (const std::string& message : whole.messages) {
    encoded += tessera::EncodeFrame(message);
  }
  TESSERA_CHECK(std::string_view(bytes, size - 1).substr(0, encoded.size()) == encoded);
  return 0;
}
