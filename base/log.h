// Writes log lines.
//
//   TESSERA_LOG(INFO) << "worker joined" << Field("worker", id);
//
// The log is silent until StartLogging is called, so tests and embedding programs write no lines. A
// line is either text with key=value fields at its end, or (LogFormat::kJson) a JSON object. The
// object has the keys "ts" (RFC 3339, UTC, with milliseconds), "level", "msg", "site" and the
// fields; numbers and booleans are not quoted. Logging never blocks: lines wait for the writer
// thread in a queue of at most queue_lines_max. When the queue is full, its oldest line is dropped,
// and LogLinesDropped counts it. Thread-safe.
//
// This header includes base/check.h, since most code that logs has checks as well. Code that has
// checks and does not log includes base/check.h itself.
#pragma once
#include <cstdint>
#include <ostream>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "base/log_format.h"

namespace tessera {

// VLOG is for tracing one request through the code; it is off by default.
enum class LogLevel { kVlog, kInfo, kWarning, kError, kOff };

struct LogOptions {
  LogLevel level = LogLevel::kInfo;
  LogFormat format = LogFormat::kText;
  std::string file;                // file to write to; stderr if empty
  int64_t queue_lines_max = 8192;  // most lines that wait to be written
};

// Parses "vlog" (or its synonym "debug"), "info", "warning", "error" or "off".
absl::StatusOr<LogLevel> ParseLogLevel(std::string_view text);
std::string_view LogLevelName(LogLevel level);

// Starts the writer thread. Call it once in main, before other threads log. Calling it again
// replaces the log. StopLogging writes out the queue and stops the thread.
absl::Status StartLogging(const LogOptions& options);
void StopLogging();

// Sets the level from which lines are logged, in place of LogOptions::level. If `time` is finite,
// the level applies only for that long; then the last level that was set without a time applies
// again. This needs no timer thread: the next log call checks whether the time has passed.
void SetLogLevel(LogLevel level, absl::Duration time = absl::InfiniteDuration());
struct LogLevelState {
  LogLevel level = LogLevel::kOff;
  absl::Duration reverts_in = absl::InfiniteDuration();
};
LogLevelState CurrentLogLevel();

bool LogEnabled(LogLevel level);
int64_t LogLinesDropped();

// Adds a field to a line: " key=value". The value is quoted if it is empty or contains blanks,
// quotes or '='.
template <typename T>
struct LogField {
  std::string_view key;
  const T& value;
};
template <typename T>
LogField<T> Field(std::string_view key, const T& value) {
  return {key, value};
}
std::string FormatField(std::string_view key, std::string_view value);

namespace internal {

// Returns the buffer for the fields of the JSON line that is written to this stream. Returns null
// if the line is written as text.
std::string* JsonFields(std::ostream& os);
// Appends `,"key":value`. `literal` says that the value is a number or a boolean, which is written
// without quotes.
void AddJsonField(std::string& fields, std::string_view key, std::string_view value, bool literal);

}  // namespace internal

template <typename T>
std::ostream& operator<<(std::ostream& os, const LogField<T>& field) {
  std::ostringstream value;
  std::string* const json = internal::JsonFields(os);
  if constexpr (std::is_same_v<T, bool>) value << std::boolalpha;
  value << field.value;
  if (json == nullptr) return os << FormatField(field.key, value.str());
  constexpr bool kLiteral =
      std::is_same_v<T, bool> || (std::is_integral_v<T> && !std::is_same_v<T, char>);
  internal::AddJsonField(*json, field.key, value.str(), kLiteral);
  return os;
}

namespace internal {

// Collects one line and logs it at the end of the statement.
class LogLine {
 public:
  LogLine(LogLevel level, const char* file, int line);
  LogLine(const LogLine&) = delete;
  LogLine& operator=(const LogLine&) = delete;
  ~LogLine();
  std::ostream& stream() { return stream_; }

 private:
  const LogLevel level_;
  const char* const file_;
  const int line_;
  std::ostringstream stream_;
  std::string json_fields_;
};

}  // namespace internal
}  // namespace tessera

#define TESSERA_LOG_LEVEL_VLOG ::tessera::LogLevel::kVlog
#define TESSERA_LOG_LEVEL_INFO ::tessera::LogLevel::kInfo
#define TESSERA_LOG_LEVEL_WARNING ::tessera::LogLevel::kWarning
#define TESSERA_LOG_LEVEL_ERROR ::tessera::LogLevel::kError

// The streamed operands are evaluated only if the level is enabled.
#define TESSERA_LOG(level)                          \
  !::tessera::LogEnabled(TESSERA_LOG_LEVEL_##level) \
      ? (void)0                                     \
      : ::tessera::internal::Voidify() &            \
            ::tessera::internal::LogLine(TESSERA_LOG_LEVEL_##level, __FILE__, __LINE__).stream()
#define TESSERA_VLOG TESSERA_LOG(VLOG)
