// Fuzzes the coordinator's RPCs. The first byte of the input selects the method, and the rest is
// the request. The request is sent to a coordinator with a reference worker, so that gRPC, the
// gate, decoding, admission, planning and the scheduler may all get it. Each call must be answered
// in time and without an internal error, and the coordinator must go on answering other calls.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/options.h"
#include "server/coordinator/coordinator.h"
#include "server/planner/planner.h"
#include "server/rpc/raw_call.h"
#include "server/rpc/server.h"
#include "server/store/store.h"
#include "server/testing/reference_worker.h"

namespace tessera::server {
namespace {

constexpr char kProbeMethod[] = "tessera.v1.ClusterService/GetCapabilities";
// After this many inputs a new coordinator is started, because the state that inputs leave slows
// down later inputs.
constexpr int kInputsPerCluster = 2000;
// How long the server lets a call wait at most, and the time after which a call counts as stuck.
constexpr absl::Duration kWait = absl::Milliseconds(5), kBound = absl::Seconds(60);

// A coordinator with one worker, which serves on a loopback port.
class Cluster {
 public:
  Cluster()
      : coordinator_(SmallLimits(), &clock_, planner::MakePlan, &store_),
        worker_(std::make_shared<ReferenceWorker>(&coordinator_, "w0", 4)) {
    worker_->Start();
    server_ = rpc::Serve({}, &coordinator_).value();
    caller_ = std::make_unique<rpc::RawCaller>(server_->address());
  }
  ~Cluster() {
    coordinator_.Stop();
    server_->Shutdown(absl::Seconds(1));
  }
  rpc::RawCaller& caller() { return *caller_; }

 private:
  static Options SmallLimits() {
    Options options;
    options.lease_ms = 3'600'000;  // The reference worker sends no heartbeats.
    options.result_wait_ms_max = absl::ToInt64Milliseconds(kWait);
    options.max_ops = 200;
    options.max_rank = 6;
    options.max_mesh_devices = 64;
    return options;
  }

  const RealClock clock_;
  store::MemoryStore store_;
  Coordinator coordinator_;
  const std::shared_ptr<ReferenceWorker> worker_;
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<rpc::RawCaller> caller_;
};

void OneInput(absl::string_view input) {
  static const auto* const methods = new std::vector<std::string>(rpc::AllMethods());
  static auto* const cluster = new std::unique_ptr<Cluster>;
  static int inputs = 0;
  if (input.empty()) return;
  if (inputs++ % kInputsPerCluster == 0) {
    cluster->reset();
    *cluster = std::make_unique<Cluster>();
  }
  const std::string& method = (*methods)[static_cast<uint8_t>(input[0]) % methods->size()];
  const absl::Status end = (*cluster)->caller().Call(method, input.substr(1), kBound);
  TESSERA_CHECK(!absl::IsInternal(end) && !absl::IsUnknown(end)) << method << ": " << end;
  const absl::Status alive = (*cluster)->caller().Call(kProbeMethod, "", kBound);
  TESSERA_CHECK(alive.ok()) << method << " stops the coordinator: " << alive;
}

}  // namespace
}  // namespace tessera::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tessera::server::OneInput({reinterpret_cast<const char*>(data), size});
  return 0;
}
