// Proves in one process that StableHLO's conformance cases give the expected results. Each artifact
// is imported and run in the evaluator, as code compiled for CPUs, and as a plan for two devices,
// with its inputs cut along each dim that two divides.
#include "tests/stablehlo/cases.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status.h"
#include "base/status_exception.h"
#include "base/testing/status_matchers.h"
#include "ir/eval/eval.h"
#include "ir/transform/transform.h"
#include "ir/verify.h"
#include "tests/ops/planned.h"
#include "worker/cpu/cpu_backend.h"

namespace tessera::ir::stablehlo {
namespace {

absl::StatusOr<std::vector<Array>> RunCompiled(worker::Backend& backend, const Program& program,
                                               const std::vector<Array>& args) {
  TESSERA_ASSIGN_OR_RETURN(const auto executable, backend.Compile(program));
  std::vector<worker::DeviceBufferRef> in;
  for (const Array& arg : args) {
    TESSERA_ASSIGN_OR_RETURN(in.emplace_back(), backend.FromHost(0, arg));
  }
  worker::CancelToken cancel;
  worker::RunContext context;
  context.cancel = &cancel;
  TESSERA_ASSIGN_OR_RETURN(const worker::Enqueued enqueued,
                           backend.Enqueue(*executable, context, in));
  std::vector<Array> out;
  for (const worker::DeviceBufferRef& result : enqueued.results) {
    TESSERA_ASSIGN_OR_RETURN(out.emplace_back(), backend.ToHost(*result));
  }
  return out;
}

// Returns the program for two devices. Inputs whose dim `dim` has an even size are cut along this
// dim. Returns nullopt if there is no such input.
std::optional<Program> CutAlong(int dim, const Program& program) {
  const Mesh mesh{{{"x", 2, AxisType::kAuto}}};
  const Function& f = *program.entry;
  Program cut{kOpset, ValueOrThrow(Rescope(f, Scope{mesh}, f.param_types())), {}, {}};
  cut.in_shardings.resize(f.num_params);
  bool any = false;
  for (int i = 0; i < f.num_params; ++i) {
    const Type& t = f.types[i];
    if (t.rank() <= dim || t.shape[dim] % 2 != 0 || t.num_elements() == 0) continue;
    PartitionSpec spec;
    spec.dims.resize(t.rank());
    spec.dims[dim] = {"x"};
    cut.in_shardings[i] = std::move(spec);
    any = true;
  }
  if (!any) return std::nullopt;
  return cut;
}
// Runs the program's plan in the evaluator. Returns "" or the first difference.
std::string MismatchOnDevices(const Case& test, const Program& program) {
  const samples::Planned planned = samples::PlanOf(program, test.args);
  const std::vector<Shards> got = ValueOrThrow(
      Evaluator().RunOnDevices(planned.devices, *planned.plan.device_program, planned.args));
  for (size_t r = 0; r < test.expected.size(); ++r)
    for (const int64_t d : planned.devices) {
      const Array want =
          samples::BlockOf(test.expected[r], planned.plan.out[r].spec, planned.plan.mesh, d);
      const std::string mismatch = Mismatch(test, r, got[r][d], want, /*is_cut=*/true);
      if (!mismatch.empty()) return absl::StrCat("result ", r, " on device ", d, ": ", mismatch);
    }
  return "";
}

bool IsCodeAloneOnCpus(const Program& program) {
  worker::program::BuildOptions options;
  options.has_scan = [](const ScanSize&) { return true; };
  options.sort_scratch_bytes = [](const worker::SortShape&) { return int64_t{64}; };
  return IsCodeAlone(program, options);
}

class CasesTest : public ::testing::Test {
 protected:
  CasesTest() {
    worker::CpuBackendOptions options;
    options.kernels = worker::CpuBackendOptions::Kernels::kAlways;
    backend_ = worker::MakeCpuBackend(options);
  }

  // Runs a case in all ways. Returns "" or what is wrong.
  std::string Run(const Case& test, const Program& program) {
    if (const absl::Status ok = Verify(program); !ok.ok()) return ok.ToString();
    if (!test.problem.empty()) return test.problem;
    for (const auto& [how, got] :
         {std::pair("evaluated", Evaluator().Run(*program.entry, test.args)),
          std::pair("compiled", RunCompiled(*backend_, program, test.args))}) {
      const std::string wrong = got.ok() ? Mismatch(test, *got) : got.status().ToString();
      if (!wrong.empty()) return absl::StrCat(how, ": ", wrong);
    }
    constexpr int kDims = 4;
    for (int dim = 0; dim < kDims && program.mesh().empty(); ++dim) {
      std::string differs;
      const absl::Status status = CatchStatus([&] {
        const std::optional<Program> cut = CutAlong(dim, program);
        if (!cut) return;
        ++plans_;
        differs = MismatchOnDevices(test, *cut);
      });
      if (!status.ok()) differs = status.ToString();
      if (!differs.empty()) return absl::StrCat("cut along dim ", dim, ": ", differs);
    }
    return "";
  }

  std::unique_ptr<worker::Backend> backend_;
  int plans_ = 0;  // number of plans for two devices
};

TEST_F(CasesTest, EveryCaseThatIsReadGivesWhatItSays) {
  const std::optional<std::string> folder = CasesFolder();
  if (!folder) GTEST_SKIP() << "TESSERA_SHARED does not name the cases";
  Counts counts;
  std::map<std::string, int> lacking;  // number of refused cases by error message
  ForEachCase(*folder, [&](const Case& test) {
    counts.Add("cases", test.family, true);
    const absl::StatusOr<Program> program = ProgramOf(test);
    std::string wrong;
    if (program.ok()) {
      wrong = Run(test, *program);
    } else if (!ReasonOf(program.status()).empty()) {
      ++lacking[std::string(program.status().message())];
    } else {
      wrong = program.status().ToString();
    }
    const bool right = program.ok() && wrong.empty();
    counts.Add("right", test.family, right);
    counts.Add("code", test.family, right && IsCodeAloneOnCpus(*program));
    EXPECT_EQ(wrong, "") << test.name;
  });
  counts.Expect();
  std::cout << plans_ << " plans for two devices\n";
  for (const auto& [what, n] : lacking) std::cout << "  " << n << "  " << what << "\n";
}

// The recorded cases cover ops that the conformance suite disables or has no cases for.
TEST_F(CasesTest, RecordedOpsGiveWhatTheirReferencesSay) {
  int n = 0;
  ForEachRecordedCase([&](const Case& test) {
    ++n;
    const absl::StatusOr<Program> program = ProgramOf(test);
    EXPECT_THAT(program.status(), IsOk()) << test.name;
    if (program.ok()) {
      EXPECT_EQ(Run(test, *program), "") << test.name;
    }
  });
  std::cout << n << " programs, " << plans_ << " plans for two devices\n";
  EXPECT_GT(n, 200);
}

// Two of the three files are compressed empty files. The third one ends within its header.
TEST(CaseFilesTest, AFileThatIsCutShortFailsTheTest) {
  std::string folder = ::testing::TempDir() + "cases-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  folder += "/";
  const std::string empty("\x1f\x8b\x08\0\0\0\0\0\0\x03\x03\0\0\0\0\0\0\0\0\0", 20);
  for (const char* name : {"interpret", "quantized", "testdata"}) {
    const bool is_cut = name == std::string("testdata");
    ASSERT_THAT(ReplaceFile(absl::StrCat(folder, name, ".jsonl.gz"),
                            is_cut ? empty.substr(0, 10) : empty, /*is_private=*/true),
                IsOk());
  }
  EXPECT_NONFATAL_FAILURE(ForEachCase(folder, [](const Case&) {}), "testdata.jsonl.gz");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tessera::ir::stablehlo
