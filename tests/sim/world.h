// A simulated cluster in one thread. It contains the coordinator's real scheduler, and models of
// the daemons, executors, clients and the network around it. The models keep the rules of the real
// components, and fail at random. Everything follows from one seed: the same seed gives the same
// transcript, byte for byte.
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

// SplitMix64 (Steele, Lea and Flood, 2014), which gives the same numbers on every machine.
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

// The simulated time, the actions that are due, and the first violation that was seen.
class World {
 public:
  // `lines` is the number of lines of the transcript that are kept.
  World(uint64_t seed, size_t lines) : random_(seed), lines_kept_(lines) {}

  Random& random() { return random_; }
  absl::Time now() const { return now_; }
  // Runs `then` after the delay. Actions that are due at the same time run in the order in which
  // they were added to the world.
  void After(absl::Duration delay, std::function<void()> then);
  // Runs until `end`, or until the first violation.
  void RunUntil(absl::Time end);

  // Appends a line to the transcript.
  template <class... Parts>
  void Log(const Parts&... parts) {
    Append(absl::StrCat(parts...));
  }
  // Records a broken promise. The first one ends the run.
  template <class... Parts>
  void Violate(const Parts&... parts) {
    if (!violation_.empty()) return;
    violation_ = absl::StrCat(parts...);
    Log("VIOLATION ", violation_);
  }
  const std::string& violation() const { return violation_; }
  // Returns the hash of all lines.
  uint64_t hash() const { return hash_; }
  // Returns the lines that are kept.
  std::string Transcript() const;
  void Count(const std::string& what) { ++counts_[what]; }
  const std::map<std::string, int64_t>& counts() const { return counts_; }

 private:
  void Append(const std::string& line);

  struct Due {
    absl::Time at;
    uint64_t number;
    size_t action_index;  // index into actions_
    bool operator<(const Due& other) const {
      return std::pair(other.at, other.number) < std::pair(at, number);
    }
  };
  Random random_;
  const size_t lines_kept_;
  absl::Time now_ = absl::UnixEpoch();
  uint64_t last_number_ = 0;
  std::priority_queue<Due> due_;
  std::vector<std::function<void()>> actions_;  // actions of due_, and null at free indices
  std::vector<size_t> free_indices_;
  std::string violation_;
  uint64_t hash_ = 14695981039346656037u;  // FNV-1a
  std::vector<std::string> lines_;         // last lines, in a circular buffer
  size_t next_line_ = 0;
  std::map<std::string, int64_t> counts_;
};

}  // namespace tessera::sim
