// Asks processes of the cluster what they say of themselves: beside the scheduler, so that a
// cluster whose scheduler is busy can be looked at.
#pragma once
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ir/serial/process_report.h"
#include "server/rpc/worker_service.h"
#include "tessera/v1/admin.pb.h"

namespace tessera::server::rpc {

// The longest that one round of questions takes, whatever the caller says.
inline constexpr absl::Duration kInquiryWait = absl::Seconds(5);

struct InquiryTarget {
  std::string worker;  // its daemon and executors; empty: the coordinator alone
  bool all = false;    // the coordinator, and all that are connected
};

// Calls `then` once: with what each said or why it did not, not later than `wait` and kInquiryWait.
// WORKER_NOT_FOUND: the worker is not connected.  `then` runs on this thread or one of gRPC's.
// `sources`: what the coordinator says of itself.
void Inquire(WorkerService& workers, const ir::serial::ProcessSources& sources,
             const InquiryTarget& target, v1::Inquiry inquiry, absl::Duration wait,
             std::function<void(absl::StatusOr<v1::Diagnostics>)> then);

}  // namespace tessera::server::rpc
