// Work on untrusted bytes in a process of its own: a request goes in, a reply comes out, and
// whatever the bytes make of that process, it can do nothing else.
//
// A jailed process is a binary of ours that calls ServeInJail. It has no environment, no files but
// a socket to its parent and the standard error, and a filter of system calls (seccomp, which needs
// no privileges) that leaves it its memory, the time and that socket: no other file, no network, no
// other process. Its memory and its processor time are limited. It ends when its parent ends, even
// while it works.
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
  std::string title;  // which ps shows
  // What a request may take, on top of what the process has when it starts.
  int64_t memory_bytes_max = int64_t{4} << 30;
  size_t reply_bytes_max = kFrameBytesMax;
  // A descriptor that is readable once calls are to end; -1: they never are.
  int stop_fd = -1;
};

// Why there is no reply.
struct JailEnd {
  enum class Cause : uint8_t {
    kCrash,       // the process ended by itself, or was killed by someone else
    kMemory,      // it wanted more than memory_bytes_max
    kCpu,         // it took more processor time than there was until the deadline
    kWall,        // the deadline passed
    kStopped,     // stop_fd became readable
    kNotStarted,  // the system does not let it start, or not jail it
  };
  Cause cause = Cause::kCrash;
  std::string how;  // "was killed by signal 11 (Segmentation fault)"
};

// The parent's side of one such process. One thread at a time.
class JailedProcess {
 public:
  explicit JailedProcess(JailOptions options) : options_(std::move(options)) {}

  // Starts the process unless it runs, and does not wait until it is ready. INTERNAL if the system
  // has no process or socket left.
  absl::Status Start();
  // Whether it runs. One that ended between two calls is forgotten, so that the next call starts
  // another.
  bool Runs();
  // The reply to the request; starts the process unless it runs. Without a reply `end` says why,
  // and the process is gone. `deadline` is by SteadyNow().
  std::optional<std::string> Call(std::string_view request, absl::Time deadline, JailEnd* end);
  pid_t pid() const { return running_ ? running_->process.pid() : -1; }

 private:
  struct Running {
    ChildProcess process;
    UniqueFd socket;
    FrameParser replies;
    bool ready = false;  // it has said that it is in its jail
  };
  // How the process, which has closed its socket, ended.
  JailEnd Reap();

  const JailOptions options_;
  std::optional<Running> running_;
};

// The main function of a jailed process: answers each request of the socket with descriptor 3 by
// `serve`, on this thread, until it closes. Returns the exit status. What `serve` needs of files
// and of the system it must have before.
int ServeInJail(const char* title, const std::function<std::string(std::string_view)>& serve);

// Whether system calls are filtered: in every build but those with sanitizers, whose runtimes need
// some that the filter refuses.
bool JailFiltersCalls();

}  // namespace tessera
