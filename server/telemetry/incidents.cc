// Limits the log lines about incidents. Telemetry passes on each Incident note of the scheduler.
#include "server/telemetry/incidents.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace tessera::server::telemetry {

namespace {

struct IncidentFields {
  const core::Incident& incident;
  int64_t left_out;
};
std::ostream& operator<<(std::ostream& os, const IncidentFields& fields) {
  for (const auto& [key, value] : fields.incident.fields) os << Field(key, value);
  if (fields.left_out > 0) os << Field("not_logged_before", fields.left_out);
  return os;
}

}  // namespace

void Incidents::Log(const core::Incident& incident, absl::Time now) {
  int64_t left_out = 0;
  {
    absl::MutexLock lock(&mu_);
    const auto [it, first] = budgets_.try_emplace(incident.what);
    Budget& budget = it->second;
    if (!first) {
      const double gained = absl::ToDoubleSeconds(now - budget.refilled_at) * kLinesPerSecond;
      budget.lines = std::clamp(budget.lines + gained, 0.0, double{kLinesPerSecond});
    }
    budget.refilled_at = now;
    if (budget.lines < 1) {
      ++budget.left_out;
      return;
    }
    budget.lines -= 1;
    left_out = std::exchange(budget.left_out, 0);
  }
  TESSERA_LOG(WARNING) << incident.what << IncidentFields{incident, left_out};
}

}  // namespace tessera::server::telemetry
