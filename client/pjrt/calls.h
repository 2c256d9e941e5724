// Calls of the host that programs make: of their results, when the run has ended.
//
// Reference: docs/decisions/0026.
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

namespace tessera::pjrt {

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

// One thread that makes the calls of runs in the order of the runs. Its destructor drops those that
// have not begun.
class CallsInOrder {
 public:
  CallsInOrder() = default;
  CallsInOrder(const CallsInOrder&) = delete;
  CallsInOrder& operator=(const CallsInOrder&) = delete;
  ~CallsInOrder();

  // Reads the arrays once their run has ended, and makes the calls of the program, which read
  // them; how that ends.
  std::shared_ptr<Outcome> Make(std::shared_ptr<const Compiled> compiled,
                                std::vector<tessera::Array> arrays) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mu_);

  absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<std::function<void()>> waiting_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;  // started with the first
};

}  // namespace tessera::pjrt
