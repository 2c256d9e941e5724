// A stream of any bytes, cut at any boundaries: the messages are those of the stream cut nowhere.
// The first byte says where it is cut.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/frames.h"
#include "base/log.h"

namespace {

struct Parsed {
  std::vector<std::string> messages;
  bool broken = false;
};

Parsed Parse(const char* bytes, size_t size, size_t piece) {
  Parsed parsed;
  tessera::FrameParser parser;
  for (size_t at = 0; at < size; at += piece) {
    parser.Add(bytes + at, std::min(piece, size - at));
    while (auto message = parser.Next()) parsed.messages.push_back(*std::move(message));
  }
  parsed.broken = parser.broken();
  return parsed;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t piece = 1 + data[0] % 31;
  const char* bytes = reinterpret_cast<const char*>(data) + 1;
  const Parsed cut = Parse(bytes, size - 1, piece);
  const Parsed whole = Parse(bytes, size - 1, size);
  TESSERA_CHECK(cut.messages == whole.messages && cut.broken == whole.broken) << "piece=" << piece;
  // Encoding them gives the stream back, as far as it was read.
  std::string encoded;
  for (const std::string& message : whole.messages) {
    encoded += tessera::EncodeFrame(message);
  }
  TESSERA_CHECK(std::string_view(bytes, size - 1).substr(0, encoded.size()) == encoded);
  return 0;
}
