// Tests of the libraries that the loader opens with the built files: no driver, no NCCL and no
// cuBLASLt, so that a machine without them starts the same binaries. readelf lists the libraries.
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/testing/datadriven.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera::worker::cuda {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Not;

// Returns the libraries that the loader opens with the file, as readelf names them.
std::vector<std::string> NeededBy(const std::string& path) {
  const std::string command = "readelf -d '" + path + "'";
  const std::unique_ptr<FILE, int (*)(FILE*)> output(popen(command.c_str(), "r"), pclose);
  std::vector<std::string> needed;
  if (output == nullptr) return needed;
  char line[4096];
  while (fgets(line, sizeof line, output.get()) != nullptr) {
    const std::string text = line;
    const size_t open = text.find('[');
    if (text.find("(NEEDED)") == std::string::npos || open == std::string::npos) continue;
    needed.push_back(text.substr(open + 1, text.find(']') - open - 1));
  }
  return needed;
}

constexpr char kAcceleratorLibraries[] = ".*(cuda|cudart|nccl|cublas|cudnn|nvrtc|nvJitLink).*";

TEST(Needed, ThePluginNeedsTheCppLibraryAlone) {
  const std::vector<std::string> needed = NeededBy(SourcePath(TESSERA_PLUGIN));
  ASSERT_THAT(needed, Not(IsEmpty())) << "readelf (binutils) says nothing of " << TESSERA_PLUGIN;
  EXPECT_THAT(needed, Each(MatchesRegex("(libstdc\\+\\+|libgcc_s|libm|libc|libdl|libpthread|"
                                        "ld-linux-[a-z0-9_-]+|lib[a-z]+san)\\.so.*")));
}

TEST(Needed, TheWorkerNeedsNothingOfTheAccelerator) {
#ifdef TESSERA_WORKER
  const std::vector<std::string> needed = NeededBy(SourcePath(TESSERA_WORKER));
  ASSERT_THAT(needed, Not(IsEmpty())) << "readelf (binutils) says nothing of " << TESSERA_WORKER;
  EXPECT_THAT(needed, Each(Not(MatchesRegex(kAcceleratorLibraries))));
#else
  GTEST_SKIP() << "this build has no worker binary (TESSERA_GRPC is off)";
#endif
}

TEST(Needed, ThePatternMatchesAcceleratorLibraries) {
  // This test's own program needs the C library, and the pattern matches the accelerator's
  // libraries.
  EXPECT_THAT(NeededBy("/proc/" + std::to_string(getpid()) + "/exe"),
              ::testing::Contains(HasSubstr("libc.so")));
  for (const char* name : {"libcuda.so.1", "libnccl.so.2", "libcublasLt.so.13"}) {
    EXPECT_THAT(name, MatchesRegex(kAcceleratorLibraries));
  }
}

}  // namespace
}  // namespace tessera::worker::cuda
