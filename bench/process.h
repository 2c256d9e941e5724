// A child process of a benchmark, with pipes for its input and output. The destructor stops the
// child with SIGTERM, kills it if it does not end, and reaps it. The child also dies with the
// benchmark.
//
// Thread-compatible. The child dies with the thread that started it, so start it on the main
// thread.
#pragma once
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tessera::bench {

class Process {
 public:
  // Runs args[0] with these arguments. WriteLine writes to the child's stdin and ReadLine reads its
  // stdout. The child shares the benchmark's stderr.
  static absl::StatusOr<Process> Start(const std::vector<std::string>& args);
  Process(Process&& other) noexcept;
  Process& operator=(Process&&) = delete;
  ~Process();

  // Returns the next line of the child's output, without the newline. Returns DEADLINE_EXCEEDED if
  // nothing comes within `timeout`, and UNAVAILABLE if the child has ended.
  absl::StatusOr<std::string> ReadLine(absl::Duration timeout);
  // Writes a short line to the child's stdin. Blocks while the pipe is full.
  absl::Status WriteLine(const std::string& line);

 private:
  Process(std::string name, int pid, int input, int output)
      : name_(std::move(name)), pid_(pid), input_(input), output_(output) {}

  std::string name_;
  int pid_ = -1;
  int input_ = -1;
  int output_ = -1;
  std::string unread_;
};

// Returns the directory of this executable.
std::string OwnFolder();

}  // namespace tessera::bench
