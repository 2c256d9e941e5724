// The rules of the quarantine. The pool counts a strike against a program each time that the
// program has ended a process, and asks before each call whether the program is refused.
#include "server/jail/quarantine.h"

namespace tessera::server::jail {

void Quarantine::Strike(const std::string& tenant, const std::string& sha256, absl::Time now) {
  const Key key(tenant, sha256);
  const auto [at, is_new] = programs_.try_emplace(key);
  Program& program = at->second;
  if (!is_new) order_.erase(program.place);
  program.place = order_.insert(order_.end(), key);
  // A strike that is older than kRefusalTime no longer counts.
  program.strikes = is_new || now >= program.last_strike + kRefusalTime ? 1 : program.strikes + 1;
  program.last_strike = now;
  if (programs_.size() <= kProgramsMax) return;
  programs_.erase(order_.front());
  order_.pop_front();
}

absl::Time Quarantine::RefusedUntil(const std::string& tenant, const std::string& sha256,
                                    absl::Time now) const {
  const auto at = programs_.find({tenant, sha256});
  if (at == programs_.end() || at->second.strikes < kStrikes) return absl::InfinitePast();
  const absl::Time until = at->second.last_strike + kRefusalTime;
  return now < until ? until : absl::InfinitePast();
}

}  // namespace tessera::server::jail
