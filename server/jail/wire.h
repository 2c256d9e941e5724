// Plans and requests for them to the messages of tessera.jail.v1 and back. What a jailed process
// sends is read as what a client sends: with limits, and verified.
#pragma once
#include "absl/status/statusor.h"
#include "ir/verify.h"
#include "server/core/plan.h"
#include "tessera/jail/v1/jail.pb.h"

namespace tessera::server::jail {

namespace wire = ::tessera::jail::v1;

wire::Limits ToProto(const ir::Limits& limits);
ir::Limits FromProto(const wire::Limits& proto);

// Moves nothing: the request is still needed where an answer is checked.
wire::PlanRequest ToProto(const core::PlanRequest& request);
// MALFORMED_PROGRAM and the like. The program is as verified as it was.
absl::StatusOr<core::PlanRequest> FromProto(const wire::PlanRequest& proto,
                                            const ir::Limits& limits);

wire::Plan ToProto(const core::Plan& plan);
// INTERNAL for what is no plan of the request: a device program that does not verify, or of other
// parameters and results than the shards of the program's.
absl::StatusOr<core::Plan> FromProto(const wire::Plan& proto, const core::PlanRequest& request,
                                     const ir::Limits& limits);

}  // namespace tessera::server::jail
