// Calls of the host that programs make: of their results, when the run has ended. Those whose
// results a program goes on with are made before it runs, of what parts of it compute that run
// first.
//
// References: docs/decisions/0026, 0028.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/array.h"
#include "client/pjrt/abi.h"
#include "client/pjrt/event.h"
#include "client/session.h"
#include "ir/stablehlo/import.h"

namespace tessera::pjrt {

struct Client;
struct Compiled;

void SetHostCallbacks(HostCallback callback, HoldCallback hold);

// Holds what a program calls, as long as it lives.
class HeldCallbacks {
 public:
  explicit HeldCallbacks(std::vector<std::string> names);
  HeldCallbacks(const HeldCallbacks&) = delete;
  HeldCallbacks& operator=(const HeldCallbacks&) = delete;
  ~HeldCallbacks();

 private:
  const std::vector<std::string> names_;
};

// A call whose results the program goes on with.
struct AskedCall {
  std::string name;
  std::vector<ir::Type> results;
  // The part of the program that computes the call's operands.
  std::shared_ptr<const Session::Executable> executable;
  // Which it takes of the program's arguments, and then of what earlier calls returned.
  std::vector<bool> takes;
};

// Plans those parts of `program`, whose last results are the operands of the calls, and takes these
// results off it. It has no effects any more.
absl::StatusOr<std::vector<AskedCall>> SplitCalls(Client& client,
                                                  const std::vector<ir::stablehlo::HostCall>& calls,
                                                  const std::vector<int64_t>& devices,
                                                  int num_printed, ir::Program* program);

// Makes the calls, one after the other, of runs with these arguments: what they returned, put where
// the program takes it. The error of the first that fails.
absl::StatusOr<std::vector<tessera::Array>> Ask(const Compiled& compiled,
                                                absl::Span<const tessera::Array> args);

// Whether a loop whose number of turns is not known has one of these calls in it: not all its turns
// are told.
bool InLongLoop(const ir::Function& prints, const std::vector<ir::stablehlo::HostCall>& calls);

// One thread that makes the calls of runs in the order of the runs. Its destructor drops those that
// have not begun.
class CallsInOrder {
 public:
  CallsInOrder() = default;
  CallsInOrder(const CallsInOrder&) = delete;
  CallsInOrder& operator=(const CallsInOrder&) = delete;
  ~CallsInOrder();

  // Reads the arrays once their run has ended, and makes the calls of the program, which read
  // them; `outcome` is how that ends.
  void Make(std::shared_ptr<const Compiled> compiled, std::vector<tessera::Array> arrays,
            std::shared_ptr<Outcome> outcome) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mu_);

  absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<std::function<void()>> waiting_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;  // started with the first
};

}  // namespace tessera::pjrt
