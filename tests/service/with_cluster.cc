// with_cluster [--devices-per-worker=N] [--device-memory-bytes=N] COMMAND [ARG...]: starts a
// cluster of two workers with two (or N) CPU devices of 64 MiB (or N bytes) each, runs the command
// with the cluster's address in TESSERA_SUITE_ADDRESS, and exits with the command's status.
//
// No process of the cluster may end while the command runs. If one does, with_cluster fails too.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "client/error.h"
#include "tests/service/cluster.h"

extern char** environ;

namespace tessera::service {
namespace {

// This is less than the timeout of the test itself, so that the logs are still printed.
constexpr absl::Duration kPatience = absl::Seconds(280);

// Starts the cluster, runs the command and prints the cluster's logs if anything went wrong. It
// compares the processes of the cluster before and after the command, because an executor that
// crashed and was started again would otherwise go unnoticed.
int Main(std::vector<std::string> command) {
  ClusterOptions options;
  const std::string devices = "--devices-per-worker=", memory = "--device-memory-bytes=";
  while (!command.empty() && absl::StartsWith(command[0], "--")) {
    if (absl::StartsWith(command[0], devices)) {
      options.devices_per_worker = std::atoi(command[0].c_str() + devices.size());
    } else if (absl::StartsWith(command[0], memory)) {
      options.worker_flags.push_back(command[0]);
    } else {
      break;
    }
    command.erase(command.begin());
  }
  if (command.empty() || absl::StartsWith(command[0], "--") || options.devices_per_worker < 1) {
    std::cerr << "usage: with_cluster [--devices-per-worker=N] [--device-memory-bytes=N] "
                 "COMMAND [ARG...]\n";
    return 2;
  }
  // The workers share one folder for saved files, as on a network file system.
  std::string folder = (std::filesystem::temp_directory_path() / "tessera-files-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) {
    std::cerr << "cannot make " << folder << "\n";
    return 1;
  }
  const absl::Cleanup remove = [&folder] {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  };
  options.worker_flags.push_back("--files-dir=" + folder);
  absl::StatusOr<std::unique_ptr<Cluster>> cluster = Cluster::Start(options);
  if (!cluster.ok()) {
    std::cerr << cluster.status().message() << "\n";
    return 1;
  }
  const std::vector<int> before = (*cluster)->member_pids();
  setenv("TESSERA_SUITE_ADDRESS", (*cluster)->address().c_str(), /*overwrite=*/1);
  auto child = Process::Start(command[0], {command.begin() + 1, command.end()}, "/dev/stderr",
                              STDOUT_FILENO);
  if (!child.ok()) {
    std::cerr << child.status().message() << "\n";
    return 1;
  }
  const std::optional<int> wait_status = (*child)->Wait(kPatience);
  const bool same_processes = (*cluster)->member_pids() == before;
  const bool command_passed =
      wait_status && WIFEXITED(*wait_status) && WEXITSTATUS(*wait_status) == 0;
  if (command_passed && same_processes) return 0;
  std::cerr << (*cluster)->Logs();
  if (!wait_status) std::cerr << command[0] << " has not ended in time\n";
  if (!same_processes) std::cerr << "a process of the cluster ended meanwhile\n";
  if (wait_status && WIFSIGNALED(*wait_status))
    std::cerr << command[0] << " died of signal " << WTERMSIG(*wait_status) << "\n";
  return wait_status && WIFEXITED(*wait_status) && WEXITSTATUS(*wait_status) != 0
             ? WEXITSTATUS(*wait_status)
             : 1;
}

}  // namespace
}  // namespace tessera::service

int main(int argc, char** argv) {
  try {
    return tessera::service::Main(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const tessera::Error& e) {
    std::cerr << e.what() << "\n";
    return 1;
  }
}
