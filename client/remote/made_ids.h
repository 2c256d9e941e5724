// Remembers which arrays and operations were made in which session of this client, so that the end
// of a session can be told to those who use what it had.
//
// The ids that a coordinator assigns rise, and a client holds few of the ids in between that are
// not its own, so a session's ids are remembered as a range. Thread-compatible.
#pragma once
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace tessera::remote {

class MadeIds {
 public:
  // Notes ids that a call in `session` has made.
  void Note(uint64_t session, absl::Span<const uint64_t> ids);
  // Notes that everything in `session` is lost because of `why`, which must be an error.
  void Lose(uint64_t session, const absl::Status& why);
  // Notes that every id is lost because of `why`.
  void LoseAll(const absl::Status& why) { why_all_ = why; }
  // Returns why the first of `ids` that is lost is lost. Returns OK if none is.
  absl::Status WhyLost(absl::Span<const uint64_t> ids) const;

 private:
  struct Made {
    uint64_t session = 0;
    uint64_t first = 0, last = 0;  // range of ids; empty if first > last
    absl::Status why;              // OK if the session is not lost
  };
  Made& Of(uint64_t session);

  std::vector<Made> sessions_;  // oldest first
  absl::Status why_all_;
};

}  // namespace tessera::remote
