// Begins the dump of a device program. Each backend calls this when it begins to compile, even if
// it then makes no step program.
#include "worker/program/dump.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "ir/program_hash.h"
#include "ir/text.h"

namespace tessera::worker::program {

ProgramDump BeginDump(DumpFolder* folder, const ir::Program& program) {
  if (folder == nullptr || !folder->enabled()) return {nullptr, ""};
  constexpr size_t kHashDigits = 12;
  const std::string hash = ir::StructuralHash(*program.entry).substr(0, kHashDigits);
  ProgramDump dump(folder, absl::StrCat("device_", hash, "_", program.entry->name));
  dump.Write("device_program", ir::PrintProgram(program, {.sites = true}));
  return dump;
}

}  // namespace tessera::worker::program
