#include "server/telemetry/top_programs.h"

#include <algorithm>
#include <cmath>

namespace tessera::server::telemetry {
namespace {

constexpr absl::Duration kHalfLife = absl::Minutes(10);
// Of a program's runs, for its middle and its slow ones.
constexpr size_t kStepsKept = 128;
// A program enters when it has used this many times what the least of the K has, so that two of a
// size do not take turns.
constexpr double kMuchMore = 1.5;

// What of the run was waiting after it had its place.
absl::Duration PeerWait(const core::OperationEnded& ended) {
  if (ended.started >= ended.ended) return absl::ZeroDuration();
  return std::max(ended.ended - ended.started - ended.run_longest, absl::ZeroDuration());
}

}  // namespace

double TopPrograms::DecayingSum::Get(absl::Time now) const {
  if (value == 0 || now <= at) return value;
  return value * std::exp2(-absl::FDivDuration(now - at, kHalfLife));
}

void TopPrograms::DecayingSum::Add(double more, absl::Time now) {
  value = Get(now) + more;
  at = std::max(at, now);
}

void TopPrograms::Count(const core::OperationEnded& ended, ProgramUse* use) {
  const bool well = ended.state == api::OperationState::kDone;
  use->steps += well ? 1 : 0;
  use->failures += well ? 0 : 1;
  const bool started = ended.started < absl::InfiniteFuture();
  const absl::Duration waited = (started ? ended.started : ended.ended) - ended.created;
  (ended.planned_late ? use->idle_compile : use->idle_input) += waited;
  if (!well || !started) return;
  use->step_time += ended.ended - ended.started;
  use->device_busy += ended.run_total;
  use->idle_peer += PeerWait(ended);
  use->bytes_moved += ended.bytes_moved;
}

void TopPrograms::CountOf(const core::OperationEnded& ended, Entry* entry) {
  Count(ended, &entry->use);
  if (ended.state != api::OperationState::kDone || ended.started > ended.ended) return;
  entry->steps.push_back(ended.ended - ended.started);
  if (entry->steps.size() > kStepsKept) entry->steps.pop_front();
}

TopPrograms::Entry* TopPrograms::TryEnter(const Key& key, const DecayingSum& recent,
                                          absl::Time now) {
  if (top_.size() >= k_) {
    const auto least =
        std::min_element(top_.begin(), top_.end(), [&](const auto& a, const auto& b) {
          return a.second.recent.Get(now) < b.second.recent.Get(now);
        });
    if (recent.Get(now) <= kMuchMore * least->second.recent.Get(now)) return nullptr;
    // Its sums end here; what it uses from now on is the others'.
    candidates_[least->first] = least->second.recent;
    top_.erase(least);
  }
  candidates_.erase(key);
  Entry& entry = top_[key];
  entry.use.tenant = key.first;
  entry.use.program = key.second;
  entry.recent = recent;
  return &entry;
}

void TopPrograms::Add(const core::OperationEnded& ended) {
  const Key key(ended.tenant, ended.name);
  const double busy = absl::ToDoubleSeconds(ended.run_total);
  absl::MutexLock lock(&mu_);
  if (const auto it = top_.find(key); it != top_.end()) {
    it->second.recent.Add(busy, ended.ended);
    return CountOf(ended, &it->second);
  }
  DecayingSum recent;
  if (const auto it = candidates_.find(key); it != candidates_.end()) recent = it->second;
  recent.Add(busy, ended.ended);
  if (Entry* const entry = TryEnter(key, recent, ended.ended)) return CountOf(ended, entry);
  Count(ended, &others_);
  candidates_[key] = recent;
  if (candidates_.size() <= candidates_max_) return;
  candidates_.erase(
      std::min_element(candidates_.begin(), candidates_.end(), [&](const auto& a, const auto& b) {
        return a.second.Get(ended.ended) < b.second.Get(ended.ended);
      }));
}

std::vector<ProgramUse> TopPrograms::Read(const Sees& sees, bool others, absl::Time now) const {
  // Of a sum that halves: what a steady use of one device comes to.
  const double steady = absl::ToDoubleSeconds(kHalfLife) / std::log(2.0);
  std::vector<ProgramUse> uses;
  absl::MutexLock lock(&mu_);
  for (const auto& [key, entry] : top_) {
    if (!sees(key.first)) continue;
    uses.push_back(entry.use);
    uses.back().recent_devices_busy = entry.recent.Get(now) / steady;
    if (entry.steps.empty()) continue;
    std::vector<absl::Duration> steps(entry.steps.begin(), entry.steps.end());
    std::sort(steps.begin(), steps.end());
    uses.back().step_p50 = steps[(steps.size() - 1) / 2];
    uses.back().step_p99 = steps[(steps.size() - 1) * 99 / 100];
  }
  std::stable_sort(uses.begin(), uses.end(), [](const ProgramUse& a, const ProgramUse& b) {
    return a.recent_devices_busy > b.recent_devices_busy;
  });
  if (others) uses.push_back(others_);
  return uses;
}

void TopPrograms::Collect(SampleSink& sink) const {
  const auto put = [&](const std::string& name, const ProgramUse& use) {
    sink.Add(Metric::kProgramSteps, {name}, static_cast<double>(use.steps));
    sink.Add(Metric::kProgramStepSeconds, {name}, absl::ToDoubleSeconds(use.step_time));
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
  for (const auto& [key, entry] : top_) put(key.second, entry.use);
  put(kOtherLabel, others_);
}

}  // namespace tessera::server::telemetry
