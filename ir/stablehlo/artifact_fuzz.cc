// Artifacts of any bytes: refused with a status, or read; the container is then written and read
// again.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/log.h"
#include "ir/stablehlo/artifact.h"
#include "ir/stablehlo/import.h"
#include "ir/stablehlo/inspect.h"
#include "ir/stablehlo/writer.h"
#include "ir/verify.h"

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
  }
  if (artifact->code.version < 5) return 0;
  const std::string written = WriteBytecode(artifact->code);
  const Bytes bytes(reinterpret_cast<const uint8_t*>(written.data()), written.size());
  const absl::StatusOr<Artifact> again = ReadArtifact(bytes);
  TESSERA_CHECK(again.ok()) << again.status();
  TESSERA_CHECK_EQ(WriteBytecode(again->code), written);
  return 0;
}
