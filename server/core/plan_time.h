// Times and rates of plans as explain prints them, and the time of the last run beside the
// predicted one.
#pragma once
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "server/core/plan.h"

namespace tessera::server::core {

// Three digits: "1.25 ms", "340 us", "0 s".
std::string SecondsText(double seconds);
// "117 GFLOP/s", "20 GB/s".
std::string RateText(double per_second, std::string_view unit);

// Adds to explanations of a plan what its last run has taken on the devices: a last line of the
// text, "predicted 3.1 ms, last run 3.4 ms", and "last_run_seconds" of the JSON object.
// Requires: they are those of a plan, or empty, and then stay so.
void AddLastRun(double predicted_seconds, absl::Duration last_run, std::string* explain_text,
                std::string* explain_json);

}  // namespace tessera::server::core
