// A stopwatch for tests of promises such as "a killed executor is reported within two seconds".
// The promise holds for a machine with a processor and a disk to spare, but tests also run beside
// builds and other tests. So the stopwatch can leave out the time in which the machine was
// overloaded (Unhindered). Thread-compatible.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace tessera::testing {

class Stopwatch {
 public:
  Stopwatch();

  // Returns the time since the stopwatch was made.
  absl::Duration Elapsed() const;
  // Returns Elapsed() without the time in which some process of this machine waited for a processor
  // or a disk. Where the kernel does not record such times (/proc/pressure), Unhindered leaves out
  // up to 15 s.
  absl::Duration Unhindered() const;

 private:
  const absl::Time start_;
  const std::optional<absl::Duration> stall_at_start_;  // overload of the machine until start_
};

// Returns the total in the line "some" of a file of /proc/pressure; nullopt if the text has no such
// line.
// Reference: the kernel's Documentation/accounting/psi.rst.
std::optional<absl::Duration> ParseSomeStall(std::string_view text);

}  // namespace tessera::testing
