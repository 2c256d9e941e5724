// The form in which a process writes log lines and the messages of failed checks: lines of text, or
// one JSON object per line.
//
// The format belongs to the process. StartLogging (base/log.h) sets it, and a failed check
// (base/check.h) prints its message in the same format. Thread-safe.
#pragma once
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tessera {

enum class LogFormat { kText, kJson };

// Parses "text" or "json".
absl::StatusOr<LogFormat> ParseLogFormat(std::string_view text);

// Set and return the format of this process. It is kText until it is set.
void SetProcessLogFormat(LogFormat format);
LogFormat ProcessLogFormat();

// Returns the text as a JSON string literal. Bytes that are not valid UTF-8 become U+FFFD.
std::string JsonString(std::string_view text);

namespace internal {

// Returns the part of a JSON line that follows the time. `fields` is empty, or the JSON text of the
// line's fields with a comma before each.
std::string JsonBody(std::string_view level, std::string_view message, std::string_view site,
                     std::string_view fields);

}  // namespace internal
}  // namespace tessera
