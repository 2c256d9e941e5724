// Artifacts of any bytes: refused with a status, or read; the container is then written and read
// again.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/log.h"
#include "ir/stablehlo/artifact.h"
#include "ir/stablehlo/export.h"
#include "ir/stablehlo/import.h"
#include "ir/stablehlo/inspect.h"
#include "ir/stablehlo/writer.h"
#include "ir/verify.h"

namespace {

// A program that was read is written, or refused by name; what is written is read again.
void CheckExport(const tessera::ir::Program& program) {
  using namespace tessera::ir::stablehlo;
  const absl::StatusOr<std::string> bytes = ExportProgram(program);
  if (!bytes.ok()) {
    TESSERA_CHECK(bytes.status().code() == absl::StatusCode::kUnimplemented ||
                  bytes.status().code() == absl::StatusCode::kResourceExhausted)
        << bytes.status();
    return;
  }
  const absl::StatusOr<Artifact> artifact =
      ReadArtifact({reinterpret_cast<const uint8_t*>(bytes->data()), bytes->size()});
  TESSERA_CHECK(artifact.ok()) << artifact.status();
  const absl::StatusOr<tessera::ir::Program> again = ImportProgram(*artifact);
  TESSERA_CHECK(again.ok() || again.status().code() == absl::StatusCode::kResourceExhausted)
      << again.status();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera::ir;
  using namespace tessera::ir::stablehlo;
  const absl::StatusOr<Artifact> artifact = ReadArtifact({data, size});
  if (!artifact.ok()) return 0;
  Inspect(*artifact);
  if (const absl::StatusOr<Program> program = ImportProgram(*artifact); program.ok()) {
    const absl::Status verified = Verify(*program);
    TESSERA_CHECK(verified.ok() || verified.code() == absl::StatusCode::kResourceExhausted)
        << verified;
    if (verified.ok()) CheckExport(*program);
  }
  if (artifact->code.version < 5) return 0;
  const std::string written = WriteBytecode(artifact->code);
  const Bytes bytes(reinterpret_cast<const uint8_t*>(written.data()), written.size());
  const absl::StatusOr<Artifact> again = ReadArtifact(bytes);
  TESSERA_CHECK(again.ok()) << again.status();
  TESSERA_CHECK_EQ(WriteBytecode(again->code), written);
  return 0;
}
