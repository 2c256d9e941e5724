// A model of an executor's process. It keeps the rules of a real executor. Launches, transfers and
// deletions are carried out in the order in which they were sent. A launch of several executors (a
// gang) runs when all members have come to it. A new process of the executor has another
// incarnation and no buffers. Over an outage of the coordinator the process goes on; reports are
// numbered and kept until they are acknowledged, and each stream after the first begins with an
// inventory (worker/rpc/coordinator_stream.h).
//
// The process dies or freezes when a fault of the simulation says so. It reports a violation if the
// coordinator sends a command that it must never send: a launch whose argument or program is not
// there, or a transfer from a buffer that was deleted too early.
#pragma once
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ir/api/worker_link.h"
#include "tests/sim/checker.h"
#include "tests/sim/coordinator.h"
#include "tests/sim/network.h"
#include "tests/sim/world.h"

namespace tessera::sim {

class Executor;

// A file of arrays in the folder that all workers share, or the draft of such a file.
struct File {
  struct Array {
    api::FileArrayInfo info;
    double value = 0;
  };
  enum Part { kMissing, kWritten, kFailed };
  std::vector<Array> arrays;
  std::vector<Part> parts;  // parts of a draft
};
using FileRef = std::shared_ptr<File>;

// The state that all executors share: which processes live, which members have come to the launch
// of a gang, and the folder of files.
struct Fleet {
  struct Gang {
    uint64_t sequence = 0;
    std::vector<Executor*> members;  // members that wait in the gang
  };
  std::map<std::string, Executor*> by_endpoint;  // executors that live
  std::map<uint64_t, Gang> rendezvous;           // launch -> gang
  std::map<std::string, FileRef> files;          // path -> file
  std::map<std::string, FileRef> drafts;         // path and token -> draft
  // Pairs of workers that are cut off from each other -> time at which the cut ends. The two names
  // of a pair are in alphabetical order.
  std::map<std::pair<std::string, std::string>, absl::Time> cuts;
  // Returns whether the operation has not ended, as far as a coordinator knows. If an operation has
  // ended, its launches are being cancelled, and they may find that their arguments are gone.
  std::function<bool(uint64_t operation)> is_live;
  Checker* checker = nullptr;

  void Cut(const std::string& one, const std::string& other, absl::Time until);
  // Returns when the last cut between the two ends, or InfinitePast if there was none.
  absl::Time CutUntil(const std::string& one, const std::string& other) const;
};

class Executor {
 public:
  Executor(World* world, Fleet* fleet, Coordinator* coordinator, Path* path, std::string worker,
           int32_t index, int32_t devices);

  api::ExecutorInfo Info() const;
  const std::string& name() const { return name_; }
  bool alive() const { return alive_; }
  uint64_t incarnation() const { return incarnation_; }
  // Returns one of the launches that run, or 0 if none runs.
  uint64_t running_launch() const {
    return memory_.running.empty() ? 0 : memory_.running.begin()->first;
  }
  // Returns for how long the process has been frozen.
  absl::Duration silence() const;
  // Since when the process has been told to end a launch that it still has.
  absl::Duration told_for() const;
  // Returns the arrays of which the executor holds or expects shards.
  std::set<uint64_t> Arrays() const;

  // ---- Calls of the daemon. ----
  void Start(uint64_t incarnation);
  // The process ends. The buffers are lost, and the gangs that it takes part in fail.
  void Die();
  // The process says farewell and ends, because its daemon has died. While it is frozen it does
  // neither.
  void OutliveDaemon();
  void FreezeFor(absl::Duration time);
  // Calls `pong` once the messages that came earlier are handled.
  void Ping(std::function<void()> pong) { Take(std::move(pong)); }
  void Welcome(const api::Welcome& welcome);
  void ResetStream();

  // A member of the gang's launch is gone, or has left it.
  void LeaveGang(uint64_t launch, const absl::Status& why);

 private:
  using Key = std::pair<uint64_t, int32_t>;  // (array, local device)
  struct Buffer {
    enum { kExpected, kReady, kFailed } state = kExpected;
    double value = 0;
    absl::Status error;
  };
  struct Program {
    std::vector<int> sources;      // for each result, the argument that it equals
    std::vector<int32_t> devices;  // local devices
    bool loaded = false;
  };
  using Members = std::vector<api::ConfigureCommunicator::Member>;
  // A command that waits for its turn on its devices, with the program and the members that it
  // named when it came.
  struct QueuedCommand {
    api::Command command;
    uint32_t devices = 0;  // bit set of local devices
    Program program = {};
    Members members = {};  // members of the communicator; empty if it is not open
  };
  // A launch that has begun.
  struct RunningLaunch {
    uint32_t devices = 0;
    uint64_t generation = 0;
    std::map<Key, Buffer> results = {};
    api::Launch launch = {};  // the launch, for a gang
  };
  struct PendingRead {
    uint64_t stream = 0, request = 0;
  };
  // Work on a file. The process does one piece of work at a time, in the order in which the work
  // came.
  struct FileWork {
    uint64_t launch = 0;  // 0 if the work only looks at a file
    // Continues the work, and returns its result, or nullopt while it is not done.
    std::function<std::optional<absl::Status>()> continue_work;
    // Called when the work has failed. If null, a failure has no consequences.
    std::function<void(const absl::Status& why)> fail = nullptr;
  };

  // Runs `then` after the delay, unless the process has ended meanwhile. If the process is frozen,
  // `then` runs once it continues.
  void Later(absl::Duration delay, std::function<void()> then);
  // Takes a message from a socket. Messages are handled in order, and only while the process is not
  // frozen.
  void Take(std::function<void()> message);
  void HandleWaiting();

  // ---- Streams and reports. ----
  void Attach(const api::Welcome& welcome);
  // Attaches again after a while, unless another stream was begun meanwhile.
  void AttachAgain(uint64_t stream);
  void OnCommand(uint64_t stream, uint64_t epoch, const api::Command& command);
  void Report(api::ReportBody body);
  // Answers a request that came on this stream. If the stream has ended, nobody waits for the
  // answer.
  void Answer(uint64_t stream, api::ReportBody body);
  void Answer(const PendingRead& reader, absl::StatusOr<ir::Array> value);
  void SendWaitingReports();
  void Acknowledge(uint64_t through);
  // Returns the shards that waiting deletions will free.
  std::set<Key> PendingDeletions() const;
  api::ExecutorInventory Inventory() const;

  // ---- Commands. ----
  void CarryOut(const api::Command& command);
  void On(const api::LoadProgram& c);
  void On(const api::ConfigureCommunicator& c);
  void On(const api::Launch& c);
  void On(const api::Transfer& c);
  void On(const api::WriteBuffer& c);
  void On(const api::ReadBuffer& c);
  void CheckSequence(uint64_t sequence);
  void Expect(uint64_t array, int32_t device);
  void Resolve(const Key& key, Buffer buffer);
  // Begins the commands whose turn it is on their devices.
  void Advance();
  bool BeginNext();
  void BeginQueued(const QueuedCommand& next);
  uint32_t AllDevices() const { return (1u << devices_) - 1; }
  bool Runs(uint64_t launch) const { return memory_.running.count(launch) > 0; }
  void Delete(uint64_t array, int32_t device);
  void Begin(const api::Launch& launch, const QueuedCommand& queued);
  void BeginGang(const api::Launch& launch, const Members& generation);
  // All members have come. They run once they reach each other, or their connections break.
  void RunGang(uint64_t launch);
  void Run(const api::Launch& launch, std::map<Key, Buffer> results);
  // `began_at` is the time at which the transfer's turn came.
  void Begin(const api::Transfer& transfer, absl::Time began_at);
  void Copy(const api::Transfer& transfer, double value);
  void End(uint64_t launch, const absl::Status& status, bool inputs_kept);
  void Cancel(uint64_t launch, const absl::Status& why);

  // ---- Files (executor_files.cc). ----
  void On(const api::SaveShards& c);
  void On(const api::LoadShards& c);
  void On(const api::InspectFile& c);
  // Returns the value of a buffer. It stays valid if the buffer is deleted before it is read.
  std::shared_ptr<Buffer> Retain(const Key& key);
  std::optional<absl::Status> WriteShards(const api::SaveShards& c, File& draft,
                                          const std::vector<std::shared_ptr<Buffer>>& sources);
  std::optional<absl::Status> Publish(const api::SaveShards& c, const FileRef& draft);
  absl::Status ReadShards(const api::LoadShards& c);
  void QueueFileWork(FileWork work);
  void WorkOnFile(absl::Duration pause);

  World* const world_;
  Fleet* const fleet_;
  Coordinator* const coordinator_;
  Path* const path_;
  const std::string worker_, name_;
  const int32_t index_, devices_;
  uint64_t incarnation_ = 0;
  bool alive_ = false;
  absl::Time frozen_since_, frozen_until_ = absl::InfinitePast();
  std::deque<std::function<void()>> inbox_;

  // The memory of the process, which is lost with it.
  struct Memory {
    uint64_t stream = 0;   // number of the last stream
    uint64_t epoch = 0;    // epoch of the last welcome
    api::Welcome welcome;  // the last welcome
    std::shared_ptr<Uplink> uplink;
    std::deque<api::Report> journal;
    size_t num_sent = 0;  // number of reports of the journal that were sent
    uint64_t last_report = 0;
    std::map<Key, Buffer> buffers;
    std::map<Key, uint64_t> deleted;                  // deleted shard -> epoch of its deletion
    std::map<Key, std::vector<PendingRead>> readers;  // reads that wait for a buffer
    std::map<uint64_t, Program> programs;
    std::map<uint64_t, Members> generations;
    // The generations in which a launch failed or was cancelled. They stay failed.
    std::set<uint64_t> failed_generations;
    // The launches that have not been reported -> their sequence and generation.
    std::map<uint64_t, std::pair<uint64_t, uint64_t>> unreported;
    std::deque<QueuedCommand> queue;
    std::map<uint64_t, RunningLaunch> running;
    std::deque<FileWork> file_work;  // work on files; the first is under way
    // Copies whose value is still to come.
    std::map<Key, std::vector<std::shared_ptr<Buffer>>> retained;
    std::set<uint64_t> cancelled;
    std::map<uint64_t, absl::Time> told;  // when each launch that runs was cancelled
    uint64_t last_sequence = 0;
  };
  Memory memory_;
};

}  // namespace tessera::sim
