#include "base/clock.h"

#include "absl/time/clock.h"
#include "base/log.h"

namespace tessera {

absl::Time RealClock::Now() const { return absl::Now(); }

absl::Time FakeClock::Now() const {
  absl::MutexLock lock(&mu_);
  return now_;
}

void FakeClock::Advance(absl::Duration by) {
  TESSERA_CHECK(by >= absl::ZeroDuration()) << "by=" << by;
  absl::MutexLock lock(&mu_);
  now_ += by;
}

}  // namespace tessera
