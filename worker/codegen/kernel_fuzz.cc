// Fuzz target of the text forms of kernels and of loops of kernels. A text of any bytes is either
// refused with a status, or it is a kernel whose printed text parses back to the same kernel. The
// normal form of that kernel passes Verify, is its own normal form, and computes the same bytes. A
// loop of kernels is checked likewise, except that it has no normal form.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/log.h"
#include "worker/codegen/kernel.h"
#include "worker/codegen/kernel_loop.h"

namespace tessera::worker::codegen {
namespace {

using Buffers = std::vector<std::vector<uint8_t>>;

constexpr int64_t kElementsMax = 4096;

bool IsSmall(const Kernel& kernel) {
  int64_t work = 1;
  for (int64_t size : kernel.shape) {
    if (size > kElementsMax) return false;
    if (work *= size; work > kElementsMax) return false;
  }
  for (const Param& param : kernel.params)
    if (param.size > kElementsMax) return false;
  return work * static_cast<int64_t>(kernel.nodes.size() + 1) < 20 * kElementsMax;
}

Buffers RunOnFixedBytes(const Kernel& kernel) {
  Buffers buffers;
  uint32_t state = 12345;
  for (const Param& param : kernel.params) {
    std::vector<uint8_t>& bytes = buffers.emplace_back(param.size * ir::ByteWidth(param.dtype));
    for (uint8_t& byte : bytes) {
      state = state * 1664525 + 1013904223;
      byte = state >> 24;
    }
  }
  std::vector<void*> pointers;
  for (std::vector<uint8_t>& bytes : buffers) pointers.push_back(bytes.data());
  Interpret(kernel, pointers, 0, kernel.num_iterations());
  return buffers;
}

void CheckLoop(absl::string_view text) {
  const absl::StatusOr<KernelLoop> loop = ParseKernelLoop(text);
  if (!loop.ok()) return;
  const absl::StatusOr<KernelLoop> again = ParseKernelLoop(loop->ToString());
  TESSERA_CHECK(again.ok()) << again.status() << "\n" << loop->ToString();
  TESSERA_CHECK(*again == *loop) << loop->ToString();
}

void Check(absl::string_view text) {
  CheckLoop(text);
  const absl::StatusOr<Kernel> kernel = ParseKernel(text);
  if (!kernel.ok()) return;
  const std::string printed = kernel->ToString();
  const absl::StatusOr<Kernel> again = ParseKernel(printed);
  TESSERA_CHECK(again.ok()) << again.status() << "\n" << printed;
  TESSERA_CHECK_EQ(again->ToString(), printed);

  const Kernel canonical = Canonical(*kernel);
  const absl::Status valid = Verify(canonical);
  TESSERA_CHECK(valid.ok()) << valid << "\n" << printed << canonical.ToString();
  TESSERA_CHECK_EQ(Canonical(canonical).ToString(), canonical.ToString());
  TESSERA_CHECK_EQ(canonical.num_iterations(), kernel->num_iterations());
  if (IsSmall(*kernel))
    TESSERA_CHECK(RunOnFixedBytes(*kernel) == RunOnFixedBytes(canonical))
        << printed << canonical.ToString();
}

}  // namespace
}  // namespace tessera::worker::codegen

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tessera::worker::codegen::Check(absl::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
