// Converts plans and requests for plans to the messages of tessera.jail.v1 and back. Messages from
// a jailed process are trusted no more than messages from a client: they are read with limits, and
// what they contain is verified.
#pragma once
#include "absl/status/statusor.h"
#include "ir/verify.h"
#include "server/core/plan.h"
#include "tessera/jail/v1/jail.pb.h"

namespace tessera::server::jail {

namespace wire = ::tessera::jail::v1;

wire::Limits ToProto(const ir::Limits& limits);
ir::Limits FromProto(const wire::Limits& proto);

// Copies from the request, which stays as it is: the answer is checked against it.
wire::PlanRequest ToProto(const core::PlanRequest& request);
// Errors are MALFORMED_PROGRAM and other errors of reading a program. Called in the jailed process.
// The program is not verified again: the coordinator has done that before it sent the request.
absl::StatusOr<core::PlanRequest> FromProto(const wire::PlanRequest& proto,
                                            const ir::Limits& limits);

wire::Plan ToProto(const core::Plan& plan);
// Returns INTERNAL if the message is not a plan of the request: its device program must verify, and
// the parameters and results of the device program must have the types of shards of the request's
// parameters and results.
absl::StatusOr<core::Plan> FromProto(const wire::Plan& proto, const core::PlanRequest& request,
                                     const ir::Limits& limits);

}  // namespace tessera::server::jail
