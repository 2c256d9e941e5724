// Converts the messages of ir/api/service.h to their wire form and back. Stateless; thread-safe.
#pragma once
#include "absl/status/statusor.h"
#include "ir/api/service.h"
#include "ir/verify.h"
#include "tessera/v1/array.pb.h"
#include "tessera/v1/cluster.pb.h"
#include "tessera/v1/operation.pb.h"
#include "tessera/v1/program_service.pb.h"

namespace tessera::ir::serial {

v1::Device ToProto(const api::Device& device);
api::Device FromProto(const v1::Device& proto);

v1::Placement ToProto(const api::Placement& placement);
absl::StatusOr<api::Placement> FromProto(const v1::Placement& proto, const Limits& limits = {});

v1::ArraySpec ToProto(const api::ArraySpec& spec);
absl::StatusOr<api::ArraySpec> FromProto(const v1::ArraySpec& proto, const Limits& limits = {});

v1::Operation ToProto(const api::Operation& operation);
api::Operation FromProto(const v1::Operation& proto);

v1::PendingReason ToProto(const api::PendingReason& reason);

v1::CompileProgramRequest ToProto(const api::CompileRequest& request);
absl::StatusOr<api::CompileRequest> FromProto(const v1::CompileProgramRequest& proto,
                                              const Limits& limits = {});
// Like FromProto, but for a request whose program has been read already, since the message may name
// the program instead of holding it.
absl::StatusOr<api::CompileRequest> CompileRequestOf(const v1::CompileProgramRequest& proto,
                                                     Program program, const Limits& limits = {});
v1::CompileProgramResponse ToProto(const api::CompileReply& reply);
absl::StatusOr<api::CompileReply> FromProto(const v1::CompileProgramResponse& proto,
                                            const Limits& limits = {});

v1::ExecuteProgramRequest ToProto(const api::ExecuteRequest& request);
api::ExecuteRequest FromProto(const v1::ExecuteProgramRequest& proto);
v1::ExecuteProgramResponse ToProto(const api::ExecuteReply& reply);
api::ExecuteReply FromProto(const v1::ExecuteProgramResponse& proto);
v1::ExecutionEnd ToProto(const api::Completion& completion);
absl::StatusOr<api::Completion> FromProto(const v1::ExecutionEnd& proto);

}  // namespace tessera::ir::serial
