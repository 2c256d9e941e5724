#include "tests/sim/worker.h"

#include "base/status.h"

namespace tessera::sim {
namespace {

constexpr absl::Duration kHeartbeat = absl::Milliseconds(300);
constexpr absl::Duration kNoticeMax = absl::Seconds(5);  // of a broken connection

}  // namespace

Worker::Worker(World* world, Fleet* fleet, Coordinator* coordinator, std::string name,
               int executors, int32_t devices)
    : world_(world), coordinator_(coordinator), name_(std::move(name)) {
  for (int i = 0; i < executors; ++i) {
    executors_.push_back(std::make_unique<Executor>(world, fleet, this, i, devices));
    executors_.back()->Start(++last_incarnation_);
  }
  Connect();
}

void Worker::Connect() {
  for (const auto& executor : executors_)
    if (!executor->alive()) return world_->After(absl::Milliseconds(20), [this] { Connect(); });
  const auto connection = connection_ = std::make_shared<Connection>(world_, this);
  api::Registration& registration = connection->registration;
  registration.worker = name_;
  registration.host = "host-" + name_;
  for (const auto& executor : executors_) registration.executors.push_back(executor->Info());
  connection->up.Send([this, connection] {
    world_->Log(name_, " registers");
    connection->session = coordinator_->AddWorker(connection->registration, connection);
  });
}

void Worker::OnAccept(const std::shared_ptr<Connection>& connection) {
  connection->down.Send([this, connection] {
    connection->accepted = true;
    // What has happened to the processes since the registration was sent.
    for (const api::ExecutorInfo& was : connection->registration.executors) {
      const Executor& executor = *executors_.at(was.index);
      if (executor.alive() && executor.incarnation() == was.incarnation) continue;
      Report(was.index, was.incarnation, api::ExecutorLost{"it ended during registration", 0, ""});
      if (executor.alive())
        Report(was.index, executor.incarnation(), api::ExecutorReady{executor.Info()});
    }
    Beat(connection);
  });
}

void Worker::OnCommand(const std::shared_ptr<Connection>& connection,
                       const scheduler::SendCommand& command) {
  connection->down.Send([this, command] {
    Executor& executor = *executors_.at(command.executor);
    if (!executor.alive() || executor.incarnation() != command.incarnation) return;
    if (const auto* kill = std::get_if<api::KillExecutor>(&command.command)) {
      Crash(executor, kill->reason);
    } else {
      executor.Deliver(command.command);
    }
  });
}

void Worker::OnClose(const std::shared_ptr<Connection>& connection, const absl::Status& why) {
  world_->Log("the coordinator drops ", name_, ": ", std::string(why.message()));
  connection->down.Send([this, connection] { Disconnect(connection); });
}

void Worker::Beat(const std::shared_ptr<Connection>& connection) {
  if (connection_ != connection) return;
  api::Heartbeat beat;
  for (const auto& executor : executors_)
    if (executor->alive())
      beat.executors.push_back({.executor = executor->Info().index,
                                .progress_age = executor->silence(),
                                .silence = executor->silence()});
  Report(0, 0, std::move(beat));
  world_->After(kHeartbeat, [this, connection] { Beat(connection); });
}

void Worker::Report(int32_t executor, uint64_t incarnation, api::ReportBody body) {
  const auto connection = connection_;
  if (connection == nullptr || !connection->accepted) return;
  connection->up.Send(
      [this, connection, report = api::Report{executor, incarnation, std::move(body)}] {
        coordinator_->Report(connection->session, report);
      });
}

void Worker::Cut() {
  const auto connection = connection_;
  if (connection == nullptr || *connection->cut) return;
  world_->Log("the network of ", name_, " is cut");
  *connection->cut = true;
  world_->After(world_->random().Within(absl::ZeroDuration(), kNoticeMax), [this, connection] {
    coordinator_->RemoveWorker(connection->session, absl::UnavailableError("its connection ended"));
  });
  world_->After(world_->random().Within(absl::ZeroDuration(), kNoticeMax),
                [this, connection] { Disconnect(connection); });
}

void Worker::Disconnect(const std::shared_ptr<Connection>& connection) {
  if (connection_ != connection) return;
  *connection->cut = true;
  connection_ = nullptr;
  // It commands them no more, so nothing of theirs may go on.
  for (const auto& executor : executors_) {
    executor->Die();
    Restart(*executor, world_->random().Within(absl::Milliseconds(50), absl::Milliseconds(500)));
  }
  world_->After(world_->random().Within(absl::Milliseconds(50), absl::Seconds(2)), [this] {
    if (connection_ == nullptr) Connect();
  });
}

void Worker::Crash(Executor& executor, const std::string& why) {
  if (!executor.alive()) return;
  world_->Log(executor.Name(), " dies: ", why);
  const api::ExecutorInfo info = executor.Info();
  executor.Die();
  Report(info.index, info.incarnation, api::ExecutorLost{why, 0, ""});
  Restart(executor, world_->random().Within(absl::Milliseconds(50), absl::Seconds(2)));
}

void Worker::Restart(Executor& executor, absl::Duration after) {
  world_->After(after, [this, &executor] {
    if (executor.alive()) return;
    executor.Start(++last_incarnation_);
    Report(executor.Info().index, executor.incarnation(), api::ExecutorReady{executor.Info()});
  });
}

}  // namespace tessera::sim
