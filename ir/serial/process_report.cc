#include "ir/serial/process_report.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "ir/serial/status.h"

namespace tessera::ir::serial {
namespace {

// The line is written at the level that shows more, so that it is in the log either way.
void TakeLogLevel(const LogLevelState& wanted) {
  const LogLevel before = CurrentLogLevel().level;
  if (wanted.level < before) SetLogLevel(wanted.level, wanted.reverts_in);
  TESSERA_LOG(INFO) << "log level is set" << Field("level", LogLevelName(wanted.level))
                    << Field("before", LogLevelName(before))
                    << Field("for", absl::FormatDuration(wanted.reverts_in));
  if (wanted.level >= before) SetLogLevel(wanted.level, wanted.reverts_in);
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

void AnswerInquiry(const v1::Inquiry& inquiry, v1::ProcessReport* report) {
  if (!inquiry.log_level().empty()) {
    const absl::StatusOr<LogLevelState> wanted = ReadLogLevel(
        inquiry.log_level(), inquiry.has_log_level_time() ? &inquiry.log_level_time() : nullptr);
    if (wanted.ok()) {
      TakeLogLevel(*wanted);
    } else {
      *report->mutable_status() = ToProto(wanted.status());
    }
  }
  const LogLevelState state = CurrentLogLevel();
  report->set_log_level(std::string(LogLevelName(state.level)));
  if (state.reverts_in < absl::InfiniteDuration())
    *report->mutable_log_level_reverts_in() =
        ToProto(std::max(state.reverts_in, absl::ZeroDuration()));
}

}  // namespace tessera::ir::serial
