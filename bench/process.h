// A child process of a benchmark: started with pipes for its output, killed and reaped at the end,
// also when the benchmark dies.
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
  // Runs args[0]. Its standard input is what WriteLine gives it, its standard output comes to
  // ReadLine, and its standard error is ours.
  static absl::StatusOr<Process> Start(const std::vector<std::string>& args);
  Process(Process&& other) noexcept;
  Process& operator=(Process&&) = delete;
  ~Process();

  // The next line of its output, without the newline.
  absl::StatusOr<std::string> ReadLine(absl::Duration timeout);
  // Short lines, to a process that reads them.
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

// The folder of the running program.
std::string OwnFolder();

}  // namespace tessera::bench
