// Fuzzes the text parser. A text of any bytes is refused with a status, or it is parsed. The parsed
// program is printed and parsed again, which must give the same text and the same hash.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/log.h"
#include "ir/program_hash.h"
#include "ir/text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera::ir;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<Program> program = ParseProgram(text);
  if (!program.ok()) return 0;
  const std::string printed = PrintProgram(*program);
  const absl::StatusOr<Program> again = ParseProgram(printed);
  TESSERA_CHECK(again.ok()) << again.status() << "\n" << printed;
  TESSERA_CHECK_EQ(PrintProgram(*again), printed);
  TESSERA_CHECK_EQ(StructuralHash(*again), StructuralHash(*program)) << printed;
  return 0;
}
