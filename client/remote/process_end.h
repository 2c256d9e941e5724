// Work that is done before the process ends: by exit or the end of main, or by SIGINT or SIGTERM
// where the program leaves these to their default. A signal that the program handles, ignores or
// waits for is left alone; so is a child that was forked.
//
// Thread-safe. Everything registered is called once, all within kEndLimit; a second signal does not
// wait for that. After a signal's work the process dies of that signal.
#pragma once
#include <functional>
#include <memory>

#include "absl/time/time.h"

namespace tessera::remote {

inline constexpr absl::Duration kEndLimit = absl::Seconds(2);

class AtProcessEnd {
 public:
  // `close` is called on any thread, with the time by which it must return; never after this object
  // is destroyed.
  explicit AtProcessEnd(std::function<void(absl::Time by)> close);
  // Waits for `close` if it is running.
  ~AtProcessEnd();
  AtProcessEnd(const AtProcessEnd&) = delete;
  AtProcessEnd& operator=(const AtProcessEnd&) = delete;

  // Does now what the end of the process would; for programs that end by _exit.
  static void RunAll();

  struct Entry;  // of the registry

 private:
  const std::shared_ptr<Entry> entry_;
};

}  // namespace tessera::remote
