// The random numbers, the queue of actions and the transcript of a run. All models schedule their
// actions here, which makes one thread and one order of everything that happens.
#include "tests/sim/world.h"

#include <algorithm>

namespace tessera::sim {
uint64_t Random::Next() {
  uint64_t z = state_ += 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

absl::Duration Random::Within(absl::Duration min, absl::Duration max) {
  return min + absl::Microseconds(Below(absl::ToInt64Microseconds(max - min) + 1));
}

void World::After(absl::Duration delay, std::function<void()> then) {
  size_t action_index = actions_.size();
  if (free_indices_.empty()) {
    actions_.push_back(std::move(then));
  } else {
    action_index = free_indices_.back();
    free_indices_.pop_back();
    actions_[action_index] = std::move(then);
  }
  due_.push({now_ + std::max(delay, absl::ZeroDuration()), ++last_number_, action_index});
}

void World::RunUntil(absl::Time end) {
  while (violation_.empty() && !due_.empty() && due_.top().at <= end) {
    const Due due = due_.top();
    due_.pop();
    now_ = due.at;
    const std::function<void()> then = std::exchange(actions_[due.action_index], nullptr);
    free_indices_.push_back(due.action_index);
    then();
  }
  if (violation_.empty()) now_ = end;
}

void World::Append(const std::string& line) {
  const std::string timed =
      absl::StrCat(absl::ToInt64Microseconds(now_ - absl::UnixEpoch()), " ", line);
  for (const char c : timed) hash_ = (hash_ ^ static_cast<uint8_t>(c)) * 1099511628211u;
  if (lines_.size() < lines_kept_) lines_.emplace_back();
  lines_[next_line_++ % lines_kept_] = timed;
}

std::string World::Transcript() const {
  std::string out;
  for (size_t i = 0; i < lines_.size(); ++i)
    absl::StrAppend(&out, lines_[(next_line_ + i) % lines_.size()], "\n");
  return out;
}

}  // namespace tessera::sim
