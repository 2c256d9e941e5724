// The first step of a request in the coordinator. server/coordinator/coordinator.cc calls these
// checks on the caller's thread, so that a malformed or oversized request costs the scheduler's
// thread nothing.
#include "server/admission/admission.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "ir/api/placement.h"

namespace tessera::server::admission {
namespace {

constexpr size_t kDeletesMax = 100'000;
constexpr size_t kNameMax = 256;

absl::Status TooManyError(absl::string_view counted, int64_t count, int64_t limit) {
  return MakeError(ErrorKind::kLimitExceeded,
                   absl::StrCat(counted, ": ", count, ", at most ", limit, " are accepted"));
}

// Checks the fields that device_memory_bytes requires or excludes. Setting it asks for a plan for
// absent devices.
absl::Status CheckAbsentDevices(const api::CompileRequest& request) {
  if (request.device_memory_bytes < 0)
    return MakeError(
        ErrorKind::kValueError,
        absl::StrCat(
            "compile: device_memory_bytes is ", request.device_memory_bytes,
            "; expected at least 1 byte per absent device, or 0 to plan for existing devices"));
  if (request.device_memory_bytes == 0) return absl::OkStatus();
  if (!request.plan_only)
    return MakeError(
        ErrorKind::kValueError,
        "compile: device_memory_bytes is for devices that are absent, on which nothing "
        "runs; ask for the plan alone (validate_only, or ExplainProgram)");
  if (!request.devices.empty() || !request.mesh.empty())
    return MakeError(ErrorKind::kValueError,
                     "compile: device_memory_bytes is for devices that are absent; the request "
                     "also gives existing devices or a named mesh. Give only one of the two");
  return absl::OkStatus();
}

}  // namespace

ir::Limits LimitsOf(const Options& options) {
  ir::Limits limits;
  limits.ops = options.max_ops;
  limits.rank = options.max_rank;
  limits.mesh_devices = options.max_mesh_devices;
  return limits;
}

absl::Status ValidateCompile(const api::CompileRequest& request, const ir::Limits& limits) {
  const ir::Program& program = request.program;
  if (program.entry == nullptr)
    return MakeError(ErrorKind::kMalformedProgram, "compile: there is no program");
  if (program.opset < 1 || program.opset > ir::kOpset)
    return MakeError(ErrorKind::kUnknownOp,
                     absl::StrCat("compile: the program is of op set ", program.opset,
                                  ", this server knows 1 to ", ir::kOpset));
  if (request.name.size() > kNameMax)
    return TooManyError("compile: bytes in the name", static_cast<int64_t>(request.name.size()),
                        kNameMax);
  if (static_cast<int64_t>(request.devices.size()) > limits.mesh_devices)
    return TooManyError("compile: devices", static_cast<int64_t>(request.devices.size()),
                        limits.mesh_devices);
  TESSERA_RETURN_IF_ERROR(CheckAbsentDevices(request));
  return ir::Verify(program, limits);
}

absl::Status ValidateArray(const api::ArraySpec& spec, const ir::Limits& limits) {
  if (static_cast<int64_t>(spec.shape.size()) > limits.rank)
    return TooManyError("array: dims", static_cast<int64_t>(spec.shape.size()), limits.rank);
  int64_t bytes = ir::ByteWidth(spec.dtype);
  for (int64_t d : spec.shape) {
    if (d < 0)
      return MakeError(ErrorKind::kValueError,
                       absl::StrCat("array: a dim has size ", d, "; sizes are 0 or more"));
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(d, 1), &bytes) ||
        bytes >= (int64_t{1} << 62))
      return MakeError(ErrorKind::kLimitExceeded, "array: it has 2^62 bytes or more");
  }
  if (static_cast<int64_t>(spec.placement.devices.size()) > limits.mesh_devices)
    return TooManyError("array: devices", static_cast<int64_t>(spec.placement.devices.size()),
                        limits.mesh_devices);
  return api::CheckPlacement(spec.placement, spec.shape);
}

absl::Status ValidateDelete(size_t arrays) {
  if (arrays > kDeletesMax)
    return TooManyError("delete: arrays in one call", static_cast<int64_t>(arrays), kDeletesMax);
  return absl::OkStatus();
}

absl::Status ValidateExecute(const api::ExecuteRequest& request, const ir::Limits& limits) {
  if (static_cast<int64_t>(request.args.size()) > limits.values_per_op)
    return TooManyError("execute: arguments", static_cast<int64_t>(request.args.size()),
                        limits.values_per_op);
  if (request.time_limit && *request.time_limit <= absl::ZeroDuration())
    return MakeError(ErrorKind::kDeadlineExceeded, "execute: the deadline has passed already");
  return absl::OkStatus();
}

}  // namespace tessera::server::admission
