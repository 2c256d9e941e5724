// The use of devices by program: the K programs with the largest recent use, by name, and the sum
// of the others. Recent use is a sum that decays with a half-life of ten minutes.
//
// Memory is bounded: of the other programs at most `candidates_max` are tracked. What a program
// uses while it is not among the K stays in the sum of the others, so that no counter ever falls; a
// program that enters the K begins at 0. Thread-safe.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/metrics.h"
#include "server/core/telemetry.h"

namespace tessera::server::telemetry {

using core::ProgramUse;

class TopPrograms {
 public:
  explicit TopPrograms(size_t k = 20, size_t candidates_max = 1000)
      : k_(k), candidates_max_(candidates_max) {}

  void Add(const core::OperationEnded& ended) ABSL_LOCKS_EXCLUDED(mu_);

  // The programs of tenants for which `sees`, the busiest first; with `others`, their sum comes
  // last. Recent use is as of `now`.
  using Sees = std::function<bool(const std::string& tenant)>;
  std::vector<ProgramUse> Read(const Sees& sees, bool others, absl::Time now) const
      ABSL_LOCKS_EXCLUDED(mu_);
  void Collect(SampleSink& sink) const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using Key = std::pair<std::string, std::string>;  // tenant, program
  // A sum that decays exponentially.
  struct DecayingSum {
    double value = 0;
    absl::Time at = absl::InfinitePast();
    double Get(absl::Time now) const;
    void Add(double more, absl::Time now);
  };
  struct Entry {
    ProgramUse use;
    DecayingSum recent;
    std::deque<absl::Duration> steps;  // of the last kStepsKept runs
  };
  static void AddUse(const core::OperationEnded& ended, ProgramUse* use);
  static void AddRun(const core::OperationEnded& ended, Entry* entry);
  // Replaces the entry with the smallest recent use by `key`, if `recent` is much larger.
  Entry* TryEnterTop(const Key& key, const DecayingSum& recent, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const size_t k_, candidates_max_;
  mutable absl::Mutex mu_;
  std::map<Key, Entry> top_ ABSL_GUARDED_BY(mu_);
  std::map<Key, DecayingSum> candidates_ ABSL_GUARDED_BY(mu_);
  ProgramUse others_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera::server::telemetry
