// Which programs use the devices: the K that have lately used them most, by name, and the others
// together.
//
// Bounded: of programs that are not among the K at most `candidates_max` are remembered, by how
// much they have lately used. "Lately" is a sum that halves every ten minutes. What a program has
// used while it was not among the K counts, for ever, as the others'; so no sum ever falls, and a
// program that comes in begins at 0. Thread-safe.
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

  // Those that `sees` lets through, the busiest first; the others together come last, when the
  // caller sees everything. At `now` for "lately".
  using Sees = std::function<bool(const std::string& tenant)>;
  std::vector<ProgramUse> Read(const Sees& sees, bool others, absl::Time now) const
      ABSL_LOCKS_EXCLUDED(mu_);
  void Collect(Scrape& scrape) const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using Key = std::pair<std::string, std::string>;  // tenant, program
  // A sum that halves with time.
  struct Score {
    double value = 0;
    absl::Time at = absl::InfinitePast();
    double Get(absl::Time now) const;
    void Add(double more, absl::Time now);
  };
  struct Entry {
    ProgramUse use;
    Score lately;
    std::deque<absl::Duration> steps;  // the last ones
  };
  static void Count(const core::OperationEnded& ended, ProgramUse* use);
  static void CountOf(const core::OperationEnded& ended, Entry* entry);
  // Gives `key`, with `lately`, the place of the one that has used least, if that is much less.
  Entry* TryEnter(const Key& key, const Score& lately, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const size_t k_, candidates_max_;
  mutable absl::Mutex mu_;
  std::map<Key, Entry> top_ ABSL_GUARDED_BY(mu_);
  std::map<Key, Score> candidates_ ABSL_GUARDED_BY(mu_);
  ProgramUse others_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera::server::telemetry
