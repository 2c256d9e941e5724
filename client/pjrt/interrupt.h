// Ctrl-C in the framework's process. If the main thread waits for a run when SIGINT arrives, the
// run is cancelled (live_runs.h), because a run that goes on would keep its devices busy.
//
// The plugin puts a handler of its own before the handler of the process, and always calls the
// latter too. So whatever the program does at SIGINT, it still does. The functions are thread-safe.
//
// Reference: docs/decisions/0041-ctrl-c-cancels-what-is-waited-for.md.
#pragma once
#include <cstdint>
#include <functional>

#include "client/pjrt/abi.h"

namespace tessera::pjrt {

// Returns whether the calling thread is the main thread of the process.
bool IsMainThread();

// Sets the function that says whether SIGINT may cancel runs at present. It is called on a thread
// of the plugin. While no function is set, SIGINT cancels nothing.
void SetInterruptFilter(InterruptFilter filter);

// Returns 1, 2, and so on, from one call to the next. Runs are numbered, because the thread that
// cancels runs may be late: a run that began after SIGINT is not to be cancelled.
int64_t NextRunNumber();

// Finds what SIGINT is to cancel, and returns a function that cancels it. `last` is the largest
// number of a run at the time of SIGINT.
using FindInterrupted = std::function<void()> (*)(int64_t last);
// Sets the function that is called at SIGINT if the main thread waits. Both functions are called on
// a thread of the plugin, the second one only if the filter lets SIGINT through.
void SetFindInterrupted(FindInterrupted find);

// A wait of the main thread. While such an object exists that was made on the main thread, SIGINT
// cancels runs. It may be destroyed on any thread. An object that another thread makes has no
// effect.
class MainThreadWait {
 public:
  MainThreadWait();
  MainThreadWait(const MainThreadWait&) = delete;
  MainThreadWait& operator=(const MainThreadWait&) = delete;
  ~MainThreadWait();

  // Returns whether SIGINT has come since this object was made, and the filter has let it through.
  bool interrupted() const;

 private:
  const bool counted_;
  const int64_t interrupts_before_;
};

}  // namespace tessera::pjrt
