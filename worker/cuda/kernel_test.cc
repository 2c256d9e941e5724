// Tests of compiled kernels through the table. The fake devices run the GPU's own code in the SIMT
// emulator, and its results are compared with the interpreter's.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "worker/codegen/device_code.h"
#include "worker/codegen/testing/kernel_cases.h"
#include "worker/cuda/testing/device_fixture.h"

namespace tessera::worker::cuda {
namespace {

using codegen::CompileForDevice;
using codegen::DeviceCode;
using codegen::GpuKernel;
using codegen::Kernel;
using codegen::RandomKernel;
using codegen::TestBuffers;
using ::testing::AllOf;
using ::testing::HasSubstr;

class KernelTest : public FakesTest {};

int LaunchKernel(TestDevice& device, tessera_module* module, const GpuKernel& kernel,
                 const std::vector<uint64_t>& args) {
  return device.api().launch(device.stream(), module, kernel.entry.c_str(), kernel.grid,
                             kernel.block, kernel.shared_bytes, args.data(),
                             static_cast<int32_t>(args.size()));
}

TEST_F(KernelTest, CompiledKernelsDoWhatTheInterpreterDoes) {
  TestDevice device(0);
  tessera_device_info info = {};
  ASSERT_EQ(api().info(device.context(), &info), TESSERA_OK);
  std::vector<Kernel> kernels;
  for (uint32_t seed = 0; seed < 40; ++seed) {
    kernels.push_back(RandomKernel(seed, {.reduce = seed % 2 == 0, .exact_reductions = true}));
  }
  const absl::StatusOr<DeviceCode> code = CompileForDevice(info.target, kernels);
  ASSERT_TRUE(code.ok()) << code.status();
  tessera_module* module = nullptr;
  ASSERT_EQ(api().module_load(device.context(), code->image.data(),
                              static_cast<int64_t>(code->image.size()), &module),
            TESSERA_OK)
      << ErrorText();
  for (size_t i = 0; i < kernels.size(); ++i) {
    SetFake("simt_reversed", i % 3 == 0);
    const Kernel& kernel = kernels[i];
    TestBuffers got(kernel, static_cast<uint32_t>(i)), want = got;
    std::vector<uint64_t> args;
    for (size_t p = 0; p < kernel.params.size(); ++p) {
      const auto bytes = got.bytes(static_cast<int>(p));
      args.push_back(device.Put(std::vector<std::byte>(bytes.begin(), bytes.end())));
    }
    ASSERT_EQ(LaunchKernel(device, module, code->kernels[i], args), TESSERA_OK) << ErrorText();
    for (size_t p = 0; p < kernel.params.size(); ++p) {
      const auto bytes = got.bytes(static_cast<int>(p));
      const auto result = device.Get<std::byte>(args[p], static_cast<int64_t>(bytes.size()));
      if (!result.empty()) memcpy(got.pointers()[p], result.data(), result.size());
    }
    codegen::Interpret(kernel, want.pointers(), 0, kernel.num_iterations());
    EXPECT_EQ(codegen::Difference(kernel, got, want, {}), "") << kernel.ToString();
  }
  api().module_unload(module);
}

constexpr char kDouble[] = R"(kernel [4] reduced 0
in f32 4
out f32 4
%0 = load p0 [0: 1] : f32
%1 = Add %0, %0 : f32
store %1 p1 [0: 1]
)";

TEST_F(KernelTest, KernelsAndArgumentsAreCheckedBeforeTheyRun) {
  TestDevice device(0);
  const absl::StatusOr<Kernel> kernel = codegen::ParseKernel(kDouble);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  const absl::StatusOr<DeviceCode> code = CompileForDevice("simt-host", {*kernel});
  ASSERT_TRUE(code.ok()) << code.status();
  const auto load = [&](std::string image) {
    tessera_module* module = nullptr;
    const int loaded = api().module_load(device.context(), image.data(),
                                         static_cast<int64_t>(image.size()), &module);
    EXPECT_EQ(loaded, loaded == TESSERA_OK ? TESSERA_OK : TESSERA_INVALID);
    return module;
  };
  EXPECT_EQ(load("tessera-simt 1 host"), nullptr);
  EXPECT_THAT(ErrorText(), AllOf(HasSubstr("CUDA_ERROR_INVALID_PTX"),
                                 HasSubstr("header is none of the emulator's")));
  EXPECT_EQ(load("tessera-simt 99999 host 0\n"), nullptr);
  EXPECT_THAT(ErrorText(), HasSubstr("version 99999"));
  tessera_module* module = load(code->image);
  ASSERT_NE(module, nullptr) << ErrorText();
  const uint64_t in = device.Put<float>({1, 2, 3, 4}), out = device.Allocate(16);
  EXPECT_EQ(LaunchKernel(device, module, code->kernels[0], {in, out}), TESSERA_OK) << ErrorText();
  EXPECT_THAT(device.Get<float>(out, 4), ::testing::ElementsAre(2, 4, 6, 8));
  EXPECT_EQ(LaunchKernel(device, module, code->kernels[0], {in}), TESSERA_INVALID);
  EXPECT_THAT(FakeViolations(), HasSubstr("with 1 arguments; it takes 2"));
  GpuKernel none = code->kernels[0];
  none.entry = "none";
  EXPECT_EQ(LaunchKernel(device, module, none, {in, out}), TESSERA_INVALID);
  EXPECT_THAT(ErrorText(), HasSubstr("the module has no function \"none\""));
  api().module_unload(module);
}

TEST_F(KernelTest, ABufferThatIsTooSmallEndsTheContext) {
  TestDevice device(0);
  const absl::StatusOr<Kernel> kernel = codegen::ParseKernel(kDouble);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  const absl::StatusOr<DeviceCode> code = CompileForDevice("simt-host", {*kernel});
  ASSERT_TRUE(code.ok()) << code.status();
  tessera_module* module = nullptr;
  ASSERT_EQ(api().module_load(device.context(), code->image.data(),
                              static_cast<int64_t>(code->image.size()), &module),
            TESSERA_OK)
      << ErrorText();
  const uint64_t in = device.Put<float>({1, 2, 3, 4}), out = device.Allocate(12);
  EXPECT_EQ(LaunchKernel(device, module, code->kernels[0], {in, out}), TESSERA_OK);
  EXPECT_EQ(device.Sync(), TESSERA_STICKY);
  EXPECT_THAT(ErrorText(), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
  api().module_unload(module);
}

}  // namespace
}  // namespace tessera::worker::cuda
