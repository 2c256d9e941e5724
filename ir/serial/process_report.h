// The answer of this process to an inquiry (proto/tessera/v1/diagnostics.proto). The coordinator, a
// worker's daemon and an executor all answer with this code. Thread-safe.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/log.h"
#include "tessera/v1/diagnostics.pb.h"
#include "tessera/v1/worker.pb.h"

namespace tessera::ir::serial {

// The longest time for which a log level can be set.
inline constexpr absl::Duration kLogLevelTimeMax = absl::Hours(24);

// Returns the arguments for SetLogLevel. VALUE_ERROR: `level` is not a log level, or `time` is not
// null and is not positive or exceeds kLogLevelTimeMax.
absl::StatusOr<LogLevelState> ReadLogLevel(const std::string& level,
                                           const google::protobuf::Duration* time);

// The parts of a report that AnswerInquiry cannot find out itself.
struct ProcessSources {
  std::string build = {};
  std::vector<std::string> options = {};  // flags, "--name=value"
  absl::Time started = {};                // a time of SteadyNow
  std::function<std::string()> metrics = nullptr;
};

// Sets the log level of this process if the inquiry asks for it, and fills in the report except for
// its name.
void AnswerInquiry(const v1::Inquiry& inquiry, const ProcessSources& sources,
                   v1::ProcessReport* report);

}  // namespace tessera::ir::serial
