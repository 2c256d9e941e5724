// Reads JSON one token at a time: no tree, no recursion, so depth costs nothing.
//
// A value of one thread over bytes that outlive it. The first error stays; everything after it
// fails.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace tessera::worker::files {

class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : text_(text) {}

  // Whether the next token, after blanks, is `c`; takes it if so.
  bool Try(char c);
  bool Expect(char c);
  bool String(std::string* out, size_t bytes_max);
  // 0 to 2^63-1, without sign, fraction or exponent.
  bool Number(int64_t* out);
  // Nothing but blanks is left.
  bool End();

  bool ok() const { return error_.empty(); }
  bool Fail(std::string_view why);
  // "at byte 17: expected ':'"
  const std::string& error() const { return error_; }

 private:
  void Blanks();
  bool Escape(std::string* out);
  bool Hex4(uint32_t* out);

  const std::string_view text_;
  size_t at_ = 0;
  std::string error_;
};

// As a JSON string, quotes included.
std::string JsonQuoted(std::string_view text);

}  // namespace tessera::worker::files
