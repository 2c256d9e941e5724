// The coordinator: the scheduler's own inbox, stepper and state, driven by simulated time.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "server/scheduler/loop.h"
#include "tests/sim/world.h"

namespace tessera::sim {

namespace scheduler = server::scheduler;

// A worker's connection as the coordinator sees it.
class Link {
 public:
  virtual ~Link() = default;
  virtual void Accept() = 0;
  virtual void Send(const scheduler::SendCommand& command) = 0;
  virtual void Close(const absl::Status& why) = 0;
};

class Coordinator {
 public:
  using Done = std::function<void(scheduler::Reply)>;

  explicit Coordinator(World* world);

  // A client's request that arrives now.
  template <class E>
  void Call(E event, Done done) {
    event.request = ++last_request_;
    Submit(std::move(event), last_request_, std::move(done));
  }
  uint64_t AddWorker(const api::Registration& registration, std::shared_ptr<Link> link);
  void Report(uint64_t session, api::Report report);
  void RemoveWorker(uint64_t session, const absl::Status& why);
  // The process is suspended: what arrives waits.
  void PauseFor(absl::Duration time);

  scheduler::State& state() { return stepper_.state(); }
  // The requests that have not been answered.
  int64_t num_open() const { return num_open_; }

 private:
  // Runs now, or when the process goes on.
  void Arrive(std::function<void()> message);
  void Submit(scheduler::Event event, uint64_t request, Done done);
  void Post(scheduler::Event event);
  void Process();
  void Apply(scheduler::Effect& effect);
  void Tick();
  Clock::Moment Look();

  World* const world_;
  scheduler::Inbox inbox_;
  scheduler::Stepper stepper_;
  AwakeTime awake_;
  absl::Time paused_until_ = absl::InfinitePast();
  std::vector<std::function<void()>> waiting_;       // while it is paused
  std::map<uint64_t, std::shared_ptr<Link>> links_;  // by session
  uint64_t last_request_ = 0, last_session_ = 0, steps_ = 0;
  int64_t num_open_ = 0;
  bool processing_ = false;
};

}  // namespace tessera::sim
