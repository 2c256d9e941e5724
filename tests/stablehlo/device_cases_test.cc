// Proves that StableHLO's conformance cases give the expected results on the fake GPU, whose
// kernels run on the emulator.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status_exception.h"
#include "base/testing/status_matchers.h"
#include "tests/ops/on_backends.h"
#include "tests/stablehlo/cases.h"
#include "worker/cuda/testing/fakes.h"
#include "worker/device/device_backend.h"

namespace tessera::ir::stablehlo {
namespace {

// Runs a case on the device. Returns "" or what is wrong.
std::string RunOn(const std::shared_ptr<worker::Backend>& device, const Case& test,
                  const Program& program) {
  std::vector<Shards> args;
  for (const Array& arg : test.args) args.push_back({arg});
  std::string wrong;
  const absl::Status status = CatchStatus([&] {
    const std::vector<Shards> results =
        samples::RunOnBackends({{device, 0}}, program.entry, args, {0});
    std::vector<Array> got;
    for (const Shards& result : results) got.push_back(result[0]);
    wrong = Mismatch(test, got);
  });
  return status.ok() ? wrong : status.ToString();
}

std::shared_ptr<worker::Backend> MakeDevice() {
  worker::device::DeviceBackendOptions options;
  options.memory_bytes = 64 << 20;
  options.collective_timeout = absl::Seconds(30);
  return ValueOrThrow(worker::device::MakeDeviceBackend(&worker::cuda::FakeDevices(), options));
}

TEST(DeviceCasesTest, RecordedOpsGiveWhatTheirReferencesSay) {
  const std::shared_ptr<worker::Backend> device = MakeDevice();
  int n = 0;
  ForEachRecordedCase([&](const Case& test) {
    ++n;
    const absl::StatusOr<Program> program = ProgramOf(test);
    EXPECT_EQ(program.ok() ? RunOn(device, test, *program) : program.status().ToString(), "")
        << test.name;
  });
  EXPECT_GT(n, 200);
}

TEST(DeviceCasesTest, EveryCaseThatIsReadGivesWhatItSays) {
  const std::optional<std::string> folder = CasesFolder();
  if (!folder) GTEST_SKIP() << "TESSERA_SHARED does not name the cases";
  const std::shared_ptr<worker::Backend> device = MakeDevice();
  worker::program::BuildOptions build;
  build.has_scan = IsForAccelerators;
  Counts counts;
  ForEachCase(*folder, [&](const Case& test) {
    const absl::StatusOr<Program> program = ProgramOf(test);
    if (!program.ok() || !test.problem.empty()) return counts.Add("gpu", test.family, false);
    const std::string wrong = RunOn(device, test, *program);
    EXPECT_EQ(wrong, "") << test.name;
    counts.Add("gpu", test.family, wrong.empty());
    counts.Add("gpu_code", test.family, wrong.empty() && IsCodeAlone(*program, build));
  });
  counts.Expect();
}

}  // namespace
}  // namespace tessera::ir::stablehlo
