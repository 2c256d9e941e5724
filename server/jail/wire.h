// Converts plans and requests for plans to the messages of tessera.jail.v1 and back. Messages of a
// jailed process are read as untrusted, like messages of a client: with limits, and verified.
#pragma once
#include "absl/status/statusor.h"
#include "ir/verify.h"
#include "server/core/plan.h"
#include "tessera/jail/v1/jail.pb.h"

namespace tessera::server::jail {

namespace wire = ::tessera::jail::v1;

wire::Limits ToProto(const ir::Limits& limits);
ir::Limits FromProto(const wire::Limits& proto);

// Copies the request and moves nothing out of it, because the answer is checked against the
// request.
wire::PlanRequest ToProto(const core::PlanRequest& request);
// Errors are MALFORMED_PROGRAM and other errors of reading a program. The program is not verified
// again: the sender has done it.
absl::StatusOr<core::PlanRequest> FromProto(const wire::PlanRequest& proto,
                                            const ir::Limits& limits);

wire::Plan ToProto(const core::Plan& plan);
// Returns INTERNAL if the message is not a plan of the request: its device program must verify, and
// the parameters and results of the device program must be the shards of the program's.
absl::StatusOr<core::Plan> FromProto(const wire::Plan& proto, const core::PlanRequest& request,
                                     const ir::Limits& limits);

}  // namespace tessera::server::jail
