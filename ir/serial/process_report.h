// What this process answers when it is asked what it logs (proto/tessera/v1/diagnostics.proto): the
// same in the coordinator, in a worker's daemon and in an executor.  Thread-safe.
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

// The longest time for which a level can be set.
inline constexpr absl::Duration kLogLevelTimeMax = absl::Hours(24);

// What SetLogLevel takes.  VALUE_ERROR: `level` is none; `time`, unless it is null, is not positive
// or more than kLogLevelTimeMax.
absl::StatusOr<LogLevelState> ReadLogLevel(const std::string& level,
                                           const google::protobuf::Duration* time);

// Where a process's details come from.
struct ProcessSources {
  std::string build = {};
  std::vector<std::string> options = {};  // flags, "--name=value"
  absl::Time started = {};                // by SteadyNow
  std::function<std::string()> metrics = nullptr;
};

// Sets what this process logs from now on, if the inquiry says so, and fills in the report but for
// its name.
void AnswerInquiry(const v1::Inquiry& inquiry, const ProcessSources& sources,
                   v1::ProcessReport* report);

}  // namespace tessera::ir::serial
