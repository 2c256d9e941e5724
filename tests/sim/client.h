// A model of a client: it uploads, compiles, runs, moves, reads, cancels and deletes at random,
// knows what each array must hold, and checks every answer against that.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "server/core/caller.h"
#include "tests/sim/coordinator.h"
#include "tests/sim/world.h"

namespace tessera::sim {

class Client {
 public:
  Client(World* world, Coordinator* coordinator, std::string tenant);

  // Begins no new work after this.
  void Stop() { stopped_ = true; }
  // After the faults have ended: a run must succeed from upload to read.
  void Probe();
  int64_t operations() const { return operations_; }
  bool probed() const { return probed_; }

 private:
  struct Program {
    uint64_t executable = 0;
    std::vector<int> sources;  // of each result: the argument that it is
    std::vector<api::ArraySpec> in, out;
  };
  struct Array {
    double value = 0;
    api::ArraySpec spec;
  };

  // Sends a request and passes its reply on, each over the network; checks that it is answered in
  // time and with an error that a client may see.
  template <class E>
  void Call(const std::string& what, E event, std::function<void(scheduler::Reply)> then);
  void Act();
  void CompileOne();
  void Upload(const Program& program, std::function<void(uint64_t)> then);
  void Write(uint64_t array, double value, size_t ordinal, size_t shards,
             std::function<void(uint64_t)> then);
  void Execute(const Program& program, std::vector<uint64_t> args, bool donate,
               std::function<void(uint64_t)> then);
  void Read(uint64_t array, std::function<void()> then);
  void Move(uint64_t array);
  void Wait(uint64_t operation);
  const Program& AnyProgram();
  uint64_t AnyArray();

  World* const world_;
  Coordinator* const coordinator_;
  server::core::Caller caller_;
  bool stopped_ = false, probed_ = false;
  int64_t open_ = 0, operations_ = 0;
  std::vector<Program> programs_;
  std::map<uint64_t, Array> arrays_;
  std::vector<uint64_t> recent_;  // operations
};

}  // namespace tessera::sim
