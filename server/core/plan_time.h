// Prints times and rates as an explanation of a plan (`tessera explain`) shows them, and adds the
// time of the plan's last run to an explanation.
#pragma once
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "ir/api/service.h"

namespace tessera::server::core {

// Returns the time with three digits: "1.25 ms", "340 us", "0 s".
std::string SecondsText(double seconds);
// Returns the rate with three digits: "117 GFLOP/s", "20 GB/s".
std::string RateText(double per_second, std::string_view unit);

// The coordinator's answer to a Compile. AddLastRun adds the last run to its explanations.
struct CompileReply : api::CompileReply {
  double predicted_seconds = 0;  // predicted time of a run; 0 if no explanation was requested
  // Time of the executable's last run on the executor that took longest. 0 if there was no run yet,
  // or if no explanation was requested.
  absl::Duration last_run = absl::ZeroDuration();
};

// Adds the reply's last_run to its explanations. The text gets a last line, "predicted 3.1 ms, last
// run 3.4 ms", and the JSON object gets the member "last_run_seconds". An explanation that was not
// requested stays empty. JSON that is not an object, is nested too deep or is longer than 64 MiB
// stays unchanged. The call takes tens of milliseconds per MB of JSON. Therefore the thread that
// answers the client makes it, and not the scheduler's thread.
void AddLastRun(CompileReply* reply);

}  // namespace tessera::server::core
