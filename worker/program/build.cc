// Runs the stages that turn a function into a step program, one after the other: lowering, fusion,
// buffer assignment, overlap of collectives and row tiles. Each stage has a file of its own and
// knows nothing of the later ones. After each stage that makes or changes the step program, Build
// writes it to the dump.
#include "worker/program/build.h"

#include <string_view>
#include <utility>

#include "base/status.h"
#include "worker/program/assign.h"
#include "worker/program/fuse.h"
#include "worker/program/lower.h"
#include "worker/program/overlap.h"
#include "worker/program/row_tile.h"

namespace tessera::worker::program {

absl::StatusOr<StepProgram> Build(const ir::Function& function, const BuildOptions& options,
                                  ProgramDump* dump) {
  TESSERA_ASSIGN_OR_RETURN(LoweredFunction lowered, Lower(function, options));
  FusedFunction fused = Fuse(&lowered);
  StepProgram program = Assign(std::move(lowered), std::move(fused));
  const auto write = [&](std::string_view stage) {
    if (dump != nullptr && dump->enabled()) dump->Write(stage, program.ToString());
  };
  write("assign");
  PlanOverlap(&program);
  write("overlap");
  PlanRowTiles(&program);
  write("row_tiles");
  return program;
}

}  // namespace tessera::worker::program
