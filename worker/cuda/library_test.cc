// Tests that the plugin finds libraries in the packages that pip has installed. It has a process of
// its own, because the plugin opens each library once.
#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

#include "worker/cuda/testing/device_fixture.h"

namespace tessera::worker::cuda {
namespace {

using ::testing::HasSubstr;

TEST(LibraryTest, NcclOfPipIsFound) {
  // A library of this name on the path of libraries would be taken instead.
  const char* const name = "libfakenccl.so";
  ASSERT_EQ(dlopen(name, RTLD_NOW), nullptr);
  const std::filesystem::path env = ::testing::TempDir() + "/library_test_env";
  std::filesystem::remove_all(env);
  const std::filesystem::path folder = env / "lib/python3.11/site-packages/nvidia/nccl/lib";
  std::filesystem::create_directories(folder);
  std::filesystem::create_symlink(FakePath("nccl"), folder / name);
  const tessera_device_api& api = FakeDevices();
  setenv("TESSERA_CUDA_NCCL", name, /*overwrite=*/1);
  const TestDevice device(0);
  char text[1024];
  api.describe_libraries(device.context(), text, sizeof text);
  EXPECT_THAT(text, HasSubstr("no NCCL, so no collectives between GPUs: libfakenccl.so"));
  setenv("VIRTUAL_ENV", env.c_str(), /*overwrite=*/1);
  api.describe_libraries(device.context(), text, sizeof text);
  EXPECT_STREQ(text, "CUDA driver 13.0; NCCL 2.28.9; cuBLASLt 13.1.0");
  std::filesystem::remove_all(env);
}

}  // namespace
}  // namespace tessera::worker::cuda
