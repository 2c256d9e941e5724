// One life of the coordinator's process. It uses the scheduler's own inbox, outbox, stepper and
// state as the driver does (server/scheduler/driver.h), but in simulated time.
#pragma once
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "server/scheduler/loop.h"
#include "server/scheduler/testing/durable.h"
#include "tests/sim/checker.h"
#include "tests/sim/disk.h"
#include "tests/sim/registration.h"
#include "tests/sim/world.h"

namespace tessera::sim {

class Process {
 public:
  using ReplyFn = std::function<void(scheduler::Reply)>;
  using LostFn = std::function<void()>;

  // `wall_ahead` points to how far the machine's wall clock is ahead of simulated time. `on_fenced`
  // is called when another process has taken over and this process has to end.
  Process(World* world, Disk* disk, Checker* checker, const absl::Duration* wall_ahead,
          std::function<void()> on_fenced);

  bool alive() const { return alive_; }
  uint64_t epoch() const { return store_->life().epoch; }
  bool paused() const { return world_->now() < paused_until_; }
  // Requires: the process is alive.
  scheduler::State& state() { return stepper_->state(); }
  // Returns the number of the last commit that is durable.
  uint64_t durable_commit() const { return inbox_->durable_commit(); }

  void Kill();
  // Pauses the process. Messages that arrive meanwhile wait.
  void PauseFor(absl::Duration time);
  // Gives the process little of the processor: each event takes long, and the others wait.
  void StarveFor(absl::Duration time);
  // Calls `then` soon after a step that sends an irrevocable command (it consumes, deletes or saves
  // something; if `save`, only one that saves) for an operation that is not on the disk yet.
  void OnIrrevocable(bool save, std::function<void()> then) {
    waits_for_save_ = save;
    on_irrevocable_ = std::move(then);
  }
  // Runs the message now or, if the process is paused, when it continues.
  void Arrive(std::function<void()> message);

  // Takes a client's request that arrives. `lost` is called if the process ends before it answers.
  template <class E>
  void Call(E event, ReplyFn done, LostFn lost) {
    event.request = ++last_request_;
    const uint64_t request = last_request_;
    Submit(std::move(event), request, std::move(done), std::move(lost));
  }
  // Like Call, for a request that gets a second reply, `ended`, when its operation ends.
  template <class E>
  void CallToEnd(E event, ReplyFn done, ReplyFn ended, LostFn lost) {
    event.request = ++last_request_;
    const uint64_t request = last_request_;
    event.end_request = ++last_request_;
    Submit(std::move(event), request, std::move(done), std::move(lost), last_request_,
           std::move(ended));
  }
  void Post(scheduler::Event event);

  // ---- For Registration. ----
  std::shared_ptr<Registration> Find(uint64_t registration_id) const;
  uint64_t AddWorker(const api::Registration& registration, std::shared_ptr<Registration> link);
  void RemoveWorker(uint64_t registration_id, const absl::Status& why);
  void DetachExecutor(uint64_t registration_id, int32_t executor, uint64_t incarnation,
                      uint64_t attachment);
  void Report(uint64_t registration_id, const api::Report& report);
  api::Welcome MakeWelcome(uint64_t registration_id);
  // Gives the stream to the process: it ends when the process ends.
  void AddStream(const std::shared_ptr<Stream>& stream) { streams_.push_back(stream); }

  // Returns the number of requests that have not been answered.
  int64_t num_open_requests() const { return static_cast<int64_t>(open_requests_.size()); }

 private:
  void Submit(scheduler::Event event, uint64_t request, ReplyFn done, LostFn lost,
              uint64_t end_request = 0, ReplyFn ended = nullptr);
  // Enters the request into open_requests_. Returns a callback that removes it and calls `done`.
  ReplyFn TrackRequest(uint64_t request, ReplyFn done, LostFn lost);
  void Run();
  void RunStep(const scheduler::Inbox::Arrival& next, const Clock::Moment& at);
  void Apply(scheduler::Effect& effect, uint64_t commits, bool acknowledges_change);
  void Send(const scheduler::SendCommand& send);
  void SendWaitingCommands();
  void AcknowledgeReports();
  void SendReplies(std::vector<scheduler::Inbox::Outgoing> replies);
  void Tick();
  Clock::Moment ReadClocks();

  World* const world_;
  Checker* const checker_;
  const absl::Duration* const wall_ahead_;
  const std::function<void()> on_fenced_;
  Disk::Store* const store_;
  bool alive_ = true, running_ = false;
  absl::Time paused_until_ = absl::InfinitePast();
  absl::Time starved_until_ = absl::InfinitePast(), busy_until_ = absl::InfinitePast();
  // Messages that arrived while the process was paused.
  std::vector<std::function<void()>> waiting_messages_;
  std::function<void()> on_irrevocable_;
  bool waits_for_save_ = false;  // whether on_irrevocable_ waits for a command that saves
  AwakeTime awake_;

  std::optional<scheduler::Inbox> inbox_;
  std::optional<scheduler::Outbox> outbox_;
  std::optional<scheduler::Stepper> stepper_;
  std::optional<scheduler::CommittedRows> committed_;        // all rows so far, durable or not
  std::map<uint64_t, std::shared_ptr<Registration>> links_;  // registration id -> link
  std::vector<std::weak_ptr<Stream>> streams_;
  std::map<uint64_t, LostFn> open_requests_;  // open requests -> their `lost` callbacks
  struct ProcessedReport {
    uint64_t commit = 0, registration_id = 0;
    int32_t executor = 0;
    uint64_t incarnation = 0, number = 0;
  };
  std::deque<ProcessedReport> processed_;
  uint64_t last_request_ = 0, last_registration_id_ = 0, steps_ = 0;
};

}  // namespace tessera::sim
