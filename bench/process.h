// A child process of a benchmark with pipes for its input and output. The destructor kills and
// reaps it; it also dies with the benchmark.
//
// Thread-compatible; the child dies with the thread that started it, so start it on the main
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
  // Runs args[0]. WriteLine writes to its stdin, ReadLine reads its stdout, and its stderr is that
  // of the benchmark.
  static absl::StatusOr<Process> Start(const std::vector<std::string>& args);
  Process(Process&& other) noexcept;
  Process& operator=(Process&&) = delete;
  ~Process();

  // The next line of its output, without the newline.
  absl::StatusOr<std::string> ReadLine(absl::Duration timeout);
  // Blocks until the child reads; for short lines.
  absl::Status WriteLine(const std::string& line);

 private:
  Process(std::string name, int pid, int input, int output)
      : name_(std::move(name)), pid_(pid), input_(input), output_(output) {}

  std::string name_;
  int pid_ = -1;
  int input_ = -1;
  int output_ = -1;
  std::string pending_;
};

// The directory of this executable.
std::string OwnFolder();

}  // namespace tessera::bench
