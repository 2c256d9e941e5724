// The pauses between an executor's attempts to connect to a peer. Pure functions, used by TcpLinks.
#pragma once
#include <algorithm>

#include "absl/time/time.h"

namespace tessera::worker {

inline constexpr absl::Duration kFirstPause = absl::Milliseconds(10);
inline constexpr absl::Duration kLongestPauseAtFirst = absl::Milliseconds(500);
inline constexpr absl::Duration kLongestPause = absl::Seconds(10);

// Returns the pause that follows a pause of `last`. `timeout` is how long a collective waits, and
// `left` is `timeout` less the time since the first attempt, or zero. While `left` is positive, the
// peer is probably still starting, so the pauses stay short. A peer that cannot be reached for
// longer is probably misconfigured. Such a peer may log a warning for each attempt, so the attempts
// become rare. But there are still several attempts within each timeout: a collective that begins
// when the peer can be reached again gets its connection before the collective times out.
inline absl::Duration NextPause(absl::Duration last, absl::Duration left, absl::Duration timeout) {
  const absl::Duration longest = left > absl::ZeroDuration()
                                     ? kLongestPauseAtFirst
                                     : std::clamp(timeout / 4, kLongestPauseAtFirst, kLongestPause);
  return std::min(last * 2, longest);
}

}  // namespace tessera::worker
