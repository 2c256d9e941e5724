// Runs the scheduler's real loop in simulated time: messages become events, effects become
// messages, commits go to the disk. It follows driver.cc step by step, and hands each step to the
// checker. coordinator.cc starts and kills processes.
#include "tests/sim/process.h"

#include <algorithm>
#include <exception>
#include <tuple>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "base/status.h"
#include "server/scheduler/testing/invariants.h"

namespace tessera::sim {
namespace {

constexpr int64_t kEventsMax = 100'000;
// The number of steps from one check of all invariants to the next, and from one check of all rows
// to the next. These checks take longer than a step. The invariants are also checked after each
// step of a rare kind.
constexpr uint64_t kStepsPerCheck = 61, kStepsPerRowCheck = 997;
// The time within which most commands reach their executors.
constexpr absl::Duration kIrrevocableMax = absl::Milliseconds(20);

scheduler::Config ConfigOf(const server::core::Life& life) {
  scheduler::Config config;
  config.ticket_key = "key";
  config.queue_bound = 64;
  config.executables_max = 6;  // fewer than the clients use, so that executables are dropped
  config.operations_kept = kOperationsKept;
  config.ticket_lifetime = absl::Seconds(60);
  config.outage_grace = kOutageGrace;
  config.session_lease = kSessionLease;
  config.life = life;
  config.durable = true;
  config.wants_debug = false;
  return config;
}

// Returns the plan that a planner would make for a program that moves its arguments to its results.
server::core::Plan PlanOf(const server::core::PlanRequest& request) {
  server::core::Plan plan;
  const ir::Function& entry = *request.program.entry;
  plan.device_program = request.program.entry;
  plan.mesh = request.program.mesh();
  const auto value = [&](ir::ValueId v, const std::optional<ir::PartitionSpec>& spec) {
    return server::core::PlanValue{entry.type(v).dtype, entry.type(v).shape,
                                   spec.value_or(ir::PartitionSpec{})};
  };
  for (int i = 0; i < entry.num_params; ++i)
    plan.in.push_back(value(i, request.program.in_shardings.at(i)));
  for (size_t r = 0; r < entry.results.size(); ++r)
    plan.out.push_back(value(entry.results[r], request.program.out_shardings.at(r)));
  return plan;
}

// Returns whether the event is of a kind after which all invariants are checked.
bool IsRare(const scheduler::Event& event) {
  const auto* reported = std::get_if<scheduler::WorkerReported>(&event);
  if (reported == nullptr)
    return std::holds_alternative<scheduler::WorkerRegistered>(event) ||
           std::holds_alternative<scheduler::WorkerGone>(event) ||
           std::holds_alternative<scheduler::ExecutorGone>(event) ||
           std::holds_alternative<scheduler::Restore>(event);
  const api::ReportBody& body = reported->report.body;
  return std::holds_alternative<api::LaunchFailed>(body) ||
         std::holds_alternative<api::ExecutorLost>(body) ||
         std::holds_alternative<api::ExecutorFarewell>(body) ||
         std::holds_alternative<api::ExecutorReady>(body) ||
         std::holds_alternative<api::ExecutorInventory>(body);
}

// Returns whether the command has an effect on arrays or files that cannot be taken back.
bool IsIrrevocable(const api::Command& command) {
  const auto* launch = std::get_if<api::Launch>(&command);
  return std::holds_alternative<api::SaveShards>(command) ||
         std::holds_alternative<api::DeleteBuffers>(command) ||
         (launch != nullptr &&
          std::find(launch->donate.begin(), launch->donate.end(), true) != launch->donate.end());
}

}  // namespace

// Starts a life of the coordinator: it opens the disk, which makes older processes stale, and
// begins with the rows that are durable. A stale store means that another process has taken over,
// so this process must end (`on_fenced`).
Process::Process(World* world, Disk* disk, Checker* checker, const absl::Duration* wall_ahead,
                 std::function<void()> on_fenced)
    : world_(world),
      checker_(checker),
      wall_ahead_(wall_ahead),
      on_fenced_(std::move(on_fenced)),
      store_(disk->Open()),
      awake_(world->now()) {
  inbox_.emplace(kEventsMax);
  outbox_.emplace();
  stepper_.emplace(ConfigOf(store_->life()), /*wants_notes=*/false);
  committed_ = disk->rows();
  last_registration_id_ = store_->life().first_id;
  store_->on_durable = [this](uint64_t commit) {
    Arrive([this, commit] {
      SendReplies(inbox_->RecordDurable(commit));
      if (!outbox_->empty()) Post(scheduler::Tick{});
    });
  };
  store_->on_failing = [this](const absl::Status& why) {
    Arrive([this, why] {
      SendReplies(inbox_->RecordFailure(why));
      if (KindOf(why) == ErrorKind::kStaleEpoch) on_fenced_();
    });
  };
  if (!committed_->empty()) Post(scheduler::Restore{disk->Load()});
  Tick();
}

void Process::Kill() {
  if (!alive_) return;
  if (const std::string differs = committed_->FirstDifference(state()); !differs.empty())
    world_->Violate("the rows of the coordinator that ends: ", differs);
  alive_ = false;
  store_->Die();
  waiting_messages_.clear();
  for (const auto& weak : std::exchange(streams_, {}))
    if (const auto stream = weak.lock()) {
      stream->on_end_above = nullptr;
      stream->Break("the coordinator is gone", absl::Milliseconds(50));
    }
  for (const auto& [request, lost] : std::exchange(open_requests_, {}))
    world_->After(world_->random().Within(absl::Milliseconds(1), absl::Milliseconds(50)), lost);
  links_.clear();
  processed_.clear();
  // The parts are destroyed later, because a process that fences itself is in the middle of
  // applying a step's effects.
  world_->After(absl::ZeroDuration(), [this] {
    inbox_.reset();
    outbox_.reset();
    stepper_.reset();
    committed_.reset();
  });
}

Clock::Moment Process::ReadClocks() {
  return {awake_.Advance(world_->now()), world_->now(), world_->now() + *wall_ahead_};
}

// Plays the driver's own thread, which looks at the timer and keeps the time.
void Process::Tick() {
  if (!alive_) return;
  if (!paused()) {
    SendReplies(inbox_->FailCommitsIfSilent(ReadClocks().now, state().config.store_answer));
    Run();
  }
  world_->After(AwakeTime::kTickInterval, [this] { Tick(); });
}

void Process::PauseFor(absl::Duration time) {
  paused_until_ = std::max(paused_until_, world_->now() + time);
  world_->After(time, [this] {
    if (!alive_ || paused()) return;
    // When the pause ends, either thread may come first: the driver's own thread (Run), or the
    // thread that reads the sockets and delivers the waiting messages.
    if (world_->random().OneIn(2)) Run();
    running_ = true;
    for (const auto& message : std::exchange(waiting_messages_, {})) Arrive(message);
    running_ = false;
    Run();
  });
}

void Process::StarveFor(absl::Duration time) {
  starved_until_ = std::max(starved_until_, world_->now() + time);
}

void Process::Arrive(std::function<void()> message) {
  if (!alive_) return;
  if (paused()) return waiting_messages_.push_back(std::move(message));
  message();
}

Process::ReplyFn Process::TrackRequest(uint64_t request, ReplyFn done, LostFn lost) {
  open_requests_[request] = std::move(lost);
  return [this, request, done = std::move(done)](scheduler::Reply reply) {
    open_requests_.erase(request);
    done(std::move(reply));
  };
}

void Process::Submit(scheduler::Event event, uint64_t request, ReplyFn done, LostFn lost,
                     uint64_t end_request, ReplyFn ended) {
  ReplyFn counted = TrackRequest(request, std::move(done), std::move(lost));
  Arrive([this, event = std::move(event), request, counted, end_request, ended]() mutable {
    if (absl::Status refused = inbox_->RejectionReason(event); !refused.ok()) {
      counted({.request = request, .status = refused, .body = {}});
      if (ended) ended({.request = end_request, .status = refused, .body = {}});
      return;
    }
    inbox_->AddRequest(request, std::move(counted));
    if (ended) inbox_->AddRequest(end_request, std::move(ended));
    inbox_->Push(ReadClocks().now, std::move(event));
    Run();
  });
}

void Process::Post(scheduler::Event event) {
  Arrive([this, event = std::move(event)]() mutable {
    inbox_->Push(ReadClocks().now, std::move(event));
    Run();
  });
}

std::shared_ptr<Registration> Process::Find(uint64_t registration_id) const {
  const auto it = links_.find(registration_id);
  return it == links_.end() ? nullptr : it->second;
}

uint64_t Process::AddWorker(const api::Registration& registration,
                            std::shared_ptr<Registration> link) {
  const uint64_t registration_id = ++last_registration_id_;
  links_[registration_id] = std::move(link);
  // The link has to learn its registration id before the scheduler uses the link.
  inbox_->Push(ReadClocks().now, scheduler::WorkerRegistered{registration_id, registration});
  world_->After(absl::ZeroDuration(), [this] { Arrive([this] { Run(); }); });
  return registration_id;
}

void Process::RemoveWorker(uint64_t registration_id, const absl::Status& why) {
  if (links_.erase(registration_id) > 0) Post(scheduler::WorkerGone{registration_id, why});
}

void Process::DetachExecutor(uint64_t registration_id, int32_t executor, uint64_t incarnation,
                             uint64_t attachment) {
  Post(scheduler::ExecutorGone{registration_id, executor, incarnation, attachment,
                               absl::UnavailableError("its connection ended")});
}

void Process::Report(uint64_t registration_id, const api::Report& report) {
  Post(scheduler::WorkerReported{registration_id, report});
}

api::Welcome Process::MakeWelcome(uint64_t registration_id) {
  const scheduler::Config& config = stepper_->state().config;
  api::Welcome welcome;
  welcome.registration_id = registration_id;
  welcome.epoch = epoch();
  welcome.heartbeat = config.heartbeat;
  welcome.lease = config.lease;
  welcome.outage_grace = config.outage_grace;
  welcome.clock = world_->now();
  return welcome;
}

void Process::Run() {
  if (std::exchange(running_, true)) return;  // the outer call continues
  while (alive_ && !paused() && world_->now() >= busy_until_) {
    const Clock::Moment at = ReadClocks();
    const std::optional<scheduler::Inbox::Arrival> next = inbox_->Next(at.now);
    if (!next) break;
    RunStep(*next, at);
    if (world_->now() >= starved_until_) continue;
    const absl::Duration busy =
        world_->random().Within(absl::Milliseconds(10), absl::Milliseconds(150));
    busy_until_ = world_->now() + busy;
    world_->After(busy, [this] { Run(); });
  }
  running_ = false;
}

// Runs one step as Driver::ProcessEvent does, and checks it. The checker sees only the steps of the
// process that owns the disk, since the commits of a replaced process become durable nowhere. An
// exception of the scheduler is a violation, because the scheduler must not throw.
void Process::RunStep(const scheduler::Inbox::Arrival& next, const Clock::Moment& at) {
  const uint64_t before = state().last_commit;
  if (store_->is_newest()) checker_->BeforeStep(next.event, state());
  std::vector<scheduler::Effect> effects;
  try {
    effects = stepper_->Run(next.event, next.arrived_at, at, durable_commit());
  } catch (const std::exception& e) {
    return world_->Violate("a step throws ", e.what());
  }
  const uint64_t commits = state().last_commit;
  const bool acknowledges_change = commits > before || scheduler::AcknowledgesChange(next.event);
  // A replaced process also takes steps, but its commits reach no disk, so nobody hears of them.
  if (store_->is_newest()) checker_->OnStep(next.event, effects, state());
  if (++steps_ % kStepsPerCheck == 0 || IsRare(next.event))
    if (const std::string broken = scheduler::FirstBrokenInvariant(state()); !broken.empty())
      world_->Violate(broken);
  SendWaitingCommands();
  scheduler::ApplyRepliesLast(effects, [&](scheduler::Effect& effect) {
    if (alive_) Apply(effect, commits, acknowledges_change);
  });
  if (!alive_) return;
  if (steps_ % kStepsPerRowCheck == 0)
    if (const std::string differs = committed_->FirstDifference(state()); !differs.empty())
      world_->Violate("the rows: ", differs);
  SendWaitingCommands();
  const auto* reported = std::get_if<scheduler::WorkerReported>(&next.event);
  if (reported == nullptr) return;
  const api::Report& report = reported->report;
  if (report.number != 0)
    processed_.push_back(
        {commits, reported->registration_id, report.executor, report.incarnation, report.number});
  if (std::holds_alternative<api::Heartbeat>(report.body)) AcknowledgeReports();
}

void Process::AcknowledgeReports() {
  std::map<std::tuple<uint64_t, int32_t, uint64_t>, uint64_t> last_report;
  for (; !processed_.empty() && processed_.front().commit <= durable_commit();
       processed_.pop_front()) {
    const ProcessedReport& report = processed_.front();
    last_report[{report.registration_id, report.executor, report.incarnation}] = report.number;
  }
  for (const auto& [executor, number] : last_report)
    if (const auto link = Find(std::get<0>(executor)))
      link->Acknowledge(std::get<1>(executor), std::get<2>(executor), number);
}

void Process::Send(const scheduler::SendCommand& send) {
  if (const auto link = Find(send.registration_id))
    link->Send(send.executor, send.incarnation, send.attachment, send.command);
}

void Process::SendWaitingCommands() {
  if (outbox_->empty()) return;
  for (const scheduler::SendCommand& send : outbox_->Take(durable_commit())) Send(send);
}

void Process::SendReplies(std::vector<scheduler::Inbox::Outgoing> replies) {
  for (auto& [done, reply] : replies) done(std::move(reply));
}

// Applies one effect, like Driver::ApplyEffect and Driver::SendReplies. Planning takes a random
// time. The first irrevocable command of an operation that is not durable triggers on_irrevocable_,
// at which a fault may kill the process.
void Process::Apply(scheduler::Effect& effect, uint64_t commits, bool acknowledges_change) {
  if (auto* send = std::get_if<scheduler::SendCommand>(&effect)) {
    if (commits > durable_commit() && IsIrrevocable(send->command) &&
        (!waits_for_save_ || std::holds_alternative<api::SaveShards>(send->command)))
      if (auto then = std::exchange(on_irrevocable_, nullptr))
        world_->After(world_->random().Within(absl::Milliseconds(1), kIrrevocableMax), then);
    if (outbox_->PassOrKeep(*send, commits, durable_commit())) Send(*send);
  } else if (auto* reply = std::get_if<scheduler::Reply>(&effect)) {
    if (const ReplyFn done =
            inbox_->PassOrHold(*reply, commits, acknowledges_change, ReadClocks().now))
      done(std::move(*reply));
  } else if (auto* plan = std::get_if<scheduler::MakePlan>(&effect)) {
    world_->After(world_->random().Within(absl::Milliseconds(1), absl::Milliseconds(200)),
                  [this, id = plan->executable, request = plan->request] {
                    Post(scheduler::Planned{id, PlanOf(request)});
                  });
  } else if (auto* accept = std::get_if<scheduler::AcceptWorker>(&effect)) {
    if (const auto link = Find(accept->registration_id)) link->Accept(accept->adopted);
  } else if (auto* drop = std::get_if<scheduler::DropWorker>(&effect)) {
    const auto link = Find(drop->registration_id);
    if (link == nullptr) return;
    world_->Log("the coordinator drops a worker: ", std::string(drop->why.message()));
    if (store_->is_newest() && absl::StrContains(drop->why.message(), "it was silent"))
      checker_->OnCountedAsAway(link->worker());
    links_.erase(drop->registration_id);
    link->Close(drop->why);
  } else if (auto* commit = std::get_if<scheduler::Commit>(&effect)) {
    scheduler::SharedCommit shared(std::move(*commit));
    committed_->Apply(shared);
    store_->Commit(std::move(shared));
  } else if (auto* timer = std::get_if<scheduler::SetTimer>(&effect)) {
    inbox_->SetTimer(timer->when);
  }
}

}  // namespace tessera::sim
