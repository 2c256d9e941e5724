// Answers inquiries about the running process: its log level, build, options, metrics and last log
// lines. The coordinator's diagnostics service asks every process of the cluster.
#include "ir/serial/process_report.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/flight_recorder.h"
#include "base/status.h"
#include "ir/serial/status.h"

namespace tessera::ir::serial {
namespace {

// The change is logged at the more verbose of the two levels, so that the line is in the log either
// way.
void ApplyLogLevel(const LogLevelState& wanted) {
  const LogLevel before = CurrentLogLevel().level;
  if (wanted.level < before) SetLogLevel(wanted.level, wanted.reverts_in);
  TESSERA_LOG(INFO) << "log level is set" << Field("level", LogLevelName(wanted.level))
                    << Field("before", LogLevelName(before))
                    << Field("for", absl::FormatDuration(wanted.reverts_in));
  if (wanted.level >= before) SetLogLevel(wanted.level, wanted.reverts_in);
}

// Returns a flag for the report. If the flag leads to a secret, only the fact that it is given is
// shown.
std::string Redacted(const std::string& flag) {
  const size_t equals = flag.find('=');
  const std::string name = flag.substr(0, equals);
  const bool is_secret = absl::StrContains(name, "key") || absl::StrContains(name, "token");
  return is_secret && equals != std::string::npos ? name + "=(given)" : flag;
}

// Replaces bytes that are not ASCII, since a protobuf string field must be UTF-8.
std::string Ascii(std::string text) {
  for (char& c : text)
    if (static_cast<uint8_t>(c) >= 0x80) c = '?';
  return text;
}

std::string SystemText() {
  utsname name{};
  uname(&name);
  std::string text = absl::StrCat(name.sysname, " ", name.release, " ", name.machine);
  std::string line;
  if (std::ifstream driver("/proc/driver/nvidia/version"); std::getline(driver, line))
    absl::StrAppend(&text, "; ", line);
  return text;
}

void Describe(const ProcessSources& sources, v1::ProcessReport* report) {
  report->set_build(std::string(absl::StripAsciiWhitespace(sources.build)));
  for (const std::string& flag : sources.options) report->add_options(Ascii(Redacted(flag)));
  report->set_system(Ascii(SystemText()));
  report->set_pid(getpid());
  *report->mutable_up_time() = ToProto(SteadyNow() - sources.started);
  if (sources.metrics) report->set_metrics(Ascii(sources.metrics()));
}

}  // namespace

absl::StatusOr<LogLevelState> ReadLogLevel(const std::string& level,
                                           const google::protobuf::Duration* time) {
  LogLevelState out;
  TESSERA_ASSIGN_OR_RETURN(out.level, ParseLogLevel(level));
  if (time == nullptr) return out;
  out.reverts_in = FromProto(*time);
  if (out.reverts_in <= absl::ZeroDuration() || out.reverts_in > kLogLevelTimeMax)
    return MakeError(ErrorKind::kValueError,
                     absl::StrCat("log level: the time is ", absl::FormatDuration(out.reverts_in),
                                  ", expected up to ", absl::FormatDuration(kLogLevelTimeMax)));
  return out;
}

void AnswerInquiry(const v1::Inquiry& inquiry, const ProcessSources& sources,
                   v1::ProcessReport* report) {
  if (!inquiry.log_level().empty()) {
    const absl::StatusOr<LogLevelState> wanted = ReadLogLevel(
        inquiry.log_level(), inquiry.has_log_level_time() ? &inquiry.log_level_time() : nullptr);
    if (wanted.ok()) {
      ApplyLogLevel(*wanted);
    } else {
      *report->mutable_status() = ToProto(wanted.status());
    }
  }
  const LogLevelState state = CurrentLogLevel();
  report->set_log_level(std::string(LogLevelName(state.level)));
  if (state.reverts_in < absl::InfiniteDuration())
    *report->mutable_log_level_reverts_in() =
        ToProto(std::max(state.reverts_in, absl::ZeroDuration()));
  if (inquiry.details()) Describe(sources, report);
  const FlightRecorder* const recorder = TheFlightRecorder();
  if (inquiry.flight_lines() > 0 && recorder != nullptr)
    report->set_flight_recorder(recorder->Format(static_cast<size_t>(inquiry.flight_lines())));
}

}  // namespace tessera::ir::serial
