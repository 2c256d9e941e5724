// CompileForDevice: the device backend gives it the kernels of a program, and gets an image and the
// launch of each kernel. The plans are made here and again in the compile child. They depend on the
// kernels alone, so they need not be sent.
#include "worker/codegen/device_code.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/sha256.h"
#include "base/status.h"
#include "worker/codegen/emit_nvptx.h"
#include "worker/codegen/gpu_plan.h"
#include "worker/codegen/host_target.h"
#include "worker/codegen/testing/simt.h"
#include "worker/codegen/testing/simt_thread.h"

namespace tessera::worker::codegen {
namespace {

constexpr absl::string_view kSimtTarget = "simt-host";

// Returns the cache key of the image. The images of the emulator depend on the host's CPU too.
absl::StatusOr<std::string> CacheKey(absl::string_view target, absl::Span<const Kernel> kernels,
                                     const std::string& tenant) {
  std::string text =
      absl::StrCat("device code ", kDeviceCodeVersion, "\n", tenant, "\n", target, "\n");
  if (target == kSimtTarget) {
    TESSERA_ASSIGN_OR_RETURN(const HostTarget host, FindHostTarget("host"));
    absl::StrAppend(&text, host.name, " ", kSimtVersion, "\n");
  }
  for (const Kernel& kernel : kernels) absl::StrAppend(&text, kernel.ToString(), "\n");
  return Sha256Hex(text);
}

}  // namespace

absl::StatusOr<std::string> CompileDeviceImage(absl::string_view target,
                                               absl::Span<const Kernel> kernels) {
  std::vector<GpuPlan> plans;
  for (const Kernel& kernel : kernels) {
    TESSERA_ASSIGN_OR_RETURN(plans.emplace_back(), PlanGpu(kernel));
  }
  if (target == kSimtTarget) return CompileForSimt(kernels, plans);
  if (absl::ConsumePrefix(&target, "nvptx-")) return EmitNvptx(target, kernels, plans);
  return MakeError(ErrorKind::kValueError,
                   absl::StrCat("gpu code: target \"", target,
                                "\"; expected nvptx-sm_80, nvptx-sm_90 or simt-host"));
}

// Plans every kernel, then takes the image from the cache or compiles it. The cache is asked again
// under the key's lock, because another caller may have compiled the same image meanwhile. All
// kernels of a program are one image, so that a device loads one module per program.
absl::StatusOr<DeviceCode> CompileForDevice(absl::string_view target,
                                            absl::Span<const Kernel> kernels, ObjectCache* cache,
                                            CompileChildren* children, absl::Time deadline,
                                            const std::string& tenant) {
  std::vector<Kernel> canonical;
  DeviceCode code;
  for (const Kernel& kernel : kernels) {
    canonical.push_back(Canonical(kernel));
    TESSERA_ASSIGN_OR_RETURN(const GpuPlan plan, PlanGpu(canonical.back()));
    GpuKernel& gpu = code.kernels.emplace_back();
    gpu.entry = GpuEntryName(static_cast<int>(canonical.size()) - 1);
    std::copy(plan.grid, plan.grid + 3, gpu.grid);
    std::copy(plan.block, plan.block + 3, gpu.block);
    gpu.shared_bytes = plan.shared_bytes;
    gpu.num_args = static_cast<int>(kernel.params.size());
  }
  TESSERA_ASSIGN_OR_RETURN(const std::string key, CacheKey(target, canonical, tenant));
  const auto take_cached_image = [&] {
    std::optional<std::string> image = cache == nullptr ? std::nullopt : cache->Get(key);
    if (image) code.image = *std::move(image);
    return image.has_value();
  };
  if (take_cached_image()) return code;
  constexpr char kLabel[] = "a device's kernels";
  std::optional<ObjectCache::KeyLock> key_lock;
  if (cache != nullptr) {
    TESSERA_ASSIGN_OR_RETURN(ObjectCache::KeyLock taken, cache->LockKey(key, deadline, kLabel));
    key_lock.emplace(std::move(taken));
    if (take_cached_image()) return code;
  }
  if (children != nullptr && !canonical.empty()) {
    std::unique_ptr<CompileChild> child = children->Take(tenant);
    absl::StatusOr<std::string> image = child->Compile(canonical, kLabel, deadline);
    children->Release(tenant, std::move(child));
    TESSERA_RETURN_IF_ERROR(image);
    code.image = *std::move(image);
  } else {
    TESSERA_ASSIGN_OR_RETURN(code.image, CompileDeviceImage(target, canonical));
  }
  if (cache != nullptr) cache->Put(key, code.image);
  return code;
}

}  // namespace tessera::worker::codegen
