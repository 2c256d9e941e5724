// Runs an executor process: an Executor with its own streams to the coordinator, and its data port.
// The socket that the process got from its daemon carries Welcomes, inquiries and pings. Without a
// stream the executor goes on and waits for the next Welcome; its daemon decides for how long.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "base/keepalive.h"
#include "ir/serial/process_report.h"
#include "worker/codegen/host_code.h"
#include "worker/cpu/eval_child.h"
#include "worker/rpc/link.h"
#include "worker/runtime/upload_table.h"

namespace tessera::worker::rpc {

struct ExecutorProcessOptions {
  pid_t parent = 0;
  CoordinatorAccess coordinator;
  std::string worker, host;
  int32_t index = 0;
  uint64_t incarnation = 0;
  std::string gpu;          // id of the GPU; empty for CPU devices
  std::string cuda_plugin;  // empty for the place where it is expected
  bool cuda_tf32 = true;    // DeviceBackendOptions::allow_tf32
  int num_devices = 1;
  int64_t memory_bytes = 0;  // per device; 0 if the backend decides
  std::string data_endpoint, peer_endpoint, peer_data_endpoint;  // as others reach them
  absl::Duration collective_timeout = absl::Seconds(5);
  absl::Duration communicator_timeout = absl::Seconds(60);  // DeviceBackendOptions::opening_timeout
  int64_t queue_bound = 2048;
  int compile_jobs = 0;         // see ExecutorOptions
  bool compile_always = false;  // on CPU devices, compile small programs, too
  UploadTable::Options uploads = {};
  absl::Duration read_timeout = absl::Seconds(30);
  Keepalive keepalive = {};
  // Certificates, key and authorities as PEM: all of them or none. They are used for the data port
  // and, on both sides, for the connections to peers.
  std::string certificates, key, authorities;
  std::string files_dir;  // empty for no files
  std::string dump;       // DumpFolder's path; empty for no dump
  codegen::HostCompilerOptions codegen = {};
  EvalChildOptions eval_child = {};         // the number of threads is that of each device
  ir::serial::ProcessSources sources = {};  // the process's description of itself
  // The descriptors, as the daemon's Supervisor passes them on.
  int control_fd = 3, in_flight_fd = 4, data_fd = 5, peer_fd = 6, metrics_fd = 7;
  int flight_fd = 8;
};

// Serves until the daemon closes the socket, the device is lost or a Drain is done. Returns the
// exit status of the process.
int RunExecutorProcess(const ExecutorProcessOptions& options);

}  // namespace tessera::worker::rpc
