// Proves that the CPU backend gives the results of the evaluator for every sample. A sample, or
// row, is one op with given attributes and operands: a test case (samples.h). Each shard runs on
// its own thread, with collectives between the threads. Interpreted kernels must give the same bits
// as the evaluator. Compiled kernels may differ in the last bits of functions such as exp, and
// their sums, which have another order, may differ within the tolerance of the row.
#include <gmock/gmock.h>

#include <algorithm>
#include <iostream>
#include <set>

#include "ir/op_def.h"
#include "ir/transform/transform.h"
#include "tests/ops/on_backends.h"
#include "tests/ops/op_test.h"
#include "worker/cpu/cpu_backend.h"
#include "worker/program/build.h"
#include "worker/program/step_program.h"

namespace tessera::ir::samples {
namespace {

using Kernels = worker::CpuBackendOptions::Kernels;

class BackendTest : public OpTest {
 protected:
  void RunRows(Kernels kernels, double ulps_min) {
    const auto devices_for = [&](int shards) {
      const std::shared_ptr<worker::Backend> backend =
          worker::MakeCpuBackend({.num_devices = shards,
                                  .memory_bytes = int64_t{1} << 30,
                                  .codegen = {},
                                  .kernels = kernels,
                                  .dump = {}});
      std::vector<ShardDevice> on;
      for (int i = 0; i < shards; ++i) on.push_back({backend, i});
      return on;
    };
    ForEachSample([&](const Sample& s) { return DifferenceOnBackends(s, ulps_min, devices_for); });
  }
};

TEST_P(BackendTest, InterpretedKernelsGiveWhatTheEvaluatorGives) {
  RunRows(Kernels::kInterpreted, /*ulps_min=*/0);
}
TEST_P(BackendTest, CompiledKernelsGiveWhatTheEvaluatorGives) {
  RunRows(Kernels::kAlways, /*ulps_min=*/2);
}
TESSERA_FOR_EVERY_OP(BackendTest);

bool HasHostStep(const std::vector<worker::program::Step>& steps) {
  return std::any_of(steps.begin(), steps.end(), [](const worker::program::Step& step) {
    if (const auto* loop = std::get_if<worker::program::LoopStep>(&step.what))
      return HasHostStep(loop->body);
    if (const auto* branch = std::get_if<worker::program::BranchStep>(&step.what))
      return std::any_of(branch->branches.begin(), branch->branches.end(), HasHostStep);
    return std::holds_alternative<worker::program::HostStep>(step.what);
  });
}

// Returns the ops that run as host steps on a backend with these options, although all their dtypes
// have kernels. Prints how many rows need no host step.
std::set<std::string> HostStepOps(const char* backend,
                                  const worker::program::BuildOptions& options) {
  int64_t rows = 0, compiled = 0;
  std::set<std::string> evaluated;
  for (const Sample* s : AllSamples()) {
    const absl::StatusOr<FunctionRef> f = DropRules(FunctionOf(*s));
    if (!f.ok() || (!s->scope.mesh.empty() && !s->manual())) continue;  // only a plan can run it
    const bool is_code = !HasHostStep(ValueOrThrow(worker::program::Build(**f, options)).steps);
    ++rows;
    compiled += is_code;
    const bool has_kernels = std::all_of((*f)->types.begin(), (*f)->types.end(),
                                         [](const Type& t) { return IsComputable(t.dtype); });
    if (!is_code && has_kernels) evaluated.emplace(s->def->name);
  }
  std::cout << compiled << " of " << rows << " rows run code alone on " << backend << "\n";
  return evaluated;
}

// The ops that run as host steps on every backend: the ops that LAPACK computes, and the ops for
// which there is no kernel.
const std::vector<std::string> kHostOps = {"cholesky",
                                           "cumlogsumexp",
                                           "eigh",
                                           "geqp3",
                                           "geqrf",
                                           "hessenberg",
                                           "householder_product",
                                           "lu",
                                           "qr",
                                           "schur",
                                           "sort_by",
                                           "svd",
                                           "triangular_solve",
                                           "tridiagonal",
                                           "tridiagonal_solve"};

TEST(CodeTest, CpusHaveCodeForAllOpsButHostOps) {
  worker::program::BuildOptions options;
  options.has_scan = [](const ir::ScanSize&) { return true; };
  options.sort_scratch_bytes = [](const worker::SortShape&) { return int64_t{64}; };
  EXPECT_THAT(HostStepOps("CPUs", options), ::testing::ElementsAreArray(kHostOps));
}
TEST(CodeTest, AcceleratorsHaveCodeForAllOpsButHostOpsAndSorts) {
  worker::program::BuildOptions options;
  options.has_scan = ir::IsForAccelerators;
  std::vector<std::string> host_ops = kHostOps;
  host_ops.insert(host_ops.end(), {"sort", "top_k"});
  EXPECT_THAT(HostStepOps("accelerators", options), ::testing::UnorderedElementsAreArray(host_ops));
}

}  // namespace
}  // namespace tessera::ir::samples
