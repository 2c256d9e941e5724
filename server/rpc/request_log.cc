#include "server/rpc/request_log.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"

namespace tessera::server::rpc {

void RequestLog::DropOld(absl::Time now) {
  while (!ended_.empty()) {
    const auto oldest = entries_.find(ended_.front());
    if (oldest->second.until > now && static_cast<int64_t>(ended_.size()) <= limits_.answers_max &&
        bytes_ <= limits_.bytes_max)
      return;
    bytes_ -= static_cast<int64_t>(oldest->second.answer.bytes.size());
    entries_.erase(oldest);
    ended_.pop_front();
  }
}

bool RequestLog::Begin(const Key& key, const std::string& payload, absl::Time now, Then then) {
  Answer answer;
  {
    absl::MutexLock lock(&mu_);
    DropOld(now);
    const auto [it, added] = entries_.try_emplace(key);
    Entry& entry = it->second;
    if (added) {
      entry.payload = payload;
      return true;
    }
    if (entry.payload != payload) {
      answer.status = MakeError(ErrorKind::kRequestIdReused,
                                absl::StrCat("request_id '", absl::CEscape(key.request_id),
                                             "' came before with another request; use a new one"));
    } else if (!entry.ended) {
      entry.waiting.push_back(std::move(then));
      return false;
    } else {
      answer = entry.answer;
    }
  }
  then(answer);
  return false;
}

void RequestLog::End(const Key& key, const Answer& answer, absl::Time now) {
  std::vector<Then> waiting;
  {
    absl::MutexLock lock(&mu_);
    const auto it = entries_.find(key);
    TESSERA_CHECK(it != entries_.end() && !it->second.ended) << key.request_id;
    Entry& entry = it->second;
    waiting = std::exchange(entry.waiting, {});
    if (answer.status.ok()) {
      entry.ended = true;
      entry.answer = answer;
      entry.until = now + limits_.age_max;
      bytes_ += static_cast<int64_t>(answer.bytes.size());
      ended_.push_back(key);
    } else {
      entries_.erase(it);
    }
    DropOld(now);
  }
  for (const Then& then : waiting) then(answer);
}

int64_t RequestLog::answers() const {
  absl::MutexLock lock(&mu_);
  return static_cast<int64_t>(ended_.size());
}

}  // namespace tessera::server::rpc
