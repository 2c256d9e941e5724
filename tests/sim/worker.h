// Models of a worker daemon and of its executors. They keep the rules of the real ones: an executor
// carries out launches, transfers and deletions in the order sent, a gang's launch runs when all of
// its members have come to it, a reset process has a new incarnation and has lost its buffers.
//
// They break when told to, and they report what a coordinator must never ask of them: a launch
// whose argument or program is not there, a transfer from a buffer that was deleted too early.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ir/api/worker_link.h"
#include "tests/sim/coordinator.h"
#include "tests/sim/world.h"

namespace tessera::sim {

class Executor;
class Worker;

// What the executors have in common: who is there, and who has come to which gang's launch.
struct Fleet {
  std::map<std::string, Executor*> by_endpoint;           // those that live
  std::map<uint64_t, std::vector<Executor*>> rendezvous;  // launch -> members that wait in it
  // Whether the operation has not ended, for the coordinator. What has ended is being cancelled,
  // and may find that its arguments are gone.
  std::function<bool(uint64_t operation)> is_live;
};

class Executor {
 public:
  Executor(World* world, Fleet* fleet, Worker* worker, int32_t index, int32_t devices)
      : world_(world), fleet_(fleet), worker_(worker), index_(index), devices_(devices) {}

  api::ExecutorInfo Info() const;
  std::string Name() const;
  bool alive() const { return alive_; }
  uint64_t incarnation() const { return incarnation_; }
  // How long it has not replied to its daemon.
  absl::Duration silence() const;

  void Start(uint64_t incarnation);
  // The process ends: its buffers are lost, gangs that it ran in fail.
  void Die();
  void FreezeFor(absl::Duration time);
  void Deliver(const api::Command& command);

  // A member of a gang's launch is gone, or has left it.
  void LeaveGang(uint64_t launch, const absl::Status& why);

 private:
  using Key = std::pair<uint64_t, int32_t>;  // (array, local device)
  struct Buffer {
    enum { kExpected, kReady, kFailed } state = kExpected;
    double value = 0;
    absl::Status error;
  };
  struct Program {
    std::vector<int> sources;      // of each result: the argument that it is
    std::vector<int32_t> devices;  // local
  };

  // Runs `then` unless the process has ended meanwhile; when it is frozen, once it goes on.
  void Later(absl::Duration delay, std::function<void()> then);
  void Report(api::ReportBody body);
  void Expect(uint64_t array, int32_t device);
  void Resolve(const Key& key, Buffer buffer);
  // The next command in order.
  void Advance();
  void Begin(const api::Launch& launch);
  void BeginGang(const api::Launch& launch);
  void Run(const api::Launch& launch, std::map<Key, Buffer> results);
  void Begin(const api::Transfer& transfer, absl::Time until);
  void End(uint64_t launch, const absl::Status& status, bool inputs_kept);
  void Cancel(uint64_t launch, const absl::Status& why);

  void On(const api::LoadProgram& c);
  void On(const api::ConfigureCommunicator& c);
  void On(const api::Launch& c);
  void On(const api::Transfer& c);
  void On(const api::WriteBuffer& c);
  void On(const api::ReadBuffer& c);

  World* const world_;
  Fleet* const fleet_;
  Worker* const worker_;
  const int32_t index_, devices_;
  bool alive_ = false;
  uint64_t incarnation_ = 0;
  absl::Time frozen_since_, frozen_until_ = absl::InfinitePast();

  std::map<Key, Buffer> buffers_;
  std::set<Key> deleted_;
  std::map<Key, std::vector<uint64_t>> readers_;  // requests that wait for a buffer
  std::map<uint64_t, Program> programs_;
  std::map<uint64_t, std::vector<api::ConfigureCommunicator::Member>> generations_;
  std::deque<api::Command> queue_;
  uint64_t running_ = 0;  // the launch that runs; 0: none
  std::map<Key, Buffer> running_results_;
  std::set<uint64_t> cancelled_;
  uint64_t last_sequence_ = 0;
};

class Worker {
 public:
  Worker(World* world, Fleet* fleet, Coordinator* coordinator, std::string name, int executors,
         int32_t devices);

  const std::string& name() const { return name_; }
  std::vector<std::unique_ptr<Executor>>& executors() { return executors_; }

  // The network between it and the coordinator breaks; both sides find out by themselves.
  void Cut();
  void Crash(Executor& executor, const std::string& why);
  void Report(int32_t executor, uint64_t incarnation, api::ReportBody body);

  // What the coordinator does with the connection.
  struct Connection;
  void OnAccept(const std::shared_ptr<Connection>& connection);
  void OnCommand(const std::shared_ptr<Connection>& connection,
                 const scheduler::SendCommand& command);
  void OnClose(const std::shared_ptr<Connection>& connection, const absl::Status& why);

  struct Connection final : Link, std::enable_shared_from_this<Connection> {
    explicit Connection(World* world, Worker* owner)
        : worker(owner), up(world, cut), down(world, cut) {}
    void Accept() override { worker->OnAccept(shared_from_this()); }
    void Send(const scheduler::SendCommand& command) override {
      worker->OnCommand(shared_from_this(), command);
    }
    void Close(const absl::Status& why) override { worker->OnClose(shared_from_this(), why); }

    Worker* const worker;
    std::shared_ptr<bool> cut = std::make_shared<bool>(false);
    Pipe up, down;
    api::Registration registration;
    uint64_t session = 0;  // once the coordinator has the registration
    bool accepted = false;
  };

 private:
  void Connect();
  void Disconnect(const std::shared_ptr<Connection>& connection);
  void Beat(const std::shared_ptr<Connection>& connection);
  void Restart(Executor& executor, absl::Duration after);

  World* const world_;
  Coordinator* const coordinator_;
  const std::string name_;
  uint64_t last_incarnation_ = 0;
  std::vector<std::unique_ptr<Executor>> executors_;
  std::shared_ptr<Connection> connection_;  // null: none
};

}  // namespace tessera::sim
