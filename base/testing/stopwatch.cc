// Measures time for tests of time limits. It reads from /proc/pressure for how long the machine was
// overloaded while the stopwatch ran.
#include "base/testing/stopwatch.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"

namespace tessera::testing {
namespace {

// The time that Unhindered() leaves out if the kernel does not say for how long the machine was
// overloaded.
constexpr absl::Duration kUnknownStall = absl::Seconds(15);

// Returns the time for which this machine has been overloaded since it started; nullopt if the
// kernel does not say.
std::optional<absl::Duration> StallSinceBoot() {
  absl::Duration sum;
  for (const char* path : {"/proc/pressure/cpu", "/proc/pressure/io"}) {
    std::ifstream in(path);
    const std::optional<absl::Duration> stall =
        ParseSomeStall(std::string(std::istreambuf_iterator<char>(in), {}));
    if (!stall) return std::nullopt;
    sum += *stall;
  }
  return sum;
}

}  // namespace

std::optional<absl::Duration> ParseSomeStall(std::string_view text) {
  constexpr std::string_view kTotal = " total=";
  const size_t line = text.find("some ");
  if (line == std::string_view::npos) return std::nullopt;
  const size_t total = text.find(kTotal, line);
  if (total == std::string_view::npos) return std::nullopt;
  const size_t begin = total + kTotal.size();
  const std::string_view digits = text.substr(begin, text.find('\n', begin) - begin);
  int64_t microseconds = 0;
  if (!absl::SimpleAtoi(absl::string_view(digits.data(), digits.size()), &microseconds))
    return std::nullopt;
  return absl::Microseconds(microseconds);
}

Stopwatch::Stopwatch() : start_(absl::Now()), stall_at_start_(StallSinceBoot()) {}

absl::Duration Stopwatch::Elapsed() const { return absl::Now() - start_; }

absl::Duration Stopwatch::Unhindered() const {
  const std::optional<absl::Duration> stall_now = StallSinceBoot();
  const absl::Duration stall =
      stall_at_start_ && stall_now ? *stall_now - *stall_at_start_ : kUnknownStall;
  return std::max(absl::ZeroDuration(), Elapsed() - stall);
}

}  // namespace tessera::testing
