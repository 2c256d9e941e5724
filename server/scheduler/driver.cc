// The threads around the state machine. The coordinator (server/coordinator/coordinator.h) calls
// Call and Report with requests and reports. The store's thread calls OnDurable and
// OnCommitsFailed. The effects of each step go out as commands on the workers' links, as replies
// through callbacks, as commits to the store, and as requests to the planner's threads.
#include "server/scheduler/driver.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/time/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "base/thread_name.h"
#include "ir/program.h"
#include "server/scheduler/flight.h"

namespace tessera::server::scheduler {
namespace {

// The number of events that a posting thread processes before the driver's own thread takes over.
constexpr int kEventsOfOthersMax = 64;

}  // namespace

Driver::Driver(DriverOptions options, const Clock* clock, core::PlanFn plan)
    : options_(std::move(options)),
      clock_(clock),
      plan_(std::move(plan)),
      stepper_(options_.config, /*wants_notes=*/options_.observer != nullptr),
      inbox_(options_.events_max) {
  {
    absl::MutexLock lock(&mu_);
    last_registration_id_ = options_.config.life.first_id;
  }
  planners_ = std::make_unique<SizedPool>(SizedPool::Options{.threads = options_.plan_threads});
  driver_ = std::thread([this] { Run(); });
}

Driver::~Driver() { Stop(); }

// Takes an event in. If nothing precedes it and there is no runner, this thread processes it at
// once without queueing it, which saves a switch of threads. A rejected request is
// answered outside the lock, because callbacks may call the driver again.
void Driver::Submit(Event&& event, uint64_t request, Done done, uint64_t end_request, Done ended) {
  Clock::Moment moment;
  uint64_t durable_commit = 0;
  absl::Status rejection;
  bool process_now = false;  // whether nothing precedes the event, so that it need not be queued
  {
    absl::MutexLock lock(&mu_);
    if (request != 0) rejection = inbox_.RejectionReason(event);
    if (rejection.ok()) {
      if (request != 0) inbox_.AddRequest(request, std::move(done));
      if (end_request != 0) inbox_.AddRequest(end_request, std::move(ended));
      moment = clock_->ReadAll();
      durable_commit = inbox_.durable_commit();
      process_now = inbox_.WouldBeNext(moment.now) && TryBecomeRunner();
      if (!process_now) {
        inbox_.Push(moment.now, std::move(event));
        if (!TryBecomeRunner()) return;
      }
    }
  }
  if (!rejection.ok()) {
    done(Reply{.request = request, .status = rejection, .body = {}});
    if (end_request != 0) ended(Reply{.request = end_request, .status = rejection, .body = {}});
    return;
  }
  if (process_now) ProcessEvent(event, moment.now, moment, durable_commit);
  ProcessEvents(moment.now, kEventsOfOthersMax);
}

uint64_t Driver::AddWorker(const api::Registration& registration,
                           std::shared_ptr<api::WorkerLink> link) {
  uint64_t registration_id = 0;
  {
    absl::MutexLock lock(&mu_);
    registration_id = ++last_registration_id_;
    links_.emplace(registration_id, std::move(link));
    inbox_.Push(clock_->Now(), WorkerRegistered{registration_id, registration});
    if (!TryBecomeRunner()) return registration_id;
  }
  ProcessEvents(clock_->Now(), kEventsOfOthersMax);
  return registration_id;
}

void Driver::Report(uint64_t registration_id, api::Report report) {
  Post(WorkerReported{registration_id, std::move(report)});
}

void Driver::RemoveWorker(uint64_t registration_id, const absl::Status& why) {
  {
    absl::MutexLock lock(&mu_);
    links_.erase(registration_id);
    inbox_.Push(clock_->Now(), WorkerGone{registration_id, why});
    // If this thread is the runner, the link itself makes this call while the runner uses it. The
    // call cannot wait for the end of that use.
    if (runner_ == std::this_thread::get_id()) return;
    auto unused = [this, registration_id]()
                      ABSL_SHARED_LOCKS_REQUIRED(mu_) { return sending_to_ != registration_id; };
    mu_.Await(absl::Condition(&unused));
    if (!TryBecomeRunner()) return;
  }
  ProcessEvents(clock_->Now(), kEventsOfOthersMax);
}

void Driver::DetachExecutor(uint64_t registration_id, int32_t executor, uint64_t incarnation,
                            uint64_t attachment, const absl::Status& why) {
  Post(ExecutorGone{registration_id, executor, incarnation, attachment, why});
}

void Driver::Stop() {
  std::vector<Inbox::Outgoing> remaining;
  {
    absl::MutexLock lock(&mu_);
    if (inbox_.stopping()) return;
    inbox_.Stop();
    wake_driver_.Signal();
    runner_left_.Signal();
  }
  driver_.join();
  std::map<uint64_t, std::shared_ptr<api::WorkerLink>> links;
  {
    absl::MutexLock lock(&mu_);
    auto idle = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return runner_ == std::thread::id(); };
    mu_.Await(absl::Condition(&idle));
  }
  planners_.reset();  // No thread processes events any more, so no plan is requested any more.
  {
    absl::MutexLock lock(&mu_);
    remaining = inbox_.TakeRequests();
    links.swap(links_);
  }
  for (auto& [done, reply] : remaining) done(std::move(reply));
  for (auto& [registration_id, link] : links) link->Close(StoppingError());
}

bool Driver::TryBecomeRunner() {
  if (runner_ != std::thread::id() || inbox_.stopping()) return false;
  runner_ = std::this_thread::get_id();
  return true;
}

// The loop of the runner. It takes one event at a time under the lock and processes it without the
// lock. A thread that only posted an event stops after `limit` events, so that its own caller gets
// it back. When the runner leaves with events still queued, it wakes the driver's own thread.
void Driver::ProcessEvents(absl::Time now, int limit) {
  while (true) {
    std::optional<Inbox::Arrival> next;
    Clock::Moment moment;
    uint64_t durable_commit = 0;
    {
      absl::MutexLock lock(&mu_);
      sending_to_ = 0;
      if (limit-- > 0 && (!returned_reports_.empty() || inbox_.HasNext(now))) {
        moment = clock_->ReadAll();
        // If the queue is empty, `now` stays as it is: the driver's own thread handles a timer that
        // has become due since.
        if (!inbox_.empty()) now = moment.now;
        // A single returned report before which nothing is due need not be queued.
        if (returned_reports_.size() == 1 && inbox_.WouldBeNext(moment.now) && !inbox_.stopping()) {
          next_returned_report_.swap(returned_reports_);
        } else {
          PushReturnedReports(moment.now);
          next = inbox_.Next(now);
        }
        durable_commit = inbox_.durable_commit();
      }
      if (!next && next_returned_report_.empty()) {
        if (!returned_reports_.empty()) PushReturnedReports(clock_->Now());
        runner_ = std::thread::id();
        runner_left_.Signal();
        if (!inbox_.empty()) wake_driver_.Signal();
        return;
      }
    }
    if (next) {
      ProcessEvent(next->event, next->arrived_at, moment, durable_commit);
    } else {
      ProcessEvent(next_returned_report_[0], moment.now, moment, durable_commit);
      next_returned_report_.clear();
    }
  }
}

void Driver::PushReturnedReports(absl::Time arrived_at) {
  for (Event& event : returned_reports_) inbox_.Push(arrived_at, std::move(event));
  returned_reports_.clear();
}

bool Driver::HasSucceeded(uint64_t operation) {
  absl::MutexLock lock(&mu_);
  // No thread can become the runner while this thread holds the lock.
  if (runner_ != std::thread::id() || inbox_.durable_commit() < stepper_.state().last_commit)
    return false;
  const Operation* const op = stepper_.state().order.Find(operation);
  return op != nullptr && op->state == api::OperationState::kDone;
}

bool Driver::HasEnded(uint64_t operation) {
  absl::MutexLock lock(&mu_);
  if (runner_ != std::thread::id() || inbox_.durable_commit() < stepper_.state().last_commit)
    return false;
  const Operation* const op = stepper_.state().order.Find(operation);
  return op == nullptr || op->ended();
}

// Runs one step and carries out what follows from it. Waiting commands whose commits have become
// durable leave before the step's own commands, since the step counts them as sent
// (RecordCommandsSent). Replies are handed out together after the other effects, under one lock.
// Reports are remembered so that they are acknowledged once the step's commit is durable.
void Driver::ProcessEvent(const Event& event, absl::Time arrived_at, const Clock::Moment& moment,
                          uint64_t durable_commit) {
  const bool observed = options_.observer != nullptr;
  const int64_t began = observed ? absl::GetCurrentTimeNanos() : 0;
  const uint64_t before = stepper_.state().last_commit;
  RecordEvent(event);
  std::vector<Effect> effects = stepper_.Run(event, arrived_at, moment, durable_commit);
  const uint64_t last_commit = stepper_.state().last_commit;
  const bool acknowledges_change =
      options_.config.durable && (last_commit > before || AcknowledgesChange(event));
  if (!outbox_.empty())
    for (SendCommand& send : outbox_.Take(DurableCommit())) Send(send);
  Replies replies;
  const SetTimer* timer = nullptr;
  ApplyRepliesLast(effects, [&](Effect& effect) {
    RecordEffect(effect);
    if (auto* reply = std::get_if<Reply>(&effect)) {
      replies.push_back(reply);
    } else if (auto* set = std::get_if<SetTimer>(&effect)) {
      timer = set;
    } else {
      ApplyEffect(effect, last_commit);
    }
  });
  if (timer != nullptr || !replies.empty())
    SendReplies(replies, timer, last_commit, acknowledges_change, moment.now);
  stepper_.Recycle(std::move(effects));
  commands_wait_ = !outbox_.empty();
  if (commands_wait_) {
    // More commits may have become durable during the step.
    for (SendCommand& send : outbox_.Take(DurableCommit())) Send(send);
    commands_wait_ = !outbox_.empty();
  }
  if (const auto* reported = std::get_if<WorkerReported>(&event)) {
    const api::Report& report = reported->report;
    if (report.number != 0)
      processed_reports_.push_back({last_commit, reported->registration_id, report.executor,
                                    report.incarnation, report.number});
    if (std::holds_alternative<api::Heartbeat>(report.body)) AcknowledgeReports();
  }
  if (!observed) return;
  options_.observer->OnStep(absl::Nanoseconds(absl::GetCurrentTimeNanos() - began),
                            std::holds_alternative<Execute>(event));
  for (const core::Note& note : stepper_.state().notes) options_.observer->OnNote(note);
}

void Driver::AcknowledgeReports() {
  const uint64_t durable_commit = DurableCommit();
  std::map<std::tuple<uint64_t, int32_t, uint64_t>, uint64_t> last;
  for (; !processed_reports_.empty() && processed_reports_.front().commit <= durable_commit;
       processed_reports_.pop_front()) {
    const ProcessedReport& report = processed_reports_.front();
    last[{report.registration_id, report.executor, report.incarnation}] = report.number;
  }
  for (const auto& [of, number] : last) {
    const auto& [registration_id, executor, incarnation] = of;
    WithLink(registration_id,
             [executor = executor, incarnation = incarnation, number = number](
                 api::WorkerLink& link) { link.Acknowledge(executor, incarnation, number); });
  }
}

void Driver::Run() {
  NameThread("scheduler");
  while (true) {
    if (options_.config.durable) AnswerIfStoreIsSilent();
    {
      absl::MutexLock lock(&mu_);
      // The wait is bounded, so that AwakeTime advances, and so that tests can advance their
      // clocks.
      const absl::Duration until =
          std::min(inbox_.timer() - clock_->Now(), AwakeTime::kTickInterval);
      const bool events_wait = runner_ == std::thread::id() && !inbox_.empty();
      if (!inbox_.stopping() && !events_wait && until > absl::ZeroDuration())
        wake_driver_.WaitWithTimeout(&mu_, until);
      if (inbox_.stopping()) return;
      if (inbox_.WouldBeNext(clock_->Now())) continue;
      if (!TryBecomeRunner()) {
        // The runner handles the timer as well.
        runner_left_.WaitWithTimeout(&mu_, AwakeTime::kTickInterval);
        continue;
      }
    }
    ProcessEvents(clock_->Now(), std::numeric_limits<int>::max());
  }
}

void Driver::AnswerIfStoreIsSilent() {
  std::vector<Inbox::Outgoing> out;
  {
    absl::MutexLock lock(&mu_);
    out = inbox_.FailCommitsIfSilent(clock_->Now(), options_.config.store_answer);
  }
  for (auto& [done, reply] : out) done(std::move(reply));
}

template <class Use>
void Driver::WithLink(uint64_t registration_id, const Use& use) {
  std::shared_ptr<api::WorkerLink> link;
  {
    absl::MutexLock lock(&mu_);
    const auto it = links_.find(registration_id);
    if (it == links_.end()) return;  // The worker's loss is already queued.
    link = it->second;
    sending_to_ = registration_id;
  }
  use(*link);
}

void Driver::Send(SendCommand& send) {
  WithLink(send.registration_id, [&](api::WorkerLink& link) {
    if (send.attachment != 0)
      return link.SendOn(send.executor, send.incarnation, send.attachment, std::move(send.command));
    auto& reported = std::get<WorkerReported>(
        returned_reports_.emplace_back(std::in_place_type<WorkerReported>));
    reported.registration_id = send.registration_id;
    if (!link.SendForReport(send.executor, send.incarnation, std::move(send.command),
                            &reported.report))
      returned_reports_.pop_back();
  });
}

uint64_t Driver::DurableCommit() {
  absl::MutexLock lock(&mu_);
  return inbox_.durable_commit();
}

// Carries out one effect. A plan is only queued here, for a thread of planners_, because planning
// may take long.
void Driver::ApplyEffect(Effect& effect, uint64_t last_commit) {
  if (auto* send = std::get_if<SendCommand>(&effect)) {
    if (!options_.config.durable || outbox_.PassOrKeep(*send, last_commit, DurableCommit()))
      Send(*send);
  } else if (auto* plan = std::get_if<MakePlan>(&effect)) {
    const int64_t ops = ir::CountOps(*plan->request.program.entry);
    planners_->Push(ops, [this, make_plan = std::move(*plan)] { Plan(make_plan); });
  } else if (auto* accept = std::get_if<AcceptWorker>(&effect)) {
    WithLink(accept->registration_id, [&](api::WorkerLink& link) { link.Accept(accept->adopted); });
  } else if (auto* drop = std::get_if<DropWorker>(&effect)) {
    std::shared_ptr<api::WorkerLink> link;
    {
      absl::MutexLock lock(&mu_);
      sending_to_ = 0;
      const auto it = links_.find(drop->registration_id);
      if (it == links_.end()) return;
      link = std::move(it->second);
      links_.erase(it);
    }
    link->Close(drop->why);
  } else if (auto* debug = std::get_if<Debug>(&effect)) {
    TESSERA_VLOG << debug->line;
  } else if (auto* commit = std::get_if<Commit>(&effect)) {
    options_.commit(std::move(*commit));
  }
}

void Driver::SendReplies(const Replies& replies, const SetTimer* timer, uint64_t last_commit,
                         bool acknowledges_change, absl::Time now) {
  absl::InlinedVector<std::pair<Done, Reply*>, 4> leaving;
  {
    absl::MutexLock lock(&mu_);
    sending_to_ = 0;
    if (timer != nullptr) {
      if (timer->when < inbox_.timer()) wake_driver_.Signal();
      inbox_.SetTimer(timer->when);
    }
    for (Reply* const reply : replies)
      if (Done done = inbox_.PassOrHold(*reply, last_commit, acknowledges_change, now))
        leaving.emplace_back(std::move(done), reply);
  }
  for (auto& [done, reply] : leaving) done(std::move(*reply));
}

void Driver::OnDurable(uint64_t commit) {
  std::vector<Inbox::Outgoing> out;
  {
    absl::MutexLock lock(&mu_);
    out = inbox_.RecordDurable(commit);
  }
  for (auto& [done, reply] : out) done(std::move(reply));
  // The Tick makes the runner send the commands that waited for these commits.
  if (commands_wait_) Post(Tick{});
}

void Driver::OnCommitsFailed(const absl::Status& why) {
  std::vector<Inbox::Outgoing> out;
  {
    absl::MutexLock lock(&mu_);
    out = inbox_.RecordFailure(why);
  }
  for (auto& [done, reply] : out) done(std::move(reply));
}

void Driver::Plan(const MakePlan& make_plan) {
  const int64_t began = absl::GetCurrentTimeNanos();
  absl::StatusOr<core::Plan> plan = plan_(make_plan.request);
  if (options_.observer != nullptr)
    options_.observer->OnPlan(absl::Nanoseconds(absl::GetCurrentTimeNanos() - began), plan.ok());
  Post(Planned{make_plan.executable, std::move(plan)});
}

}  // namespace tessera::server::scheduler
