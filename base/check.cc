// Ends the process when a check fails. Code of every layer checks its invariants with the macros of
// check.h, and so do the clocks and the flight recorder, on which the log depends. The checks
// therefore do not use the log: they print their message themselves.
#include "base/check.h"

#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/log_format.h"
#include "base/site.h"

namespace tessera::internal {

CheckFailure::~CheckFailure() {
  const std::string site = Site{file_, line_}.ToString();
  std::string text = absl::StrCat(site, " ", stream_.str());
  if (ProcessLogFormat() == LogFormat::kJson) {
    text = absl::StrCat("{\"ts\":\"",
                        absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone()),
                        "\",", JsonBody("fatal", stream_.str(), site, ""));
  }
  std::fprintf(stderr, "%s\n", text.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace tessera::internal
