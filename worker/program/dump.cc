// Each backend calls this when it begins to compile, whether or not it makes a step program then.
#include "worker/program/dump.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"
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
