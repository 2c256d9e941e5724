// Counts each ended operation twice: for the list of the RPC ListTopPrograms, and for the exported
// counters (tessera_program_*). Telemetry passes the operations in, and the metrics page reads the
// counters.
#include "server/telemetry/top_programs.h"

#include <algorithm>
#include <cmath>

namespace tessera::server::telemetry {
namespace {

constexpr absl::Duration kHalfLife = absl::Minutes(10);
// The number of a program's last runs from which its p50 and p99 are computed.
constexpr size_t kRunsKept = 128;
// A program enters a full list only if its recent use is more than this many times that of the
// entry with the smallest recent use. So two programs with about the same use do not replace each
// other again and again.
constexpr double kEnterFactor = 1.5;

// Returns the part of the run's time in which no executor ran it, as far as this is known: the time
// of the run without the run time of the executor that took longest.
absl::Duration PeerWait(const core::OperationEnded& ended) {
  if (ended.started >= ended.ended) return absl::ZeroDuration();
  return std::max(ended.ended - ended.started - ended.run_longest, absl::ZeroDuration());
}

}  // namespace

double TopPrograms::DecayingSum::Get(absl::Time now) const {
  if (value == 0 || now <= updated_at) return value;
  return value * std::exp2(-absl::FDivDuration(now - updated_at, kHalfLife));
}

void TopPrograms::DecayingSum::Add(double more, absl::Time now) {
  value = Get(now) + more;
  updated_at = std::max(updated_at, now);
}

// Returns the use of devices by one run. No number is negative: the times come from the clocks of
// several processes and may disagree, but counters must never fall.
ProgramUse TopPrograms::UseOf(const core::OperationEnded& ended) {
  ProgramUse use;
  const bool ok = ended.state == api::OperationState::kDone;
  use.runs_succeeded = ok ? 1 : 0;
  use.failures = ok ? 0 : 1;
  const bool started = ended.started < absl::InfiniteFuture();
  const absl::Duration waited = (started ? ended.started : ended.ended) - ended.created;
  (ended.planned_late ? use.idle_compile : use.idle_input) = std::max(waited, absl::ZeroDuration());
  if (!ok || !started) return use;
  use.run_time = std::max(ended.ended - ended.started, absl::ZeroDuration());
  use.device_busy = std::max(ended.run_total, absl::ZeroDuration());
  use.idle_peer = PeerWait(ended);
  use.bytes_moved = std::max<int64_t>(ended.bytes_moved, 0);
  return use;
}

// Adds the sums of `more` to `use`. The names, percentiles and recent use of `use` stay unchanged.
void TopPrograms::AddUse(const ProgramUse& more, ProgramUse* use) {
  use->runs_succeeded += more.runs_succeeded;
  use->failures += more.failures;
  use->run_time += more.run_time;
  use->device_busy += more.device_busy;
  use->idle_input += more.idle_input;
  use->idle_compile += more.idle_compile;
  use->idle_peer += more.idle_peer;
  use->bytes_moved += more.bytes_moved;
}

TopPrograms::Entry* TopPrograms::TryEnterTop(const Key& key, const DecayingSum& recent,
                                             absl::Time now) {
  if (top_.size() >= k_) {
    const auto smallest =
        std::min_element(top_.begin(), top_.end(), [&](const auto& a, const auto& b) {
          return a.second.recent.Get(now) < b.second.recent.Get(now);
        });
    if (recent.Get(now) <= kEnterFactor * smallest->second.recent.Get(now)) return nullptr;
    AddUse(smallest->second.use, &others_);
    candidates_[smallest->first] = smallest->second.recent;
    top_.erase(smallest);
  }
  candidates_.erase(key);
  Entry& entry = top_[key];
  entry.use.tenant = key.first;
  entry.use.program = key.second;
  entry.recent = recent;
  return &entry;
}

bool TopPrograms::AddToTop(const Key& key, const core::OperationEnded& ended,
                           const ProgramUse& use) {
  const double busy = absl::ToDoubleSeconds(ended.run_total);
  Entry* entry = nullptr;
  if (const auto it = top_.find(key); it != top_.end()) {
    entry = &it->second;
    entry->recent.Add(busy, ended.ended);
  } else {
    DecayingSum recent;
    if (const auto tracked = candidates_.find(key); tracked != candidates_.end())
      recent = tracked->second;
    recent.Add(busy, ended.ended);
    entry = TryEnterTop(key, recent, ended.ended);
    if (entry == nullptr) candidates_[key] = recent;
  }
  if (entry == nullptr) return false;
  AddUse(use, &entry->use);
  if (ended.state == api::OperationState::kDone && ended.started <= ended.ended) {
    entry->run_times.push_back(ended.ended - ended.started);
    if (entry->run_times.size() > kRunsKept) entry->run_times.pop_front();
  }
  return true;
}

void TopPrograms::Add(const core::OperationEnded& ended) {
  const Key key(ended.tenant, ended.name);
  const ProgramUse use = UseOf(ended);
  absl::MutexLock lock(&mu_);
  const bool listed = AddToTop(key, ended, use);
  if (!listed) AddUse(use, &others_);
  if (listed && series_.size() < series_max_) series_.try_emplace(ended.name);
  const auto series = series_.find(ended.name);
  AddUse(use, series == series_.end() ? &other_series_ : &series->second);
  if (candidates_.size() <= candidates_max_) return;
  candidates_.erase(
      std::min_element(candidates_.begin(), candidates_.end(), [&](const auto& a, const auto& b) {
        return a.second.Get(ended.ended) < b.second.Get(ended.ended);
      }));
}

std::vector<ProgramUse> TopPrograms::List(const TenantFilter& is_visible, bool with_others,
                                          absl::Time now) const {
  // The limit of the decaying sum of one device that is always busy.
  const double always_busy = absl::ToDoubleSeconds(kHalfLife) / std::log(2.0);
  std::vector<ProgramUse> uses;
  absl::MutexLock lock(&mu_);
  for (const auto& [key, entry] : top_) {
    if (!is_visible(key.first)) continue;
    uses.push_back(entry.use);
    uses.back().recent_devices_busy = entry.recent.Get(now) / always_busy;
    if (entry.run_times.empty()) continue;
    std::vector<absl::Duration> times(entry.run_times.begin(), entry.run_times.end());
    std::sort(times.begin(), times.end());
    uses.back().run_p50 = times[(times.size() - 1) / 2];
    uses.back().run_p99 = times[(times.size() - 1) * 99 / 100];
  }
  std::stable_sort(uses.begin(), uses.end(), [](const ProgramUse& a, const ProgramUse& b) {
    return a.recent_devices_busy > b.recent_devices_busy;
  });
  if (with_others) uses.push_back(others_);
  return uses;
}

void TopPrograms::Collect(SampleSink& sink) const {
  const auto put = [&](const std::string& name, const ProgramUse& use) {
    sink.Add(Metric::kProgramSteps, {name}, static_cast<double>(use.runs_succeeded));
    sink.Add(Metric::kProgramStepSeconds, {name}, absl::ToDoubleSeconds(use.run_time));
    sink.Add(Metric::kProgramBusySeconds, {name}, absl::ToDoubleSeconds(use.device_busy));
    sink.Add(Metric::kProgramIdleSeconds, {name, "waiting_input"},
             absl::ToDoubleSeconds(use.idle_input));
    sink.Add(Metric::kProgramIdleSeconds, {name, "compile"},
             absl::ToDoubleSeconds(use.idle_compile));
    sink.Add(Metric::kProgramIdleSeconds, {name, "waiting_peer"},
             absl::ToDoubleSeconds(use.idle_peer));
    sink.Add(Metric::kProgramBytesMoved, {name}, static_cast<double>(use.bytes_moved));
  };
  absl::MutexLock lock(&mu_);
  for (const auto& [name, use] : series_) put(name, use);
  put(kOtherLabel, other_series_);
}

}  // namespace tessera::server::telemetry
