// Writes the stages of a backend's compilation as files in the folder of the option --dump.
#pragma once
#include "base/dump_folder.h"
#include "ir/program.h"

namespace tessera::worker::program {

// Begins the dump of a device program with the program itself, as text that ir::ParseProgram can
// read: FOLDER/device_HASH_NAME/01_device_program.txt. HASH is the beginning of its structural
// hash, which the planner's dump shows, too. Build (build.h) adds the later stages. `folder`
// outlives the result; if it is null, nothing is written.
ProgramDump BeginDump(DumpFolder* folder, const ir::Program& program);

}  // namespace tessera::worker::program
