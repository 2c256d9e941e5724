// Writes the planner's stages to the files of --dump.
#pragma once
#include "base/dump_folder.h"
#include "server/core/plan.h"

namespace tessera::server::core {

// Returns a planner that plans as `plan` does and writes the program after each stage to `folder`:
// FOLDER/program_HASH_NAME/01_verify.txt and so on. HASH is the beginning of the program's
// structural hash, so that planning a program again replaces its files. Returns `plan` itself if
// `folder` is disabled. `folder` outlives the planner.
PlanFn WithDump(PlanFn plan, DumpFolder* folder);

}  // namespace tessera::server::core
