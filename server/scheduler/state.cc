#include "server/scheduler/state.h"

#include <algorithm>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "server/scheduler/machine.h"

namespace tessera::server::scheduler {

State Begin(const Config& config) {
  State state;
  state.config = config;
  state.last_id = state.last_sequence = state.last_generation = state.last_session =
      config.life.first_id;
  Machine(state, absl::InfinitePast()).Restore(config.executors);
  return state;
}

std::vector<Effect> Step(State& state, const Event& event, absl::Time now) {
  state.notes.clear();
  Machine machine(state, now);
  std::visit(
      [&](const auto& e) {
        if constexpr (std::is_base_of_v<Request, std::decay_t<decltype(e)>>)
          machine.SetCaller(&e.caller);
        machine.On(e);
      },
      event);
  return machine.Finish();
}

void Machine::SendDeletes() {
  for (auto& [name, arrays] : deletes_)
    if (const Executor& executor = s_.executors.at(name); executor.alive())
      Send(executor, api::DeleteBuffers{std::move(arrays)});
  deletes_.clear();
}

std::vector<Effect> Machine::Finish() {
  if (!s_.draining.empty()) EndDrains();
  SendDeletes();
  if (keep_ && s_.config.keeps_executors)
    effects_.insert(effects_.begin(), KeepExecutors{KnownExecutors()});
  while (static_cast<int64_t>(s_.ended.size() + s_.ended_canaries.size()) >
         s_.config.operations_kept) {
    std::deque<uint64_t>& oldest = s_.ended_canaries.empty() ? s_.ended : s_.ended_canaries;
    s_.operations.erase(oldest.front());
    oldest.pop_front();
  }
  const absl::Time next = s_.timers.empty() ? absl::InfiniteFuture() : s_.timers.begin()->first;
  if (next < s_.armed) {
    s_.armed = next;
    effects_.emplace_back(SetTimer{next});
  }
  return std::move(effects_);
}

void Machine::On(const Tick&) {
  s_.armed = absl::InfiniteFuture();
  while (!s_.timers.empty() && s_.timers.begin()->first <= now_) {
    const auto [when, what] = *s_.timers.begin();
    const auto [kind, id] = what;
    s_.timers.erase(s_.timers.begin());
    switch (kind) {
      case kLeaseTimer: {
        const auto session = s_.registrations.find(id);
        if (session == s_.registrations.end()) break;
        const std::string worker = session->second;
        const absl::Time ends = s_.workers.at(worker).last_seen + s_.config.lease;
        if (ends > now_) {
          Arm(ends, kLeaseTimer, id);
          break;
        }
        const std::string why =
            absl::StrCat("it was silent for ", absl::FormatDuration(s_.config.lease));
        Note(core::LeaseExpired{worker});
        effects_.emplace_back(DropWorker{
            id, MakeError(ErrorKind::kWorkerLost,
                          absl::StrCat("worker ", worker, " is lost: ", why, "; register anew"))});
        LoseWorker(worker, why);
        break;
      }
      case kRequestTimer: {
        const Waiter w = EndWait(id);
        // Of the waits that only a fault makes long.
        const auto late = [this, id = id](const absl::Status& why) {
          Tell("request timed out", {}, why);
          Answer(id, why);
        };
        switch (w.kind) {
          case Waiter::kOperation:
          case Waiter::kChange:
            Answer(id, Describe(s_.operations.at(w.id)));
            break;
          case Waiter::kDrain:
            AnswerWorker(id, w.executor);
            break;
          case Waiter::kEnd:
            Answer(id, Complete(s_.operations.at(w.id)));
            break;
          case Waiter::kCompile: {
            const Executable& x = s_.executables.at(w.id);
            late(NotLoaded(x, "compile", /*callers_time_is_over=*/now_ >= w.latest));
            MissThoseThatLoad(x, absl::StrCat("a compile of ", x.name));
            break;
          }
          case Waiter::kCreate: {
            std::vector<std::string> holders;
            for (int64_t d : w.spec.placement.devices) holders.push_back(ExecutorOf(d).name);
            late(MakeError(
                ErrorKind::kWorkerLost,
                absl::StrCat("array: ", FirstLost(holders), ", and it was not back within ",
                             absl::FormatDuration(s_.config.recovery_wait), "; retry")));
            break;
          }
          case Waiter::kHold:
            break;  // It has no timer.
          case Waiter::kSettled:
            Answer(id, MakeError(ErrorKind::kDeadlineExceeded,
                                 absl::StrCat("array ", w.array, " was donated to operation ", w.id,
                                              ", which has ended and not left its executors yet; "
                                              "ask again")));
            break;
          case Waiter::kInspect:
            late(MakeError(ErrorKind::kDeadlineExceeded,
                           absl::StrCat("files: ", NotInTime(w.executor),
                                        " did not look at the file in time; retry")));
            Miss(w.executor, "a look at a file");
            break;
          case Waiter::kArray:
            Answer(id, MakeError(ErrorKind::kDeadlineExceeded,
                                 absl::StrCat("array ", w.id,
                                              " was not ready within the timeout; ask again")));
            break;
          case Waiter::kShard:
            Answer(id, MakeError(ErrorKind::kDeadlineExceeded,
                                 w.executor.empty()
                                     ? absl::StrCat("array ", w.id,
                                                    " was not ready within the timeout; ask again")
                                     : absl::StrCat("array ", w.id, ": ", NotInTime(w.executor),
                                                    " did not send the shard in time; ask again")));
            if (!w.executor.empty()) Miss(w.executor, absl::StrCat("a read of array ", w.id));
            break;
          case Waiter::kWrite:
            late(MakeError(ErrorKind::kDeadlineExceeded,
                           absl::StrCat("array ", w.id, ": ", NotInTime(w.executor),
                                        " did not take the shard in time")));
            Miss(w.executor, absl::StrCat("a write of array ", w.id));
            break;
        }
        break;
      }
      case kDeadlineTimer:
        if (const Operation& op = s_.operations.at(id); op.loading && op.sequence == 0)
          MissThoseThatLoad(s_.executables.at(op.executable), absl::StrCat("operation ", id));
        Fail(id, MakeError(ErrorKind::kDeadlineExceeded,
                           absl::StrCat("operation ", id, " (", s_.operations.at(id).name,
                                        ") did not end within its deadline of ",
                                        absl::FormatDuration(s_.operations.at(id).time_allowed),
                                        ": ", PendingReason(s_.operations.at(id)))));
        break;
      case kExecutorsTimer:
        ExecutorsLate(id);
        break;
      case kVerdictTimer:
        Fail(id, s_.operations.at(id).peer_error);
        break;
      case kUploadTimer:
        if (auto it = s_.arrays.find(id);
            it != s_.arrays.end() && it->second.state == ArrayState::kWriting) {
          std::set<std::string> silent;
          for (int64_t d : it->second.unwritten) silent.insert(ExecutorOf(d).name);
          for (const std::string& x : silent) Miss(x, absl::StrCat("an upload of array ", id));
          const absl::Status late =
              MakeError(ErrorKind::kDeadlineExceeded,
                        absl::StrCat("array ", id, ": ", it->second.unwritten.size(),
                                     " of its shards were not uploaded within ",
                                     absl::FormatDuration(s_.config.write_wait)));
          Tell("upload timed out",
               {{"array", absl::StrCat(id)},
                {"session", absl::StrCat(NameOfSession(it->second.session))},
                {"tenant", it->second.tenant}},
               late);
          ArrayFailed(id, late);
        }
        break;
      case kSessionTimer:
        SessionTimer(id);
        break;
      case kKillTimer:
        KillThoseThatStay(id);
        break;
      case kSilenceTimer:
        SilenceTimer(id);
        break;
    }
  }
}

void Machine::Answer(uint64_t request, absl::Status error) {
  TESSERA_CHECK(!error.ok());
  const ErrorKind kind = KindOf(error);
  if (caller_ != nullptr && (kind == ErrorKind::kQueueFull || kind == ErrorKind::kLimitExceeded ||
                             kind == ErrorKind::kNotEnoughDevices))
    Tell("request refused", {{"tenant", caller_->tenant}, {"token", caller_->token_name}}, error);
  Reply r;
  r.request = request;
  r.status = std::move(error);
  effects_.emplace_back(std::move(r));
}

void Machine::Send(const Executor& executor, api::Command command) {
  TESSERA_CHECK(executor.alive()) << executor.name;
  effects_.emplace_back(SendCommand{executor.session, executor.info.index,
                                    executor.info.incarnation, std::move(command)});
}

void Machine::Arm(absl::Time when, TimerKind kind, uint64_t id) {
  if (when < absl::InfiniteFuture()) s_.timers.insert({when, {kind, id}});
}
void Machine::Disarm(absl::Time when, TimerKind kind, uint64_t id) {
  s_.timers.erase({when, {kind, id}});
}

void Machine::Wait(uint64_t request, Waiter waiter) {
  switch (waiter.kind) {
    case Waiter::kArray:
    case Waiter::kShard:
    case Waiter::kWrite:
      s_.arrays.at(waiter.id).waiters.insert(request);
      break;
    case Waiter::kCompile:
      s_.executables.at(waiter.id).waiters.insert(request);
      break;
    case Waiter::kOperation:
    case Waiter::kChange:
    case Waiter::kEnd:
    case Waiter::kSettled:
      s_.operations.at(waiter.id).waiters.insert(request);
      break;
    case Waiter::kDrain:
      s_.workers.at(waiter.executor).drains.insert(request);
      break;
    case Waiter::kCreate:
    case Waiter::kInspect:
    case Waiter::kHold:
      break;
  }
  Arm(waiter.until, kRequestTimer, request);
  s_.waiters.emplace(request, std::move(waiter));
}

Waiter Machine::EndWait(uint64_t request) {
  const auto it = s_.waiters.find(request);
  TESSERA_CHECK(it != s_.waiters.end()) << request;
  Waiter w = std::move(it->second);
  s_.waiters.erase(it);
  Disarm(w.until, kRequestTimer, request);
  switch (w.kind) {
    case Waiter::kArray:
    case Waiter::kShard:
    case Waiter::kWrite:
      if (auto a = s_.arrays.find(w.id); a != s_.arrays.end()) a->second.waiters.erase(request);
      break;
    case Waiter::kCompile:
      if (auto e = s_.executables.find(w.id); e != s_.executables.end())
        e->second.waiters.erase(request);
      break;
    case Waiter::kOperation:
    case Waiter::kChange:
    case Waiter::kEnd:
    case Waiter::kSettled:
      s_.operations.at(w.id).waiters.erase(request);
      break;
    case Waiter::kDrain:
      s_.workers.at(w.executor).drains.erase(request);
      break;
    case Waiter::kCreate:
    case Waiter::kInspect:
    case Waiter::kHold:
      break;
  }
  return w;
}

}  // namespace tessera::server::scheduler
