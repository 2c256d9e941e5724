// The rules by which the health monitor judges the service. server/coordinator/health_monitor.cc
// feeds in what it observes, starts the canaries that TakeDue returns, and publishes the verdict of
// Evaluate.
#include "server/health/health.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace tessera::server::health {

const char* NameOf(Reason reason) {
  constexpr const char* kNames[] = {"ok",
                                    "loop_stuck",
                                    "no_devices",
                                    "unproven",
                                    "kernel_canary",
                                    "collective_canary",
                                    "not_progressing",
                                    "unresponsive",
                                    "stopping"};
  return kNames[static_cast<size_t>(reason)];
}

const char* NameOf(CanaryKind kind) {
  return kind == CanaryKind::kKernel ? "kernel" : "collective";
}

const char* NameOf(CanaryResult result) {
  constexpr const char* kNames[] = {"ok", "wrong", "timeout", "error", "skipped"};
  return kNames[static_cast<size_t>(result)];
}

void Health::ProbeHistory::RecordSuccess(absl::Time now, absl::Duration interval) {
  last_success_at = now;
  next_due_at = now + interval;
  failed = false;
  failure.clear();
}

void Health::ProbeHistory::RecordFailure(const std::string& text, absl::Time now,
                                         absl::Duration retry) {
  failed = true;
  failure = text;
  next_due_at = now + retry;
}

void Health::RecordExecutors(const std::vector<core::ExecutorReading>& executors, absl::Time now) {
  for (const core::ExecutorReading& reading : executors) {
    Executor& x = executors_[reading.name];
    const bool is_new = x.reading.incarnation != reading.incarnation || !x.reading.alive;
    if (is_new) {
      // A new process has no success yet. If a canary still runs on the old process, EndCanary
      // ignores its result for this executor.
      x = {};
      x.kernel.registered_at = x.collective.registered_at = now;
    } else {
      if (reading.launches_succeeded > x.reading.launches_succeeded)
        x.kernel.RecordSuccess(now, config_.interval);
      if (reading.collective_launches_succeeded > x.reading.collective_launches_succeeded) {
        x.collective.RecordSuccess(now, config_.interval);
      }
    }
    x.reading = reading;
    x.read_at = now;
  }
}

std::map<std::string, std::vector<Health::Executor*>> Health::ExecutorsByKind() {
  std::map<std::string, std::vector<Executor*>> groups;
  for (auto& [name, x] : executors_) {
    if (x.takes_work()) groups[x.reading.device_kind].push_back(&x);
  }
  return groups;
}

Canary Health::StartCanary(CanaryKind kind, const std::vector<Executor*>& on) {
  Canary canary;
  canary.id = ++last_canary_;
  canary.kind = kind;
  for (Executor* x : on) {
    x->canary = canary.id;
    canary.executors.emplace_back(x->reading.name, x->reading.incarnation);
    canary.devices.insert(canary.devices.end(), x->reading.devices.begin(),
                          x->reading.devices.end());
  }
  running_[canary.id] = canary;
  return canary;
}

std::vector<Canary> Health::TakeDue(absl::Time now) {
  std::vector<Canary> due;
  if (stopping_ || config_.interval <= absl::ZeroDuration()) return due;
  for (auto& [kind, group] : ExecutorsByKind()) {
    for (Executor* x : group) {
      if (x->may_get_canary() && x->kernel.next_due_at <= now)
        due.push_back(StartCanary(CanaryKind::kKernel, {x}));
    }
    // A stuck executor would block the others in a collective. So a collective canary starts only
    // if each executor has passed a kernel canary, or ended a launch, recently.
    size_t devices = 0;
    bool all_ready = true, is_due = false;
    for (const Executor* x : group) {
      devices += x->reading.devices.size();
      all_ready = all_ready && x->may_get_canary() && !x->kernel.failed &&
                  now - x->kernel.last_success_at <= config_.interval;
      is_due = is_due || x->collective.next_due_at <= now;
    }
    if (all_ready && is_due && devices > 1)
      due.push_back(StartCanary(CanaryKind::kCollective, group));
  }
  return due;
}

void Health::EndCanary(uint64_t id, CanaryResult result, const std::string& why, absl::Time now) {
  const auto it = running_.find(id);
  TESSERA_CHECK(it != running_.end()) << id;
  const Canary canary = std::move(it->second);
  running_.erase(it);
  for (const auto& [name, incarnation] : canary.executors) {
    const auto found = executors_.find(name);
    // If the executor was lost or replaced, the result does not concern the current process.
    if (found == executors_.end() || found->second.canary != id) continue;
    Executor& x = found->second;
    x.canary = 0;
    ProbeHistory& history = canary.kind == CanaryKind::kKernel ? x.kernel : x.collective;
    if (result == CanaryResult::kOk) {
      history.RecordSuccess(now, config_.interval);
    } else if (result == CanaryResult::kSkipped) {
      history.next_due_at = now + config_.retry;
    } else {
      history.RecordFailure(absl::StrCat(NameOf(result), why.empty() ? "" : ": ", why), now,
                            config_.retry);
    }
  }
}

// Returns the first failure among the executors, or OK if at least one has worked recently.
// Evaluate has made sure that some executor takes work. For each executor, silence and a failed
// kernel canary come first, because a failed collective may be another executor's fault. A busy
// executor gets no canaries, so the progress of its launch shows that it works. A new executor does
// not count as failed until `bound` has passed, the time within which every idle device should have
// passed a canary.
Check Health::EvaluateProgress(absl::Time now) const {
  const auto time_since = [now](absl::Time when) {
    return absl::FormatDuration(absl::Trunc(now - when, absl::Milliseconds(1)));
  };
  // The time within which every idle device should have passed a canary.
  const absl::Duration bound = config_.interval + config_.timeout + config_.retry;
  int succeeded = 0;
  const Executor* newcomer = nullptr;
  for (const auto& [name, x] : executors_) {
    if (!x.takes_work()) continue;
    if (!x.responsive()) {
      return {Reason::kUnresponsive,
              absl::StrCat(
                  "executor ", name, " has not answered its worker for ",
                  absl::FormatDuration(absl::Trunc(x.reading.silence, absl::Milliseconds(100))))};
    }
    if (x.kernel.failed) {
      return {Reason::kKernelCanary,
              absl::StrCat("a canary on executor ", name, " did not pass: ", x.kernel.failure)};
    }
    if (x.reading.operations > 0 && x.canary == 0) {
      if (x.reading.progress_age > config_.stall) {
        return {Reason::kNotProgressing,
                absl::StrCat("the operation on executor ", name, " has made no progress for ",
                             absl::FormatDuration(x.reading.progress_age))};
      }
      // The executor is making progress, which counts as success.
      ++succeeded;
      continue;
    }
    if (x.collective.failed) {
      return {Reason::kCollectiveCanary, absl::StrCat("a collective canary with executor ", name,
                                                      " did not pass: ", x.collective.failure)};
    }
    if (x.kernel.succeeded() && now - x.kernel.last_success_at <= bound) {
      ++succeeded;
    } else if (x.kernel.succeeded() || now - x.kernel.registered_at > bound) {
      return {Reason::kKernelCanary,
              absl::StrCat("executor ", name, " has not passed a canary for ",
                           time_since(std::max(x.kernel.last_success_at, x.kernel.registered_at)))};
    } else {
      newcomer = &x;
    }
  }
  if (succeeded > 0) return {};
  return {Reason::kNoSuccessYet, absl::StrCat("executor ", newcomer->reading.name,
                                              " is new and has not passed a canary yet")};
}

Verdict Health::Evaluate(absl::Time now) const {
  Verdict verdict;
  if (stopping_) {
    verdict.live = {Reason::kStopping, "the coordinator is stopping"};
  } else if (now - loop_replied_at_ > config_.loop_timeout) {
    verdict.live = {Reason::kLoopStuck, "the scheduler's loop does not answer"};
  }
  verdict.ready = verdict.progressing = verdict.live;
  if (!verdict.live.ok() || config_.interval <= absl::ZeroDuration()) return verdict;
  const bool any_takes_work = std::any_of(executors_.begin(), executors_.end(),
                                          [](const auto& x) { return x.second.takes_work(); });
  if (!any_takes_work) {
    verdict.ready = verdict.progressing = {Reason::kNoDevices,
                                           "no device accepts work; start or uncordon a worker"};
    return verdict;
  }
  verdict.progressing = EvaluateProgress(now);
  const bool any_responsive = std::any_of(executors_.begin(), executors_.end(), [](const auto& x) {
    return x.second.takes_work() && x.second.responsive();
  });
  if (!any_responsive) verdict.ready = verdict.progressing;
  return verdict;
}

std::vector<SuccessAge> Health::SuccessAges(absl::Time now) const {
  std::vector<SuccessAge> ages;
  std::map<std::string, size_t> devices;
  for (const auto& [name, x] : executors_) {
    if (x.takes_work()) devices[x.reading.device_kind] += x.reading.devices.size();
  }
  for (const auto& [name, x] : executors_) {
    if (!x.takes_work()) continue;
    for (const auto& [kind, history] :
         {std::pair(CanaryKind::kKernel, &x.kernel), {CanaryKind::kCollective, &x.collective}}) {
      // A single device takes part in no collective.
      if (kind == CanaryKind::kCollective && devices[x.reading.device_kind] < 2) continue;
      for (size_t d = 0; d < x.reading.devices.size(); ++d) {
        ages.push_back({x.reading.worker, x.reading.first_device + static_cast<int>(d), kind,
                        now - std::max(history->last_success_at, history->registered_at)});
      }
    }
  }
  return ages;
}

}  // namespace tessera::server::health
