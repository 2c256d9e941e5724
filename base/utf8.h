// Checks and repairs texts that may not be valid UTF-8. Strings in protobuf and JSON must be valid.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

// Returns the length of the UTF-8 sequence at the start of `text`; 0 if the sequence is not valid.
// `text` must not be empty.
inline size_t Utf8Length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Overlong forms, surrogates, and values beyond Unicode are not valid.
  const uint8_t second = byte(1);
  if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) ||
      (first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f)) {
    return 0;
  }
  return length;
}

// Returns the index of the first byte that is not valid UTF-8; the size of the text if all are
// valid.
inline size_t FirstInvalidUtf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t length = Utf8Length(text.substr(at));
    if (length == 0) break;
    at += length;
  }
  return at;
}

// Returns the text with U+FFFD in place of each byte that is not valid UTF-8.
inline std::string AsUtf8(std::string_view text) {
  std::string out;
  while (true) {
    const size_t valid = FirstInvalidUtf8(text);
    out += text.substr(0, valid);
    if (valid == text.size()) return out;
    out += "\xef\xbf\xbd";
    text.remove_prefix(valid + 1);
  }
}

}  // namespace tessera
