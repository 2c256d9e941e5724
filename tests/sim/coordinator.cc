#include "tests/sim/coordinator.h"

#include <string>
#include <variant>

#include "base/status.h"
#include "server/scheduler/testing/invariants.h"

namespace tessera::sim {
namespace {

constexpr int64_t kEventsMax = 100'000;
constexpr uint64_t kStepsPerCheck = 7;  // of all invariants, which takes longer than a step

scheduler::Config ConfigOf() {
  scheduler::Config config;
  config.ticket_key = "key";
  config.queue_bound = 64;
  config.operations_kept = 50;
  config.write_wait = absl::Seconds(60);
  return config;
}

// What a planner would say of a program that moves its arguments to its results.
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

}  // namespace

Coordinator::Coordinator(World* world)
    : world_(world),
      inbox_(kEventsMax),
      stepper_(ConfigOf(), /*notes=*/false),
      awake_(world->now()) {
  Tick();
}

Clock::Moment Coordinator::Look() {
  return {awake_.Advance(world_->now()), world_->now(), world_->now()};
}

// The driver's thread, which looks at the timer and keeps the time.
void Coordinator::Tick() {
  if (world_->now() >= paused_until_) Process();
  world_->After(AwakeTime::kTickInterval, [this] { Tick(); });
}

void Coordinator::PauseFor(absl::Duration time) {
  world_->Log("the coordinator is suspended for ", absl::FormatDuration(time));
  paused_until_ = world_->now() + time;
  world_->After(time, [this] {
    if (world_->now() < paused_until_) return;
    world_->Log("the coordinator goes on");
    for (const auto& message : std::exchange(waiting_, {})) message();
  });
}

void Coordinator::Arrive(std::function<void()> message) {
  if (world_->now() < paused_until_) return waiting_.push_back(std::move(message));
  message();
}

void Coordinator::Submit(scheduler::Event event, uint64_t request, Done done) {
  ++num_open_;
  auto counted = [this, done = std::move(done)](scheduler::Reply reply) {
    --num_open_;
    done(std::move(reply));
  };
  Arrive([this, event = std::move(event), request, counted] {
    if (absl::Status refused = inbox_.RejectionReason(event); !refused.ok())
      return counted({.request = request, .status = std::move(refused), .body = {}});
    inbox_.AddRequest(request, counted);
    inbox_.Push(Look().now, event);
    Process();
  });
}

void Coordinator::Post(scheduler::Event event) {
  Arrive([this, event = std::move(event)] {
    inbox_.Push(Look().now, event);
    Process();
  });
}

uint64_t Coordinator::AddWorker(const api::Registration& registration, std::shared_ptr<Link> link) {
  const uint64_t session = ++last_session_;
  links_[session] = std::move(link);
  Post(scheduler::WorkerRegistered{session, registration});
  return session;
}

void Coordinator::Report(uint64_t session, api::Report report) {
  Post(scheduler::WorkerReported{session, std::move(report)});
}

void Coordinator::RemoveWorker(uint64_t session, const absl::Status& why) {
  if (links_.erase(session) > 0) Post(scheduler::WorkerGone{session, why});
}

void Coordinator::Process() {
  if (std::exchange(processing_, true)) return;  // the outer one goes on
  while (true) {
    const Clock::Moment at = Look();
    const std::optional<scheduler::Inbox::Arrival> next = inbox_.Next(at.now);
    if (!next) break;
    std::vector<scheduler::Effect> effects = stepper_.Run(next->event, next->came, at);
    if (++steps_ % kStepsPerCheck == 0)
      if (const std::string broken = scheduler::FirstBrokenInvariant(state()); !broken.empty())
        world_->Violate(broken);
    scheduler::ApplyInOrder(effects, [this](scheduler::Effect& effect) { Apply(effect); });
  }
  processing_ = false;
}

void Coordinator::Apply(scheduler::Effect& effect) {
  if (auto* send = std::get_if<scheduler::SendCommand>(&effect)) {
    if (const auto it = links_.find(send->session); it != links_.end()) it->second->Send(*send);
  } else if (auto* reply = std::get_if<scheduler::Reply>(&effect)) {
    if (auto out = inbox_.Answer(std::move(*reply), 0, false)) out->done(std::move(out->reply));
  } else if (auto* plan = std::get_if<scheduler::MakePlan>(&effect)) {
    world_->After(world_->random().Within(absl::Milliseconds(1), absl::Milliseconds(200)),
                  [this, id = plan->executable, request = plan->request] {
                    Post(scheduler::Planned{id, PlanOf(request)});
                  });
  } else if (auto* accept = std::get_if<scheduler::AcceptWorker>(&effect)) {
    if (const auto it = links_.find(accept->session); it != links_.end()) it->second->Accept();
  } else if (auto* drop = std::get_if<scheduler::DropWorker>(&effect)) {
    const auto it = links_.find(drop->session);
    if (it == links_.end()) return;
    const std::shared_ptr<Link> link = it->second;
    links_.erase(it);
    link->Close(drop->why);
  } else if (auto* timer = std::get_if<scheduler::SetTimer>(&effect)) {
    inbox_.SetTimer(timer->when);
  }
}

}  // namespace tessera::sim
