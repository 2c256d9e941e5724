#include "worker/files/json.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"

namespace tessera::worker::files {
namespace {

void AppendUtf8(uint32_t code, std::string* out) {
  const auto byte = [&](uint32_t b) { out->push_back(static_cast<char>(b)); };
  if (code < 0x80) {
    byte(code);
  } else if (code < 0x800) {
    byte(0xc0 | code >> 6);
    byte(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    byte(0xe0 | code >> 12);
    byte(0x80 | (code >> 6 & 0x3f));
    byte(0x80 | (code & 0x3f));
  } else {
    byte(0xf0 | code >> 18);
    byte(0x80 | (code >> 12 & 0x3f));
    byte(0x80 | (code >> 6 & 0x3f));
    byte(0x80 | (code & 0x3f));
  }
}

}  // namespace

bool JsonReader::Fail(std::string_view why) {
  if (ok()) error_ = absl::StrCat("at byte ", at_, ": ", ToAbsl(why));
  return false;
}

void JsonReader::Blanks() {
  while (at_ < text_.size() &&
         (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) {
    ++at_;
  }
}

bool JsonReader::Try(char c) {
  Blanks();
  if (!ok() || at_ == text_.size() || text_[at_] != c) return false;
  ++at_;
  return true;
}

bool JsonReader::Expect(char c) { return Try(c) || Fail(std::string("expected '") + c + "'"); }

bool JsonReader::End() {
  Blanks();
  return ok() && (at_ == text_.size() || Fail("expected the end"));
}

bool JsonReader::Number(int64_t* out) {
  Blanks();
  if (!ok()) return false;
  const size_t begin = at_;
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  *out = 0;
  for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
    const int digit = text_[at_] - '0';
    if (*out > (kMax - digit) / 10) return Fail("the number is too large");
    *out = *out * 10 + digit;
  }
  if (at_ == begin) return Fail("expected a number from 0");
  if (text_[begin] == '0' && at_ > begin + 1) return Fail("the number begins with 0");
  const bool more =
      at_ < text_.size() && (text_[at_] == '.' || text_[at_] == 'e' || text_[at_] == 'E');
  return !more || Fail("expected a whole number");
}

bool JsonReader::Hex4(uint32_t* out) {
  *out = 0;
  for (int i = 0; i < 4; ++i, ++at_) {
    if (at_ == text_.size()) return Fail("the text ends within a \\u");
    const char c = text_[at_];
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) return Fail("expected four hex digits after \\u");
    *out = *out * 16 + static_cast<uint32_t>(digit);
  }
  return true;
}

bool JsonReader::Escape(std::string* out) {
  if (at_ == text_.size()) return Fail("the text ends within a string");
  constexpr std::string_view kFrom = "\"\\/bfnrt", kTo = "\"\\/\b\f\n\r\t";
  const char c = text_[at_++];
  if (const size_t i = kFrom.find(c); i != std::string_view::npos) {
    out->push_back(kTo[i]);
    return true;
  }
  if (c != 'u') return Fail("an unknown escape");
  uint32_t code = 0, low = 0;
  if (!Hex4(&code)) return false;
  if (code >= 0xdc00 && code < 0xe000) return Fail("half of a surrogate pair");
  if (code >= 0xd800 && code < 0xdc00) {
    if (text_.substr(at_, 2) != "\\u") return Fail("half of a surrogate pair");
    at_ += 2;
    if (!Hex4(&low)) return false;
    if (low < 0xdc00 || low >= 0xe000) return Fail("half of a surrogate pair");
    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
  }
  AppendUtf8(code, out);
  return true;
}

bool JsonReader::String(std::string* out, size_t bytes_max) {
  out->clear();
  if (!Expect('"')) return false;
  while (at_ < text_.size()) {
    const char c = text_[at_++];
    if (c == '"') return true;
    if (static_cast<unsigned char>(c) < 0x20) return Fail("a control character in a string");
    if (out->size() >= bytes_max) return Fail("the string is too long");
    if (c != '\\') {
      out->push_back(c);
    } else if (!Escape(out)) {
      return false;
    }
  }
  return Fail("the text ends within a string");
}

std::string JsonQuoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppend(&out, absl::StrFormat("\\u%04x", static_cast<unsigned char>(c)));
    } else {
      out.push_back(c);
    }
  }
  out.push_back('"');
  return out;
}

}  // namespace tessera::worker::files
