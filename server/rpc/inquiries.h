// Asks the processes of the cluster to report about themselves. Inquiries bypass the scheduler, so
// that a cluster can be examined even if its scheduler is busy.
#pragma once
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ir/serial/process_report.h"
#include "server/rpc/connected_workers.h"
#include "tessera/v1/admin.pb.h"
#include "tessera/v1/worker.pb.h"

namespace tessera::server::rpc {

// The longest time that Inquire waits for answers, whatever `wait` says.
inline constexpr absl::Duration kInquiryWaitMax = absl::Seconds(5);

struct InquiryTarget {
  std::string worker;  // worker whose processes are asked; "" for the coordinator alone
  bool all = false;    // true to ask the coordinator and all connected workers
};

// Asks the processes of the target. Calls `then` once, after at most the shorter of `wait` and
// kInquiryWaitMax, with the answer of each process or the reason why it did not answer. The error
// is WORKER_NOT_FOUND if the worker is not connected. `then` runs on this thread or on one of
// gRPC's. The coordinator's own report comes from `sources`.
void Inquire(ConnectedWorkers& workers, const ir::serial::ProcessSources& sources,
             const InquiryTarget& target, v1::Inquiry inquiry, absl::Duration wait,
             std::function<void(absl::StatusOr<v1::Diagnostics>)> then);

}  // namespace tessera::server::rpc
