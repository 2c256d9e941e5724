// Answers repeated calls. CallBase enters each call with a request_id here before it runs the
// handler, and hands the response in when the call has ended.
#include "server/rpc/request_log.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"

namespace tessera::server::rpc {

void RequestLog::EvictOldest(Tenant& tenant) {
  const auto oldest = tenant.entries.find(tenant.ended_keys.front());
  const auto bytes = static_cast<int64_t>(oldest->second.answer.bytes.size());
  tenant.bytes -= bytes;
  bytes_ -= bytes;
  tenant.entries.erase(oldest);
  tenant.ended_keys.pop_front();
}

void RequestLog::EvictBeyondLimits(Tenant& tenant, absl::Time now) {
  while (!tenant.ended_keys.empty() &&
         (tenant.entries.find(tenant.ended_keys.front())->second.expires_at <= now ||
          static_cast<int64_t>(tenant.ended_keys.size()) > limits_.answers_max ||
          tenant.bytes > limits_.bytes_max))
    EvictOldest(tenant);
}

void RequestLog::EvictFromAll(absl::Time now) {
  // The scan visits all tenants, so it runs seldom.
  if (now - last_scan_ >= limits_.age_max / 10) {
    last_scan_ = now;
    for (auto it = tenants_.begin(); it != tenants_.end();) {
      EvictBeyondLimits(it->second, now);
      it = it->second.entries.empty() ? tenants_.erase(it) : std::next(it);
    }
  }
  while (bytes_ > limits_.all_bytes_max) {
    const auto most = std::max_element(tenants_.begin(), tenants_.end(), [](auto& a, auto& b) {
      return a.second.bytes < b.second.bytes;
    });
    EvictOldest(most->second);
  }
}

// Finds or makes the entry of the call. Expired entries are evicted first, so that an id whose
// response is too old counts as new. If the first call still runs, `then` waits in its entry. An
// answer that is known is passed to `then` without the lock.
bool RequestLog::Begin(const Key& key, const std::string& payload, absl::Time now, Callback then) {
  Answer answer;
  {
    absl::MutexLock lock(&mu_);
    EvictFromAll(now);
    Tenant& tenant = tenants_[key.tenant];
    EvictBeyondLimits(tenant, now);
    const auto [it, added] = tenant.entries.try_emplace(key);
    Entry& entry = it->second;
    if (added) {
      entry.payload = payload;
      return true;
    }
    if (entry.payload != payload) {
      answer.status =
          MakeError(ErrorKind::kRequestIdReused,
                    absl::StrCat("request_id '", absl::CEscape(key.request_id),
                                 "' was used before with another request; use a new one"));
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
  std::vector<Callback> waiting;
  {
    absl::MutexLock lock(&mu_);
    // The running call's entry has kept its tenant from being erased.
    Tenant& tenant = tenants_.at(key.tenant);
    const auto it = tenant.entries.find(key);
    TESSERA_CHECK(it != tenant.entries.end() && !it->second.ended) << key.request_id;
    Entry& entry = it->second;
    waiting = std::exchange(entry.waiting, {});
    if (answer.status.ok()) {
      entry.ended = true;
      entry.answer = answer;
      entry.expires_at = now + limits_.age_max;
      tenant.bytes += static_cast<int64_t>(answer.bytes.size());
      bytes_ += static_cast<int64_t>(answer.bytes.size());
      tenant.ended_keys.push_back(key);
    } else {
      tenant.entries.erase(it);
    }
    EvictBeyondLimits(tenant, now);
    EvictFromAll(now);
  }
  for (const Callback& then : waiting) then(answer);
}

int64_t RequestLog::num_answers() const {
  absl::MutexLock lock(&mu_);
  int64_t all = 0;
  for (const auto& [name, tenant] : tenants_) all += static_cast<int64_t>(tenant.ended_keys.size());
  return all;
}

}  // namespace tessera::server::rpc
