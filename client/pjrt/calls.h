// Calls of the host that programs make, such as JAX's callbacks and prints. A call without results
// is made when the run has ended, with operands that are results of the run. A call whose results
// the program goes on with is made before the program runs: a part of the program that computes the
// operands of the call runs first.
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

// Keeps the host functions alive that a program calls, for as long as this object lives.
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
struct CallBeforeRun {
  std::string name;
  std::vector<ir::Type> results;
  // The part of the program that computes the call's operands.
  std::shared_ptr<const Session::Executable> executable;
  // Which values `executable` takes: one entry for each argument of the program, then one for each
  // result of earlier calls.
  std::vector<bool> takes;
};

// Plans the parts of `program` that compute the operands of the calls, and removes these operands
// from the results of `program`. Requires that the effects of `program` have been split off, and
// that the operands are its last results but for the `num_printed` values that are printed.
absl::StatusOr<std::vector<CallBeforeRun>> SplitCalls(
    Client& client, const std::vector<ir::stablehlo::HostCall>& calls,
    const std::vector<int64_t>& devices, int num_printed, ir::Program* program);

// Makes the calls that come before a run with the arguments `args`, one after the other. Returns
// their results as arrays that lie where the program takes them, or the error of the first call
// that fails.
absl::StatusOr<std::vector<tessera::Array>> MakeCallsBeforeRun(
    const Compiled& compiled, absl::Span<const tessera::Array> args);

// Returns whether one of these calls stands in a loop whose number of iterations is not known
// before the program runs. If such a loop has very many iterations, the calls of some iterations
// are not made.
bool InLongLoop(const ir::Function& prints, const std::vector<ir::stablehlo::HostCall>& calls);

// Makes the calls of runs on one thread, in the order of the runs. The destructor drops the runs
// whose calls have not begun.
class CallsInOrder {
 public:
  CallsInOrder() = default;
  CallsInOrder(const CallsInOrder&) = delete;
  CallsInOrder& operator=(const CallsInOrder&) = delete;
  ~CallsInOrder();

  // Reads `arrays` once their run has ended, and makes the calls of the program, which take them.
  // Settles `outcome` when all calls have returned.
  void Make(std::shared_ptr<const Compiled> compiled, std::vector<tessera::Array> arrays,
            std::shared_ptr<Outcome> outcome) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mu_);

  absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<std::function<void()>> waiting_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;  // started by the first Make
};

}  // namespace tessera::pjrt
