// Callbacks that run before the process ends: at exit, at the end of main, and at SIGINT and
// SIGTERM if the program has not changed their default action. Forked children do not run them.
//
// Thread-safe. Each callback is called once, and all of them together have kCloseTimeout. A second
// signal kills the process at once. After the callbacks that a signal started, the process dies by
// that signal.
#pragma once
#include <functional>
#include <memory>

#include "absl/time/time.h"

namespace tessera::remote {

inline constexpr absl::Duration kCloseTimeout = absl::Seconds(2);

class AtProcessEnd {
 public:
  // Registers `callback`, which may be called on any thread, with the time by which it must return.
  // It is never called after the destructor.
  explicit AtProcessEnd(std::function<void(absl::Time deadline)> callback);
  // Waits for the callback if it is running.
  ~AtProcessEnd();
  AtProcessEnd(const AtProcessEnd&) = delete;
  AtProcessEnd& operator=(const AtProcessEnd&) = delete;

  // Runs all callbacks now. For programs that end by _exit.
  static void RunAll();

  struct Entry;

 private:
  const std::shared_ptr<Entry> entry_;
};

}  // namespace tessera::remote
