// A simulated cluster in one thread: the coordinator's real scheduler, and models of what surrounds
// it (daemons, executors, clients, network) that keep the rules of the real ones and break at
// random. Everything follows from one seed: the same seed gives the same transcript, byte for byte.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace tessera::sim {

// SplitMix64 (Steele, Lea and Flood, 2014): the same numbers on every machine.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next();
  int64_t Below(int64_t n) { return static_cast<int64_t>(Next() % static_cast<uint64_t>(n)); }
  bool OneIn(int64_t n) { return Below(n) == 0; }
  absl::Duration Within(absl::Duration min, absl::Duration max);

 private:
  uint64_t state_;
};

// The time, what happens when, and what was seen to go wrong.
class World {
 public:
  // `lines`: of the transcript that are kept.
  World(uint64_t seed, size_t lines) : random_(seed), lines_kept_(lines) {}

  Random& random() { return random_; }
  absl::Time now() const { return now_; }
  // Things due at the same time happen in the order in which they were said.
  void After(absl::Duration delay, std::function<void()> then);
  // Until `end`, or the first violation.
  void RunUntil(absl::Time end);

  // A line of the transcript.
  template <class... Parts>
  void Log(const Parts&... parts) {
    Append(absl::StrCat(parts...));
  }
  // A promise that was broken; the first one ends the run.
  template <class... Parts>
  void Violate(const Parts&... parts) {
    if (!violation_.empty()) return;
    violation_ = absl::StrCat(parts...);
    Log("VIOLATION ", violation_);
  }
  const std::string& violation() const { return violation_; }
  // Of all lines.
  uint64_t hash() const { return hash_; }
  // The last lines.
  std::string Transcript() const;
  void Count(const std::string& what) { ++counts_[what]; }
  const std::map<std::string, int64_t>& counts() const { return counts_; }

 private:
  void Append(const std::string& line);

  struct Due {
    absl::Time at;
    uint64_t number;
    size_t place;  // in actions_
    bool operator<(const Due& other) const {
      return std::pair(other.at, other.number) < std::pair(at, number);
    }
  };
  Random random_;
  const size_t lines_kept_;
  absl::Time now_ = absl::UnixEpoch();
  uint64_t last_ = 0;
  std::priority_queue<Due> due_;
  std::vector<std::function<void()>> actions_;  // of due_, and places that are free
  std::vector<size_t> free_;
  std::string violation_;
  uint64_t hash_ = 14695981039346656037u;  // FNV-1a
  std::vector<std::string> lines_;         // the last ones, circular
  size_t next_line_ = 0;
  std::map<std::string, int64_t> counts_;
};

}  // namespace tessera::sim
