// Implements the format of log lines. The log and failed checks write their lines with it.
// This file does not depend on either of them: a failed check may not depend on the log, which
// itself depends on checked code.
#include "base/log_format.h"

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/utf8.h"

namespace tessera {
namespace {

std::atomic<LogFormat> process_format{LogFormat::kText};

}  // namespace

absl::StatusOr<LogFormat> ParseLogFormat(std::string_view text) {
  if (text == "text") return LogFormat::kText;
  if (text == "json") return LogFormat::kJson;
  return MakeError(ErrorKind::kValueError,
                   absl::StrCat("log format: got \"", ToAbsl(text), "\", expected text or json"));
}

void SetProcessLogFormat(LogFormat format) {
  process_format.store(format, std::memory_order_relaxed);
}
LogFormat ProcessLogFormat() { return process_format.load(std::memory_order_relaxed); }

// Log lines carry texts from clients, which may be any bytes. Readers of the log must still get
// valid JSON, so invalid UTF-8 is replaced and control characters are escaped.
std::string JsonString(std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (size_t at = 0; at < text.size();) {
    const size_t length = Utf8Length(text.substr(at));
    if (length != 1) {
      out += length == 0 ? std::string_view("\\ufffd") : text.substr(at, length);
      at += length == 0 ? 1 : length;
      continue;
    }
    const char c = text[at++];
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (static_cast<uint8_t>(c) < 0x20 || c == 0x7f) {
      out += "\\u00";
      out += kHex[c >> 4];
      out += kHex[c & 15];
    } else {
      out += c;
    }
  }
  return out + '"';
}

namespace internal {

std::string JsonBody(std::string_view level, std::string_view message, std::string_view site,
                     std::string_view fields) {
  return absl::StrCat("\"level\":", JsonString(level), ",\"msg\":", JsonString(message),
                      ",\"site\":", JsonString(site), ToAbsl(fields), "}");
}

}  // namespace internal
}  // namespace tessera
