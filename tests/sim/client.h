// A model of a client. It opens a session, uploads, compiles, runs, moves, reads, saves, loads,
// cancels and deletes at random, and repeats calls that were not answered. It knows what each array
// must hold, and checks every answer against that.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/core/caller.h"
#include "tests/sim/checker.h"
#include "tests/sim/coordinator.h"
#include "tests/sim/network.h"
#include "tests/sim/world.h"

namespace tessera::sim {

class Client {
 public:
  Client(World* world, Coordinator* coordinator, Checker* checker, int index);

  Path& path() { return path_; }
  // After this call the client begins no new work.
  void Stop() { stopped_ = true; }
  // Checks everything that the client was told: reads every array and waits for every operation.
  void Audit();
  // Makes a run that must succeed: compiles a program, uploads its arguments, runs it and reads a
  // result. probed() tells whether it has succeeded.
  void Probe();
  bool probed() const { return probed_; }
  // Returns the number of calls that were begun at least `time` ago and have no answer.
  int64_t NumOpenFor(absl::Duration time) const;

  // ---- Faults. ----
  // Kills the client. Another process of the same tenant follows, and knows nothing of this one.
  void Kill();
  void PauseFor(absl::Duration time) { paused_until_ = world_->now() + time; }
  void LoseRepliesFor(absl::Duration time) { replies_lost_until_ = world_->now() + time; }
  void DuplicateFor(absl::Duration time) { duplicates_until_ = world_->now() + time; }

 private:
  using ReplyFn = std::function<void(const scheduler::Reply& reply)>;
  using SendFn = std::function<void(Process* process, Process::ReplyFn done, Process::LostFn lost)>;

  struct Program {
    uint64_t executable = 0;
    std::vector<int> sources;  // for each result, the argument that it equals
    std::vector<api::ArraySpec> in, out;
  };
  struct Array {
    double value = 0;
    api::ArraySpec spec;
    uint64_t session = 0;
    uint64_t producer = 0;  // operation that produces the array; 0 for an upload
    bool whole = true;      // for an upload, whether every write was acknowledged
    int returns = 0;        // how often the array was donated and came back
  };
  struct DonatedArray {
    Array array;
    uint64_t operation = 0;
    bool is_back = false;  // whether the operation has failed before it began
  };
  // A file that the client has saved or is saving.
  struct File {
    std::map<std::string, double> values;  // name -> value
    bool is_there = false;  // whether the file has these values; if not, its contents are unknown
    uint64_t save = 0;      // saving operation that has not been seen to end
    std::set<uint64_t> loads;    // loading operations that have not been seen to end
    bool is_new = false;         // whether nobody has saved to the path before
    bool has_open_call = false;  // whether a save or load has no answer yet
    bool is_free() const { return save == 0 && loads.empty() && !has_open_call; }
  };
  // A call and its repetitions, until one of them is answered.
  struct Call {
    std::string what;
    SendFn send;
    ReplyFn then;
    bool repeats = false;
    bool ended = false;
    int copies_under_way = 0;  // number of copies that the coordinator may still take
    absl::Time began_at, attempted_at;
    uint64_t life = 0;
  };
  using CallRef = std::shared_ptr<Call>;

  // ---- Calls (client.cc). ----
  // Makes a call. `then` gets the answer. An error UNAVAILABLE without a reason means that there
  // was no answer, so that the effect of the call is unknown.
  template <class E>
  void Ask(const std::string& what, E event, ReplyFn then);
  void BeginCall(CallRef call);
  void Attempt(const CallRef& call);
  void Deliver(const CallRef& call);
  void Receive(const CallRef& call, const scheduler::Reply& reply);
  void OnUnanswered(const CallRef& call, absl::Duration notice);
  void End(const CallRef& call, const scheduler::Reply& reply);
  static bool IsEffectUnknown(const absl::Status& status);

  // ---- The session (client.cc). ----
  void OpenSession();
  void KeepRenewing();
  void KeepHolding();
  void OnSessionLost(uint64_t session);
  // Returns whether the coordinator must still have had the session when it gave the last answer.
  bool IsSafe(uint64_t session) const;
  // Returns how long the coordinator was paused since the session was last renewed.
  absl::Duration NotCounted() const { return coordinator_->not_counted() - not_counted_; }

  // ---- Programs (client_programs.cc). ----
  void HandlePrograms();
  // Continues the upload of these bytes, with at most `chunks_left` chunks.
  void SendChunk(const std::string& bytes, int64_t from, int chunks_left);
  // All bytes have been uploaded. Checks whether they are a program, and asks the coordinator to
  // keep them.
  void CheckProgram(const std::string& bytes, int chunks_left);
  // Called when the coordinator has said that it keeps the program.
  void OnProgramKept(const std::string& bytes);
  void FindProgram(const std::string& sha256);
  void ListPrograms();
  void DeleteProgram(std::string sha256);

  // ---- Files (client_files.cc). ----
  void HandleFiles();
  void Save(const std::string& path);
  void Load(const std::string& path);
  void DescribeSavedFile(const std::string& path);
  // A save or a load has ended or, if `known` is false, its operation is unknown.
  void UpdateFiles(const api::Operation& operation, bool known);

  // ---- Work (client_work.cc). ----
  void Act();
  void ActOnArray(uint64_t array);
  void Describe(uint64_t array);
  void MakeReadOnlyCall();
  void Administer();
  void CompileOne();
  void Upload(const Program& program, std::function<void(uint64_t)> then);
  void Write(uint64_t array, double value, size_t ordinal, size_t shards,
             std::function<void(uint64_t)> then);
  void Execute(const Program& program, std::vector<uint64_t> args, bool donate,
               std::function<void(uint64_t)> then);
  void Cancel(uint64_t operation);
  void Follow(uint64_t operation);
  void TakeBackDonated(const std::map<uint64_t, Array>& donated_args, const absl::Status& status);
  void Read(uint64_t array, std::function<void()> then);
  void CheckError(uint64_t array, const Array& was, const absl::Status& status);
  void CheckDonated(uint64_t array);
  void Delete(uint64_t array);
  void CheckDeleted();
  void Reshard(uint64_t array);
  void Wait(uint64_t operation, bool until_ended);
  void OnOperationSeen(const api::Operation& operation);
  void ListOwnArrays();
  void DescribeForeignArray();
  const Program& AnyProgram();
  uint64_t AnyArray();

  World* const world_;
  Coordinator* const coordinator_;
  Checker* const checker_;
  const int index_;
  server::core::Caller caller_;
  Path path_;
  bool stopped_ = false, probed_ = false;
  absl::Time paused_until_ = absl::InfinitePast(), replies_lost_until_ = absl::InfinitePast(),
             duplicates_until_ = absl::InfinitePast();
  uint64_t life_ = 1, hold_id_ = 0, last_request_ = 0;
  std::multiset<absl::Time> open_calls_;  // times at which the unanswered calls began
  // Time at which the coordinator gave the answer that is being handled.
  absl::Time answered_at_ = absl::InfinitePast();

  // The members below belong to the current process of the client. Kill resets them.
  uint64_t session_ = 0;  // 0 if there is none yet, or for the tenant's own session
  absl::Time safe_until_ = absl::InfinitePast();  // earliest end of the session's lease
  absl::Duration not_counted_;  // value of coordinator_->not_counted() at that time
  std::vector<Program> programs_;
  std::map<uint64_t, Array> arrays_;
  uint64_t last_deleted_ = 0;  // last array whose deletion was acknowledged
  std::map<uint64_t, DonatedArray> donated_;
  // Hash -> bytes of the programs that are kept.
  std::map<std::string, std::string> uploaded_programs_;
  // Hashes of programs that the client has asked to delete.
  std::set<std::string> dropped_programs_;
  std::map<std::string, File> files_;  // path -> file
  std::set<uint64_t> operations_;      // accepted operations that have not been seen to end
};

}  // namespace tessera::sim
