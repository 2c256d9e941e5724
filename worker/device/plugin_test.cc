// Tests of LoadDevicePlugin: every reason why there may be no GPU gives one line that says why and
// what to do. The plugin is the real CUDA plugin, on fake libraries.
#include "worker/device/plugin.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/testing/datadriven.h"
#include "base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/cuda/testing/fakes.h"

namespace tessera::worker::device {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Returns LoadDevicePlugin's answer in a process of its own, because a driver that has started
// stays in its process. The test has no threads, so it may fork.
std::string LoadInChild(const std::string& path, const std::function<void()>& set_up) {
  int ends[2];
  if (pipe(ends) != 0) return "pipe";
  const pid_t child = fork();
  if (child == 0) {
    cuda::PointPluginAtFakes();
    set_up();
    const auto api = LoadDevicePlugin(path);
    const std::string text =
        api.ok() ? std::string("loaded ") + (*api)->kind : std::string(api.status().ToString());
    const bool written = write(ends[1], text.data(), text.size()) > 0;
    _exit(written ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  char buffer[1024];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;) text.append(buffer, n);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  return text;
}

std::string Load(const std::function<void()>& set_up) {
  return LoadInChild(cuda::PluginPath(), set_up);
}

TEST(LoadDevicePlugin, GivesTheTableWhereThereAreDevices) {
  EXPECT_EQ(Load([] {}), "loaded gpu");
}

TEST(LoadDevicePlugin, NoFile) {
  EXPECT_THAT(LoadInChild("/nowhere/libtessera_cuda.so", [] {}),
              AllOf(StartsWith("FAILED_PRECONDITION: GPU plugin /nowhere/libtessera_cuda.so: it "
                               "does not load: "),
                    HasSubstr("No such file"), HasSubstr("set TESSERA_CUDA_PLUGIN")));
}

TEST(LoadDevicePlugin, NoPlugin) {
  EXPECT_THAT(LoadInChild(cuda::FakePath("cuda"), [] {}),
              HasSubstr("it has no symbol tessera_device_api"));
}

TEST(LoadDevicePlugin, AnotherVersion) {
  EXPECT_THAT(LoadInChild(SourcePath(TESSERA_OLD_PLUGIN), [] {}),
              HasSubstr(absl::StrCat("it does not speak version ", TESSERA_DEVICE_API_VERSION,
                                     " of the device interface; install the plugin and the worker "
                                     "from the same release")));
}

TEST(LoadDevicePlugin, NoDriver) {
  EXPECT_THAT(Load([] { setenv("TESSERA_CUDA_DRIVER", "libnodriver.so.1", 1); }),
              AllOf(HasSubstr("no NVIDIA driver: libnodriver.so.1: cannot open"),
                    HasSubstr("install the driver")));
}

TEST(LoadDevicePlugin, ADriverWithoutAFunctionThatWeNeed) {
  EXPECT_THAT(Load([] { setenv("TESSERA_CUDA_DRIVER", cuda::PluginPath().c_str(), 1); }),
              AllOf(HasSubstr("has no function cuInit"), HasSubstr("driver 520")));
}

TEST(LoadDevicePlugin, NoDevice) {
  EXPECT_THAT(Load([] { cuda::SetFake("init_error", 100); }),
              HasSubstr("finds no GPU (cuInit: error 100); check nvidia-smi"));
  EXPECT_THAT(Load([] { setenv("CUDA_VISIBLE_DEVICES", "", 1); }),
              HasSubstr("the NVIDIA driver shows no GPU; check nvidia-smi"));
}

TEST(LoadDevicePlugin, DriverAndKernelModuleDoNotFit) {
  for (const int error : {35, 803, 804}) {
    EXPECT_THAT(Load([error] { cuda::SetFake("init_error", error); }),
                HasSubstr("do not fit (cuInit: error " + std::to_string(error) + "); install"));
  }
}

TEST(LoadDevicePlugin, AStubForADriver) {
  EXPECT_THAT(Load([] { cuda::SetFake("init_error", 34); }),
              HasSubstr("the toolkit's stub, not a driver"));
}

TEST(LoadDevicePlugin, ADriverThatDoesNotStart) {
  EXPECT_THAT(Load([] { cuda::SetFake("init_error", 999); }),
              HasSubstr("does not start: cuInit: error 999"));
}

TEST(LoadDevicePlugin, AnOldDriver) {
  EXPECT_THAT(Load([] { cuda::SetFake("driver_version", 11040); }),
              HasSubstr("too old: it is of CUDA 11.4, and our kernels (PTX 7.8) need CUDA 11.8 "
                        "(driver 520) or newer; update the driver"));
  EXPECT_EQ(Load([] { cuda::SetFake("driver_version", 11080); }), "loaded gpu");
}

TEST(LoadDevicePlugin, EveryReasonIsOneLine) {
  for (const int error : {34, 35, 100, 999}) {
    EXPECT_THAT(Load([error] { cuda::SetFake("init_error", error); }), Not(HasSubstr("\n")));
  }
}

TEST(PluginPath, IsBesideTheProgramUnlessItIsInLib) {
  EXPECT_THAT(PluginPath("libnone.so"),
              AllOf(StartsWith("/"), HasSubstr("/libnone.so"), Not(HasSubstr("/lib/libnone.so"))));
}

}  // namespace
}  // namespace tessera::worker::device
