// tessera-coordinator: the coordinator as a program.
//
//   tessera-coordinator --listen 127.0.0.1:0 --port-file /run/tessera/address
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>

#include "base/clock.h"
#include "base/log.h"
#include "base/options.h"
#include "base/status.h"
#include "server/coordinator.h"
#include "server/planner/planner.h"
#include "server/rpc/server.h"
#include "server/store/store.h"

namespace tessera::server {
namespace {

constexpr absl::Duration kShutdownGrace = absl::Seconds(2);

// Whole or not at all, so that whoever waits for the file never reads half an address.
absl::Status WriteAddress(const std::string& path, const std::string& address) {
  const std::string next = path + ".tmp";
  {
    std::ofstream out(next);
    out << address << "\n";
    if (!out.flush()) return MakeError(ErrorKind::kValueError, "port-file: cannot write " + next);
  }
  if (std::rename(next.c_str(), path.c_str()) != 0)
    return MakeError(ErrorKind::kValueError, "port-file: cannot rename " + next + " to " + path);
  return absl::OkStatus();
}

absl::Status Run(const Options& options) {
  LogOptions log;
  TESSERA_ASSIGN_OR_RETURN(log.level, ParseLogLevel(options.log_level));
  log.file = options.log_file;
  // Blocked before any thread starts, so that sigwait below gets them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  TESSERA_RETURN_IF_ERROR(StartLogging(log));

  RealClock clock;
  store::MemoryStore store;
  Coordinator coordinator(options, &clock, planner::MakePlan, &store);
  TESSERA_ASSIGN_OR_RETURN(
      const std::unique_ptr<rpc::Server> server,
      rpc::Serve({.listen = options.listen, .insecure = options.insecure}, &coordinator));
  TESSERA_LOG(INFO) << "coordinator serves" << Field("address", server->address());
  std::cout << "listening on " << server->address() << std::endl;
  if (!options.port_file.empty())
    TESSERA_RETURN_IF_ERROR(WriteAddress(options.port_file, server->address()));

  int signal = 0;
  sigwait(&signals, &signal);
  TESSERA_LOG(INFO) << "coordinator stops" << Field("signal", signal);
  // What waits is answered with SERVER_STOPPING; then no call holds the listener back.
  coordinator.Stop();
  server->Shutdown(kShutdownGrace);
  StopLogging();
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  absl::StatusOr<ParsedOptions> parsed =
      ParseOptions(std::vector<std::string>(argv + 1, argv + argc), ProcessEnv());
  if (parsed.ok() && !parsed->help && !parsed->rest.empty())
    parsed = MakeError(ErrorKind::kValueError,
                       "unknown argument '" + parsed->rest[0] + "'; --help lists the options");
  if (!parsed.ok()) {
    std::cerr << "tessera-coordinator: " << parsed.status().message() << "\n";
    return 2;
  }
  if (parsed->help) {
    std::cout << "usage: tessera-coordinator [--listen HOST:PORT] [--port-file FILE] ...\n\n"
              << OptionsHelp();
    return 0;
  }
  if (const absl::Status status = Run(parsed->options); !status.ok()) {
    std::cerr << "tessera-coordinator: " << status.message() << "\n";
    StopLogging();
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace tessera::server

int main(int argc, char** argv) { return tessera::server::Main(argc, argv); }
