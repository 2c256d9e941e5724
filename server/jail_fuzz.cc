// Fuzzes both directions of the jail's protocol. The input is read as a request to a jailed
// process, which must answer with a well-formed reply. It is also read as the reply of a jailed
// process that a client has taken over, which the coordinator must refuse unless the reply is a
// plan for the program.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/log.h"
#include "base/status.h"
#include "ir/text.h"
#include "server/jail/jailed_reader.h"
#include "server/jail/wire.h"
#include "server/planner/planner.h"

namespace tessera::server::jail {
namespace {

// Returns the request of which the input may be the plan.
core::PlanRequest MakeRequest() {
  core::PlanRequest request;
  const absl::StatusOr<ir::Program> program = ir::ParseProgram(
      "mesh (data=2)\nfunc main(%x: f32[8] P('data')) -> (f32[8]) {\n  %y = tanh(%x)\n"
      "  return %y\n}\n");
  TESSERA_CHECK_OK(program);
  request.program = *program;
  request.cluster.absent_device_memory_bytes = 1;
  return request;
}

void OneInput(std::string_view input) {
  wire::Reply reply;
  TESSERA_CHECK(reply.ParseFromString(AnswerRequest(input, planner::MakePlan)));
  static const core::PlanRequest* const request = new core::PlanRequest(MakeRequest());
  if (!reply.ParseFromArray(input.data(), static_cast<int>(input.size()))) return;
  const absl::StatusOr<core::Plan> plan = FromProto(reply.plan(), *request, {});
  if (plan.ok()) TESSERA_CHECK(plan->in.size() == 1 && plan->out.size() == 1);
}

}  // namespace
}  // namespace tessera::server::jail

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tessera::server::jail::OneInput({reinterpret_cast<const char*>(data), size});
  return 0;
}
