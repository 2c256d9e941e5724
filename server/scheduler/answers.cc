// Keeps the answers within their limits in number, age and bytes, for each tenant and for all.
// Machine::Remember and Machine::FindAnswer (repeated_calls.cc) are its callers, and restore.cc at
// the start of a life.
#include "server/scheduler/answers.h"

#include <algorithm>
#include <utility>

namespace tessera::server::scheduler {
namespace {

int64_t BytesOf(const AnswerRecord& answer) {
  return static_cast<int64_t>(sizeof(answer) + answer.request_id.size() + answer.payload.size() +
                              answer.arrays.size() * sizeof(uint64_t));
}

}  // namespace

const AnswerRecord* Answers::Find(const std::string& tenant, CallKind call,
                                  const std::string& request_id, absl::Time now) const {
  const auto tenant_it = tenants_.find(tenant);
  if (tenant_it == tenants_.end()) return nullptr;
  const auto number = tenant_it->second.numbers.find(std::pair(call, request_id));
  if (number == tenant_it->second.numbers.end()) return nullptr;
  const AnswerRecord& answer = answers_.at(number->second);
  return answer.until <= now ? nullptr : &answer;
}

void Answers::Restore(uint64_t number, AnswerRecord answer) {
  last_number_ = number;
  const int64_t bytes = BytesOf(answer);
  Tenant& tenant = tenants_[answer.tenant];
  tenant.numbers[std::pair(answer.call, answer.request_id)] = number;
  tenant.order.push_back(number);
  tenant.bytes += bytes;
  bytes_ += bytes;
  answers_.emplace_hint(answers_.end(), number, std::move(answer));
}

void Answers::Erase(uint64_t number) {
  const auto it = answers_.find(number);
  const AnswerRecord& answer = it->second;
  const auto tenant_it = tenants_.find(answer.tenant);
  Tenant& tenant = tenant_it->second;
  tenant.numbers.erase(std::pair(answer.call, answer.request_id));
  // In most cases the answer is the oldest of its tenant, so the search is short.
  tenant.order.erase(std::find(tenant.order.begin(), tenant.order.end(), number));
  tenant.bytes -= BytesOf(answer);
  bytes_ -= BytesOf(answer);
  if (tenant.order.empty()) tenants_.erase(tenant_it);
  answers_.erase(it);
}

uint64_t Answers::NumberOf(const AnswerRecord& answer) const {
  return tenants_.at(answer.tenant).numbers.at(std::pair(answer.call, answer.request_id));
}

// Drops expired answers, adds the new one, and then drops the oldest answers of the tenant and of
// the largest tenants until all limits hold. The new answer itself always stays. The changed
// numbers are returned because each of them is a row that the step has to commit.
std::vector<std::pair<uint64_t, std::string>> Answers::Add(AnswerRecord answer,
                                                           const core::AnswerLimits& limits,
                                                           absl::Time now) {
  std::vector<std::pair<uint64_t, std::string>> changed;
  // The evicted answer is always the oldest of its tenant.
  const auto evict = [&](uint64_t number) {
    changed.emplace_back(number, answers_.at(number).tenant);
    Erase(number);
  };
  while (!answers_.empty() && answers_.begin()->second.until <= now) evict(answers_.begin()->first);
  const std::string tenant_name = answer.tenant;
  answer.until = now + limits.age_max;
  changed.emplace_back(last_number_ + 1, tenant_name);
  Restore(last_number_ + 1, std::move(answer));
  const Tenant& tenant = tenants_.at(tenant_name);
  while (tenant.order.size() > 1 &&
         (static_cast<int64_t>(tenant.order.size()) > limits.answers_max ||
          tenant.bytes > limits.bytes_max))
    evict(tenant.order.front());
  while (bytes_ > limits.all_bytes_max && answers_.size() > 1) {
    const auto largest = std::max_element(tenants_.begin(), tenants_.end(), [](auto& a, auto& b) {
      return a.second.bytes < b.second.bytes;
    });
    evict(largest->second.order.front());
  }
  return changed;
}

}  // namespace tessera::server::scheduler
