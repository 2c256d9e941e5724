// Prints the planner's stages as text, for core::PlanRequest::on_stage.
#pragma once
#include <string>
#include <string_view>

#include "ir/program.h"
#include "server/core/plan.h"
#include "server/planner/propagate.h"

namespace tessera::server::planner {

// Passes the program after each stage to the request's on_stage. The request must outlive the
// StageReporter.
class StageReporter {
 public:
  explicit StageReporter(const core::PlanRequest& request) : request_(request) {}

  // Returns whether the request has an on_stage. If not, Report does nothing.
  bool wanted() const { return request_.on_stage != nullptr; }
  // Reports a stage. `remarks` are lines that become comments before the program.
  void Report(std::string_view stage, const ir::Program& program,
              std::string_view remarks = "") const;
  void Report(std::string_view stage, const ir::FunctionRef& device_program,
              std::string_view remarks = "") const;

 private:
  const core::PlanRequest& request_;
};

// Returns a line for each value of the program and its regions. The line has the value's type with
// its sharding, and says what decided the sharding. Requires: `s` is the result of Propagate.
std::string ShardingsText(const ir::Function& f, const FunctionShardings& s);

// Returns the type with its sharding, such as "f32[8@data,512]".
std::string ShardedTypeText(const ir::Type& type, const ir::DimAxes& sharding);

}  // namespace tessera::server::planner
