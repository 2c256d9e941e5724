// Starts the embedded cluster. The client (client/embedded.h) finds TesseraStartEmbedded as a weak
// symbol and calls it for Session::Embedded, so that programs that only connect to a cluster need
// not link this library.
#include "embed/embed.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/dump_folder.h"
#include "base/options.h"
#include "base/status.h"
#include "server/coordinator/bound_service.h"
#include "server/coordinator/coordinator.h"
#include "server/core/plan_dump.h"
#include "server/planner/planner.h"
#include "server/store/store.h"
#include "worker/codegen/host_code.h"
#include "worker/cpu/cpu_backend.h"
#include "worker/runtime/local_worker.h"
#include "worker/telemetry/in_flight.h"

namespace tessera::embed {
namespace {

static_assert(kEmbeddedDevicesMax == worker::InFlightPage::kMaxDevices);
// A worker in this process cannot fail alone, so a late heartbeat only means that the machine is
// busy. The lease is therefore long.
constexpr int64_t kLeaseMs = 60'000;
constexpr int64_t kOperationsKept = 64;

Options CoordinatorOptions() {
  Options options;
  options.lease_ms = std::max(options.lease_ms, kLeaseMs);
  // Few records of ended operations are kept: nobody lists them, and the memory of a few records
  // stays in the processor's cache.
  options.operations_kept = kOperationsKept;
  return options;
}

// The parts of the cluster. They are destroyed in reverse order: first the worker, because it calls
// the coordinator.
struct Cluster {
  Options options = CoordinatorOptions();
  RealClock clock;
  server::store::MemoryStore store;
  DumpFolder dump{ProcessEnv()("TESSERA_DUMP").value_or("")};
  server::Coordinator coordinator{options,
                                  &clock,
                                  server::core::WithDump(server::planner::MakePlan, &dump),
                                  &store,
                                  /*observer=*/nullptr,
                                  /*tenant_folders=*/false};
  const std::unique_ptr<api::Service> service = server::MakeBoundService(
      &coordinator, {}, /*session=*/0, absl::InfiniteFuture(),
      /*before_wait=*/[this] { worker->executor().RunWaitingBriefLaunch(); });
  std::unique_ptr<worker::LocalWorker> worker;
};

}  // namespace

// Checks the options, and starts the coordinator and then the worker. The returned pointer points
// to the service and owns the whole cluster, so that the cluster lives until the last copy of the
// pointer is gone.
absl::StatusOr<std::shared_ptr<api::Service>> Start(const EmbeddedOptions& options) {
  if (options.devices < 1 || options.devices > kEmbeddedDevicesMax) {
    return MakeError(ErrorKind::kValueError,
                     absl::StrCat("embedded cluster: 1 to ", kEmbeddedDevicesMax,
                                  " devices are expected, not ", options.devices));
  }
  if (options.memory_bytes_per_device < 0) {
    return MakeError(ErrorKind::kValueError,
                     "embedded cluster: memory_bytes_per_device must not be negative");
  }
  auto cluster = std::make_shared<Cluster>();
  worker::LocalWorkerOptions local;
  local.name = "embedded";
  local.collective_timeout = absl::Milliseconds(cluster->options.collective_timeout_ms);
  local.queue_bound = cluster->options.queue_bound;
  local.files_dir = !options.files_dir.empty() ? options.files_dir
                                               : ProcessEnv()("TESSERA_FILES_DIR").value_or(".");
  TESSERA_ASSIGN_OR_RETURN(
      cluster->worker,
      worker::LocalWorker::Start(
          local,
          worker::MakeCpuBackend(
              {.num_devices = options.devices,
               .memory_bytes = options.memory_bytes_per_device,
               .codegen = worker::codegen::HostCompilerOptionsFrom(cluster->options),
               .dump = &cluster->dump}),
          &cluster->coordinator));
  api::Service* const service = cluster->service.get();
  return std::shared_ptr<api::Service>(std::move(cluster), service);
}

}  // namespace tessera::embed

extern "C" void TesseraStartEmbedded(const tessera::EmbeddedOptions& options,
                                     absl::StatusOr<std::shared_ptr<tessera::api::Service>>* out) {
  *out = tessera::embed::Start(options);
}
