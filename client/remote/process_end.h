// Callbacks before the process ends: at exit, at the end of main, and at SIGINT and SIGTERM if the
// program has not changed their default action. Forked children do not run them.
//
// Thread-safe. Each callback is called once, all within kCloseTimeout; a second signal kills the
// process at once. After the callbacks of a signal the process dies by that signal.
#pragma once
#include <functional>
#include <memory>

#include "absl/time/time.h"

namespace tessera::remote {

inline constexpr absl::Duration kCloseTimeout = absl::Seconds(2);

class AtProcessEnd {
 public:
  // `callback` is called on any thread, with its deadline; never after the destructor.
  explicit AtProcessEnd(std::function<void(absl::Time deadline)> callback);
  // Waits for the callback while it is running.
  ~AtProcessEnd();
  AtProcessEnd(const AtProcessEnd&) = delete;
  AtProcessEnd& operator=(const AtProcessEnd&) = delete;

  // Runs all callbacks now; for programs that end by _exit.
  static void RunAll();

  struct Entry;

 private:
  const std::shared_ptr<Entry> entry_;
};

}  // namespace tessera::remote
