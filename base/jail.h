// Processes untrusted bytes in a process of its own. A request goes in and a reply comes out. Even
// if the bytes take over that process, it can do nothing else.
//
// A jailed process is one of our binaries that calls ServeInJail. It has almost no environment, and
// no open files except the standard error, a socket to its parent and the descriptors that its
// parent gives it. A filter of system calls
// (seccomp, which needs no privileges) leaves it only its memory, the time and that socket: it
// reaches no other file, no network and no other process. The memory and processor time of the
// process are limited. The process ends when its parent ends, even while it works on a request.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/child_process.h"
#include "base/frames.h"
#include "base/unique_fd.h"

namespace tessera {

struct JailOptions {
  std::string binary;
  std::vector<std::string> args;
  std::string title;  // name of the process, which ps shows
  // The memory that a request may use, in addition to the memory of the process at its start.
  int64_t memory_bytes_max = int64_t{4} << 30;
  size_t reply_bytes_max = kFrameBytesMax;
  // A descriptor that becomes readable when calls have to end early; -1 if that never happens.
  int stop_fd = -1;
  // Descriptors that the process also gets, as 4, 5 and so on. They are borrowed.
  std::vector<int> fds = {};
  // The number of threads that work on a request. The limit on processor time is that of one thread
  // times this number.
  int threads = 1;
};

// Says why there is no reply.
struct JailEnd {
  enum class Cause : uint8_t {
    kCrash,       // the process ended by itself, or somebody else killed it
    kMemory,      // the process wanted more than memory_bytes_max
    kCpu,         // the process used more processor time than was left until the deadline
    kWall,        // the deadline passed
    kStopped,     // stop_fd became readable
    kNotStarted,  // the system could not start the process, or could not jail it
  };
  Cause cause = Cause::kCrash;
  std::string how;  // the end in words: "was killed by signal 11 (Segmentation fault)"
  int signal = 0;   // the signal that killed the process; 0 if none did, or if it was ours
};

// The parent's side of a jailed process. Used by one thread at a time.
class JailedProcess {
 public:
  explicit JailedProcess(JailOptions options) : options_(std::move(options)) {}

  // Starts the process unless it runs already. Does not wait until it is ready. Returns INTERNAL if
  // the system has no process or socket left.
  absl::Status Start();
  // Returns whether the process runs. If it ended between two calls, it is forgotten, so that the
  // next call starts another one.
  bool Runs();
  // Returns the reply to the request. Starts the process unless it runs already. Returns nullopt if
  // there is no reply: `end` then says why, and the process is gone. `deadline` is a time of
  // SteadyNow().
  std::optional<std::string> Call(std::string_view request, absl::Time deadline, JailEnd* end);
  pid_t pid() const { return running_ ? running_->process.pid() : -1; }
  // Sets JailOptions::memory_bytes_max for the next calls.
  void set_memory_bytes_max(int64_t bytes) { options_.memory_bytes_max = bytes; }

 private:
  struct Running {
    ChildProcess process;
    UniqueFd socket;
    FrameParser replies;
    bool ready = false;  // whether the process has reported that it is in its jail
  };
  // Returns how the process ended. It must have closed its socket.
  JailEnd Reap();

  JailOptions options_;
  std::optional<Running> running_;
};

// The main function of a jailed process. It reads requests from the socket with descriptor 3 and
// answers each with the result of `serve`, on this thread, until the socket closes. Returns the
// exit status. `serve` must have opened all its files, and started all its threads, before this
// call.
int ServeInJail(const char* title, const std::function<std::string(std::string_view)>& serve);

// Returns whether system calls are filtered. This is so in all builds except those with sanitizers,
// whose runtimes need system calls that the filter refuses.
bool JailFiltersCalls();

}  // namespace tessera
