// Adds up the use of devices by program, for two readers: List and Collect.
//
// List returns the `k` programs with the largest recent use, each with its use since it entered the
// list, and adds up all other use. Recent use is a sum that decays with a half-life of ten minutes.
// At most `candidates_max` programs outside the list have a sum of their own, and may enter the
// list.
//
// Collect exports counters by the program's name alone, which programs of several tenants may
// share. A name gets its series when a program of this name enters the list, and keeps it: the
// series counts every later run of the name, whether or not the program is still listed, because a
// counter must never fall. At most `series_max` names get a series. All other use is in the series
// "other". Thread-safe.
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
  // The default of `series_max` is the number of values that base/metrics.def allows for the label
  // `program`.
  explicit TopPrograms(size_t k = 20, size_t candidates_max = 1000, size_t series_max = 1000)
      : k_(k), candidates_max_(candidates_max), series_max_(series_max) {}

  void Add(const core::OperationEnded& ended) ABSL_LOCKS_EXCLUDED(mu_);

  // Returns the listed programs of the tenants for which `is_visible` is true, the busiest first.
  // If `with_others` is true, the sum of all other use comes last. Recent use is as of `now`.
  using TenantFilter = std::function<bool(const std::string& tenant)>;
  std::vector<ProgramUse> List(const TenantFilter& is_visible, bool with_others,
                               absl::Time now) const ABSL_LOCKS_EXCLUDED(mu_);
  void Collect(SampleSink& sink) const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using Key = std::pair<std::string, std::string>;  // names of the tenant and the program
  // A sum that decays exponentially.
  struct DecayingSum {
    double value = 0;
    absl::Time updated_at = absl::InfinitePast();
    double Get(absl::Time now) const;
    void Add(double more, absl::Time now);
  };
  struct Entry {
    ProgramUse use;
    DecayingSum recent;
    std::deque<absl::Duration> run_times;  // times of the last kRunsKept runs
  };
  static ProgramUse UseOf(const core::OperationEnded& ended);
  static void AddUse(const ProgramUse& more, ProgramUse* use);
  // Adds the run to its program's entry in the list. Returns false if the program is not in the
  // list and does not enter it.
  bool AddToTop(const Key& key, const core::OperationEnded& ended, const ProgramUse& use)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Replaces the entry with the smallest recent use by `key`, if `recent` is much larger.
  Entry* TryEnterTop(const Key& key, const DecayingSum& recent, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const size_t k_, candidates_max_, series_max_;
  mutable absl::Mutex mu_;
  std::map<Key, Entry> top_ ABSL_GUARDED_BY(mu_);
  std::map<Key, DecayingSum> candidates_ ABSL_GUARDED_BY(mu_);
  ProgramUse others_ ABSL_GUARDED_BY(mu_);  // the use that no entry of top_ counts
  // The exported counters of each name that has a series, and of all other names together.
  std::map<std::string, ProgramUse> series_ ABSL_GUARDED_BY(mu_);
  ProgramUse other_series_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera::server::telemetry
