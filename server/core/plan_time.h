// Times and rates of plans as explain prints them, and the time of the last run beside the
// predicted one.
#pragma once
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "ir/api/service.h"

namespace tessera::server::core {

// Three digits: "1.25 ms", "340 us", "0 s".
std::string SecondsText(double seconds);
// "117 GFLOP/s", "20 GB/s".
std::string RateText(double per_second, std::string_view unit);

// The coordinator's answer to a Compile. AddLastRun adds the last run to its
// explanations.
struct CompileReply : api::CompileReply {
  double predicted_seconds = 0;  // of a run, as predicted; only with explanations
  // time of the last run on its slowest executor; 0 without a last run or without explanations
  absl::Duration last_run = absl::ZeroDuration();
};

// Adds last_run of the reply to its explanations: a last line of the text, "predicted 3.1 ms, last
// run 3.4 ms", and the member "last_run_seconds" of the JSON object. An explanation that was not
// asked for stays empty. JSON that is no object, is nested too deep or is longer than 64 MiB stays
// as it is. Takes tens of milliseconds for each MB of JSON, so that the scheduler's thread leaves
// it to the thread that answers.
void AddLastRun(CompileReply* reply);

}  // namespace tessera::server::core
