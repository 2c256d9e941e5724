// Compiles traced programs, and finds in a plan where the values lie that a program marks.
//
// Stateless; thread-safe. Used by the SDK only.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "client/plan/plan_view.h"
#include "client/session.h"
#include "client/trace/trace.h"
#include "ir/api/service.h"
#include "ir/program.h"

namespace tessera::internal {

// Return the plan of a program as a PlanView. The program prints nothing, or is a traced program,
// whose prints are split off first. Throw INTERNAL for a malformed plan.
PlanView PlanViewOf(const ir::Program& program, const api::CompileReply& plan, const Site& site);
PlanView PlanViewOf(const TracedProgram& traced, const api::CompileReply& plan, const Site& site);
// Returns the placements that the plan has for a value, without duplicates.
std::vector<InspectedValue> PlacementsOf(const PlanView& view, const Inspection& inspection);
// Calls the `report` functions of the program's inspections with the placements that `plan` gives.
void ReportInspections(const TracedProgram& traced, const api::CompileReply& plan,
                       const Site& site);
// Compiles the program, then reports its inspections and checks the replication budget. The reply
// of the returned executable contains the plan's explanation if `with_plan`.
std::shared_ptr<const Session::Executable> CompileTraced(Session& session,
                                                         const TracedProgram& traced,
                                                         const std::string& name, bool with_plan,
                                                         const Site& site);

}  // namespace tessera::internal
