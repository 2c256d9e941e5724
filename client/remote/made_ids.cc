// The memory of a Lease: Lease::CheckHeld answers from it.
#include "client/remote/made_ids.h"

#include <algorithm>
#include <limits>

namespace tessera::remote {
namespace {

// The most sessions that are remembered; beyond it the oldest is forgotten, and uses of what it had
// get the coordinator's own errors. A client has another session only after it has lost one.
constexpr size_t kSessionsMax = 64;

}  // namespace

MadeIds::Made& MadeIds::Of(uint64_t session) {
  const auto found = std::find_if(sessions_.begin(), sessions_.end(),
                                  [&](const Made& made) { return made.session == session; });
  if (found != sessions_.end()) return *found;
  if (sessions_.size() == kSessionsMax) sessions_.erase(sessions_.begin());
  Made& made = sessions_.emplace_back();
  made.session = session;
  made.first = std::numeric_limits<uint64_t>::max();
  return made;
}

void MadeIds::Note(uint64_t session, absl::Span<const uint64_t> ids) {
  if (ids.empty()) return;
  Made& made = Of(session);
  for (const uint64_t id : ids) {
    made.first = std::min(made.first, id);
    made.last = std::max(made.last, id);
  }
}

void MadeIds::Lose(uint64_t session, const absl::Status& why) { Of(session).why = why; }

absl::Status MadeIds::WhyLost(absl::Span<const uint64_t> ids) const {
  for (const uint64_t id : ids) {
    if (!why_all_.ok()) return why_all_;
    for (const Made& made : sessions_)
      if (!made.why.ok() && made.first <= id && id <= made.last) return made.why;
  }
  return absl::OkStatus();
}

}  // namespace tessera::remote
