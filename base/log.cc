// Implements the process's log on top of spdlog, whose thread writes the lines out. Lines from
// level info on also go to the flight recorder, even if the log's level leaves them out, so that
// they can be read after a crash.
#include "base/log.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>
#include <memory>
#include <utility>

#include "absl/base/optimization.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/flight_recorder.h"
#include "base/site.h"
#include "base/status.h"
#include "spdlog/async.h"
#include "spdlog/sinks/basic_file_sink.h"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

namespace tessera {
namespace {

struct LevelRow {
  LogLevel level;
  std::string_view name;
  spdlog::level::level_enum spdlog_level;
};
constexpr std::array<LevelRow, 5> kLevels = {{
    {LogLevel::kVlog, "vlog", spdlog::level::debug},
    {LogLevel::kInfo, "info", spdlog::level::info},
    {LogLevel::kWarning, "warning", spdlog::level::warn},
    {LogLevel::kError, "error", spdlog::level::err},
    {LogLevel::kOff, "off", spdlog::level::off},
}};

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// The log of the process. It is never freed, so that objects that outlive main may still log.
struct ProcessLog {
  std::atomic<LogLevel> level{LogLevel::kOff};  // the level that applies now
  // The time at which `lasting_level` applies again: nanoseconds of SteadyNow.
  std::atomic<int64_t> reverts_at{kNever};
  absl::Mutex mu;
  LogLevel lasting_level ABSL_GUARDED_BY(mu) = LogLevel::kOff;  // last level set without a time
  std::shared_ptr<spdlog::details::thread_pool> pool ABSL_GUARDED_BY(mu);
  std::shared_ptr<spdlog::logger> logger ABSL_GUARDED_BY(mu);
};
ProcessLog& TheLog() {
  static ProcessLog* const log = new ProcessLog;
  return *log;
}

// Sets `level` back to `lasting_level` if its time is over. Returns how much of the time is left,
// which is infinite if no time was set.
absl::Duration RevertIfDue(ProcessLog& log) {
  LogLevel level = LogLevel::kOff;
  {
    absl::MutexLock lock(&log.mu);
    const int64_t at = log.reverts_at.load(std::memory_order_relaxed);
    if (at == kNever) return absl::InfiniteDuration();
    const absl::Duration left = absl::FromUnixNanos(at) - SteadyNow();
    if (left > absl::ZeroDuration()) return left;
    level = log.lasting_level;
    log.level = level;
    log.reverts_at = kNever;
  }
  TESSERA_LOG(INFO) << "log level is back" << Field("level", LogLevelName(level));
  return absl::InfiniteDuration();
}

// Returns the index of the slot of a stream (ios_base::pword) that points to the JSON fields of its
// line.
int JsonSlot() {
  static const int slot = std::ios_base::xalloc();
  return slot;
}

}  // namespace

absl::StatusOr<LogLevel> ParseLogLevel(std::string_view text) {
  if (text == "debug") return LogLevel::kVlog;
  for (const LevelRow& row : kLevels) {
    if (row.name == text) return row.level;
  }
  return MakeError(ErrorKind::kValueError,
                   absl::StrCat("log level: got \"", ToAbsl(text),
                                "\", expected vlog, info, warning, error or off"));
}

std::string_view LogLevelName(LogLevel level) { return kLevels[static_cast<size_t>(level)].name; }

// Opens the file before it stops a log that is already running, so that an error leaves the running
// log unchanged. The new log has one writer thread and drops the oldest line when its queue is
// full, so that a slow disk never delays the thread that logs. Lines are flushed at once, because
// they matter most right before a crash.
absl::Status StartLogging(const LogOptions& options) {
  std::shared_ptr<spdlog::sinks::sink> sink;
  try {
    if (options.file.empty()) {
      sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
    } else {
      sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(options.file);
    }
  } catch (const spdlog::spdlog_ex& e) {
    return MakeError(ErrorKind::kValueError,
                     absl::StrCat("log file ", options.file, " cannot be opened: ", e.what()));
  }
  auto pool = std::make_shared<spdlog::details::thread_pool>(
      std::max<int64_t>(1, options.queue_lines_max), /*threads_n=*/1);
  auto logger = std::make_shared<spdlog::async_logger>(
      "tessera", std::move(sink), pool, spdlog::async_overflow_policy::overrun_oldest);
  if (options.format == LogFormat::kJson) {
    logger->set_pattern(R"({"ts":"%Y-%m-%dT%H:%M:%S.%eZ",%v)", spdlog::pattern_time_type::utc);
  } else {
    logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %L %v");
  }
  logger->set_level(spdlog::level::trace);  // TESSERA_LOG has already filtered the lines.
  logger->flush_on(spdlog::level::info);

  StopLogging();
  ProcessLog& log = TheLog();
  {
    absl::MutexLock lock(&log.mu);
    log.pool = std::move(pool);
    log.logger = std::move(logger);
  }
  SetProcessLogFormat(options.format);
  SetLogLevel(options.level);
  return absl::OkStatus();
}

void StopLogging() {
  ProcessLog& log = TheLog();
  SetLogLevel(LogLevel::kOff);
  std::shared_ptr<spdlog::logger> logger;
  std::shared_ptr<spdlog::details::thread_pool> pool;
  {
    absl::MutexLock lock(&log.mu);
    logger = std::move(log.logger);
    pool = std::move(log.pool);
  }
  // The destructor of the pool runs outside the lock. It writes out the queue and joins the writer.
}

void SetLogLevel(LogLevel level, absl::Duration time) {
  ProcessLog& log = TheLog();
  absl::MutexLock lock(&log.mu);
  const bool bounded = time < absl::InfiniteDuration();
  if (!bounded) log.lasting_level = level;
  log.reverts_at = bounded ? absl::ToUnixNanos(SteadyNow() + time) : kNever;
  log.level = level;
}

LogLevelState CurrentLogLevel() {
  ProcessLog& log = TheLog();
  const absl::Duration left = RevertIfDue(log);
  return {log.level.load(std::memory_order_relaxed), left};
}

bool LogEnabled(LogLevel level) {
  ProcessLog& log = TheLog();
  if (ABSL_PREDICT_FALSE(log.reverts_at.load(std::memory_order_relaxed) != kNever))
    RevertIfDue(log);
  if (level == LogLevel::kOff) return false;
  if (level >= log.level.load(std::memory_order_relaxed)) return true;
  // Lines from level info on are kept in the flight recorder even if they are not logged.
  return level >= LogLevel::kInfo && TheFlightRecorder() != nullptr;
}

int64_t LogLinesDropped() {
  ProcessLog& log = TheLog();
  absl::MutexLock lock(&log.mu);
  return log.pool == nullptr ? 0 : static_cast<int64_t>(log.pool->overrun_counter());
}

std::string FormatField(std::string_view key, std::string_view value) {
  if (!value.empty() && value.find_first_of(" \t\n\"=") == std::string_view::npos) {
    return absl::StrCat(" ", ToAbsl(key), "=", ToAbsl(value));
  }
  std::string quoted;
  for (const char c : value) {
    if (c == '"' || c == '\\') quoted += '\\';
    if (c == '\n') {
      quoted += "\\n";
    } else {
      quoted += c;
    }
  }
  return absl::StrCat(" ", ToAbsl(key), "=\"", quoted, "\"");
}

namespace internal {

std::string* JsonFields(std::ostream& os) {
  return static_cast<std::string*>(os.pword(JsonSlot()));
}

void AddJsonField(std::string& fields, std::string_view key, std::string_view value, bool literal) {
  // A field may not take the name of one of the line's own keys.
  const bool taken = key == "ts" || key == "level" || key == "msg" || key == "site";
  absl::StrAppend(&fields, ",", JsonString(absl::StrCat(taken ? "field_" : "", ToAbsl(key))), ":",
                  literal ? std::string(value) : JsonString(value));  // a literal is not quoted
}

// Writes a line to the flight recorder. A long line takes several entries.
static void RecordLine(LogLevel level, std::string_view text) {
  constexpr size_t kEntriesMax = 4;
  if (TheFlightRecorder() == nullptr) return;
  const std::string line = absl::StrCat(ToAbsl(LogLevelName(level)), " ", ToAbsl(text));
  for (size_t i = 0, at = 0; i < kEntriesMax && at < line.size(); ++i) {
    RecordFlight(FlightKind::kLog, std::string_view(line).substr(at, FlightRecorder::kTextMax), i);
    at += FlightRecorder::kTextMax;
  }
}

LogLine::LogLine(LogLevel level, const char* file, int line)
    : level_(level), file_(file), line_(line) {
  if (ProcessLogFormat() == LogFormat::kJson) {
    stream_.pword(JsonSlot()) = &json_fields_;
  }
}

LogLine::~LogLine() {
  RecordLine(level_, stream_.str());
  if (level_ < TheLog().level.load(std::memory_order_relaxed)) return;
  std::shared_ptr<spdlog::logger> logger;
  {
    ProcessLog& log = TheLog();
    absl::MutexLock lock(&log.mu);
    logger = log.logger;
  }
  if (logger == nullptr) return;
  const LevelRow& row = kLevels[static_cast<size_t>(level_)];
  const std::string site = Site{file_, line_}.ToString();
  logger->log(row.spdlog_level, "{}",
              stream_.pword(JsonSlot()) != nullptr
                  ? JsonBody(row.name, stream_.str(), site, json_fields_)
                  : absl::StrCat(site, " ", stream_.str()));
}

}  // namespace internal
}  // namespace tessera
