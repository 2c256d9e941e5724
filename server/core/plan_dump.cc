// Wraps the planner where main.cc and embed/ pass it to the coordinator. The files are written
// here, because the planner itself is pure and may run in a jailed process, which opens no files.
#include "server/core/plan_dump.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "ir/program_hash.h"

namespace tessera::server::core {

PlanFn WithDump(PlanFn plan, DumpFolder* folder) {
  if (!folder->enabled()) return plan;
  return [plan = std::move(plan), folder](const PlanRequest& request) {
    constexpr size_t kHashDigits = 12;
    const std::string hash = ir::StructuralHash(request.program).substr(0, kHashDigits);
    ProgramDump dump(folder, absl::StrCat("program_", hash, "_", request.name));
    PlanRequest with_stages = request;
    with_stages.on_stage = [&dump](const PlanStage& stage) { dump.Write(stage.name, stage.text); };
    return plan(with_stages);
  };
}

}  // namespace tessera::server::core
