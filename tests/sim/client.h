// A model of a client: it opens a session, uploads, compiles, runs, moves, reads, saves, loads,
// cancels and deletes at random, repeats calls that were not answered, knows what each array must
// hold, and checks every answer against that.
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
  // Begins no new work after this.
  void Stop() { stopped_ = true; }
  // Looks after all that it was told: reads every array, waits for every operation.
  void Audit();
  // A run must succeed from upload to read.
  void Probe();
  bool probed() const { return probed_; }
  // Calls that have had no answer for so long.
  int64_t OpenFor(absl::Duration time) const;

  // ---- Faults. ----
  // Another process of the same tenant follows, and knows nothing of this one.
  void Kill();
  void PauseFor(absl::Duration time) { paused_until_ = world_->now() + time; }
  void LoseRepliesFor(absl::Duration time) { replies_lost_until_ = world_->now() + time; }
  void DuplicateFor(absl::Duration time) { duplicates_until_ = world_->now() + time; }

 private:
  using Then = std::function<void(const scheduler::Reply& reply)>;
  using Sender = std::function<void(Process* process, Process::Done done, Process::Lost lost)>;

  struct Program {
    uint64_t executable = 0;
    std::vector<int> sources;  // of each result: the argument that it is
    std::vector<api::ArraySpec> in, out;
  };
  struct Array {
    double value = 0;
    api::ArraySpec spec;
    uint64_t session = 0;
    uint64_t producer = 0;  // operation; 0: an upload
    bool whole = true;      // of an upload: every write was acknowledged
    int returns = 0;        // how often it was donated and came back
  };
  struct Donated {
    Array array;
    uint64_t operation = 0;
    bool is_back = false;  // the operation has failed before it began
  };
  // A file that it has saved, or is saving.
  struct File {
    std::map<std::string, double> values;  // by name
    bool is_there = false;                 // with these values; else nothing is known
    uint64_t save = 0;                     // operation that has not been seen to end
    std::set<uint64_t> loads;              // such operations
    bool is_new = false;                   // nobody has saved to the path before
    bool asked = false;                    // a save or load has no answer yet
    bool is_free() const { return save == 0 && loads.empty() && !asked; }
  };
  // A call, with its repetitions.
  struct Call {
    std::string what;
    Sender send;
    Then then;
    bool repeats = false;
    bool ended = false;
    int under_way = 0;  // copies that the coordinator may yet take
    absl::Time began, attempted;
    uint64_t life = 0;
  };
  using CallRef = std::shared_ptr<Call>;

  // ---- Calls (client.cc). ----
  // `then` gets the answer; UNAVAILABLE without a reason: none came, and what the call has done is
  // not known.
  template <class E>
  void Ask(const std::string& what, E event, Then then);
  void Begin(CallRef call);
  void Attempt(const CallRef& call);
  void Deliver(const CallRef& call);
  void Receive(const CallRef& call, const scheduler::Reply& reply);
  void Unanswered(const CallRef& call, absl::Duration notice);
  void End(const CallRef& call, const scheduler::Reply& reply);
  static bool Unknown(const absl::Status& status);

  // ---- The session (client.cc). ----
  void OpenSession();
  void Renew();
  void Hold();
  void SessionLost(uint64_t session);
  // Whether the session must exist as of the last answer.
  bool IsSafe(uint64_t session) const;
  // For how long the coordinator was paused since the session was last renewed.
  absl::Duration NotCounted() const { return coordinator_->not_counted() - not_counted_; }

  // ---- Programs (client_programs.cc). ----
  void HandlePrograms();
  // Goes on with the upload of these bytes, with at most `patience` chunks.
  void SendChunk(const std::string& bytes, int64_t from, int patience);
  // All of them are there: says whether they are a program.
  void CheckProgram(const std::string& bytes, int patience);
  // The coordinator has said that it keeps them.
  void Keeps(const std::string& bytes);
  void FindProgram(const std::string& sha256);
  void ListPrograms();
  void DeleteProgram(std::string sha256);

  // ---- Files (client_files.cc). ----
  void HandleFiles();
  void Save(const std::string& path);
  void Load(const std::string& path);
  void LookAt(const std::string& path);
  // A save or a load has ended, or nobody knows of it any more: not `known`.
  void FileSeen(const api::Operation& operation, bool known);

  // ---- Work (client_work.cc). ----
  void Act();
  void ActOnArray(uint64_t array);
  void Look(uint64_t array);
  void LookAround();
  void Administer();
  void CompileOne();
  void Upload(const Program& program, std::function<void(uint64_t)> then);
  void Write(uint64_t array, double value, size_t ordinal, size_t shards,
             std::function<void(uint64_t)> then);
  void Execute(const Program& program, std::vector<uint64_t> args, bool donate,
               std::function<void(uint64_t)> then);
  void Accepted(const Program& program, const std::vector<Array>& args,
                const api::ExecuteReply& made);
  void Cancel(uint64_t operation);
  void Follow(uint64_t operation);
  void Refused(const std::map<uint64_t, Array>& taken, const absl::Status& status);
  void Read(uint64_t array, std::function<void()> then);
  void CheckError(uint64_t array, const Array& was, const absl::Status& status);
  void CheckDonated(uint64_t array);
  void Delete(uint64_t array);
  void CheckDeleted();
  void Move(uint64_t array);
  void Wait(uint64_t operation, bool until_ended);
  void Seen(const api::Operation& operation);
  void List();
  void Peek();
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
  uint64_t life_ = 1, holds_ = 0, requests_ = 0;
  std::multiset<absl::Time> open_;              // when the calls began that have no answer
  absl::Time answered_ = absl::InfinitePast();  // by the coordinator: the answer at hand

  // Of this life.
  uint64_t session_ = 0;                          // 0: none yet, or the tenant's own
  absl::Time safe_until_ = absl::InfinitePast();  // the session's lease does not end before
  absl::Duration not_counted_;                    // when that was so
  std::vector<Program> programs_;
  std::map<uint64_t, Array> arrays_;
  uint64_t deleted_ = 0;  // the last array that is
  std::map<uint64_t, Donated> donated_;
  std::map<std::string, std::string> uploaded_;  // hash -> bytes, of programs that are kept
  std::set<std::string> dropped_;                // hashes of those that it has asked to delete
  std::map<std::string, File> files_;            // by path
  std::set<uint64_t> operations_;                // that were accepted, and not seen to end
};

}  // namespace tessera::sim
