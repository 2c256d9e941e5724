#include "base/log.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
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

// The process's one log. Leaked, so that objects which outlive main may still log.
struct Sink {
  std::atomic<LogLevel> level{LogLevel::kOff};
  absl::Mutex mu;
  std::shared_ptr<spdlog::details::thread_pool> pool ABSL_GUARDED_BY(mu);
  std::shared_ptr<spdlog::logger> logger ABSL_GUARDED_BY(mu);
};
Sink& TheSink() {
  static Sink* const sink = new Sink;
  return *sink;
}

std::string_view FileName(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

}  // namespace

absl::StatusOr<LogLevel> ParseLogLevel(std::string_view text) {
  for (const LevelRow& row : kLevels) {
    if (row.name == text) return row.level;
  }
  return MakeError(ErrorKind::kValueError,
                   absl::StrCat("log level: got \"", ToAbsl(text),
                                "\", expected vlog, info, warning, error or off"));
}

absl::Status StartLogging(const LogOptions& options) {
  std::shared_ptr<spdlog::sinks::sink> target;
  try {
    if (options.file.empty()) {
      target = std::make_shared<spdlog::sinks::stderr_sink_mt>();
    } else {
      target = std::make_shared<spdlog::sinks::basic_file_sink_mt>(options.file);
    }
  } catch (const spdlog::spdlog_ex& e) {
    return MakeError(ErrorKind::kValueError,
                     absl::StrCat("log file ", options.file, " cannot be opened: ", e.what()));
  }
  auto pool = std::make_shared<spdlog::details::thread_pool>(
      std::max<int64_t>(1, options.queue_lines_max), /*threads_n=*/1);
  auto logger = std::make_shared<spdlog::async_logger>(
      "tessera", std::move(target), pool, spdlog::async_overflow_policy::overrun_oldest);
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %L %v");
  logger->set_level(spdlog::level::trace);  // TESSERA_LOG has filtered already.
  logger->flush_on(spdlog::level::info);

  StopLogging();
  Sink& sink = TheSink();
  {
    absl::MutexLock lock(&sink.mu);
    sink.pool = std::move(pool);
    sink.logger = std::move(logger);
  }
  sink.level = options.level;
  return absl::OkStatus();
}

void StopLogging() {
  Sink& sink = TheSink();
  sink.level = LogLevel::kOff;
  std::shared_ptr<spdlog::logger> logger;
  std::shared_ptr<spdlog::details::thread_pool> pool;
  {
    absl::MutexLock lock(&sink.mu);
    logger = std::move(sink.logger);
    pool = std::move(sink.pool);
  }
  // The pool's destructor, outside the lock, writes out the queue and joins the writer.
}

bool LogEnabled(LogLevel level) {
  return level >= TheSink().level.load(std::memory_order_relaxed) && level != LogLevel::kOff;
}

int64_t LogLinesDropped() {
  Sink& sink = TheSink();
  absl::MutexLock lock(&sink.mu);
  return sink.pool == nullptr ? 0 : static_cast<int64_t>(sink.pool->overrun_counter());
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

LogLine::~LogLine() {
  std::shared_ptr<spdlog::logger> logger;
  {
    Sink& sink = TheSink();
    absl::MutexLock lock(&sink.mu);
    logger = sink.logger;
  }
  if (logger == nullptr) return;
  const LevelRow& row = kLevels[static_cast<size_t>(level_)];
  logger->log(row.spdlog_level, "{}:{} {}", std::string(FileName(file_)), line_, stream_.str());
}

CheckFailure::~CheckFailure() {
  const std::string file(FileName(file_));
  std::fprintf(stderr, "%s:%d %s\n", file.c_str(), line_, stream_.str().c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace internal
}  // namespace tessera
