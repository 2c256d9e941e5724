// backend = evaluator: the CPU backend on threads, with collectives among them and kernels for
// every op, gives what the evaluator gives. Kernels that are interpreted give it bit for bit,
// compiled ones but for the last bits of functions; sums in another order within their bound.
#include <gmock/gmock.h>

#include <iostream>
#include <set>

#include "server/planner/explain.h"
#include "tests/ops/on_backends.h"
#include "tests/ops/op_test.h"
#include "worker/cpu/cpu_backend.h"

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
    ForRows([&](const Sample& s) { return DifferenceOnBackends(s, ulps_min, devices_for); });
  }
};

TEST_P(BackendTest, InterpretedKernelsGiveWhatTheEvaluatorGives) {
  RunRows(Kernels::kInterpreted, /*ulps_min=*/0);
}
TEST_P(BackendTest, CompiledKernelsGiveWhatTheEvaluatorGives) {
  RunRows(Kernels::kAlways, /*ulps_min=*/2);
}
TESSERA_FOR_EVERY_OP(BackendTest);

// Which ops a CPU has no code for, and how many rows are code alone.
TEST(CodeTest, OfAllOpsButThese) {
  int64_t compiled = 0;
  std::set<std::string> evaluated;
  for (const Sample* s : AllSamples()) {
    bool is_code = true;
    for (const server::planner::HostUse& use : server::planner::HostOpsOf(*FunctionOf(*s)))
      is_code = is_code && use.cpu_code;
    compiled += is_code;
    if (!is_code && s->def->lowering == Lowering::kHost) evaluated.emplace(s->def->name);
  }
  std::cout << compiled << " of " << AllSamples().size() << " rows run code alone\n";
  EXPECT_THAT(evaluated, ::testing::ElementsAre("cumlogsumexp", "custom_lin", "reduce",
                                                "scatter_by", "sort_by"));
}

}  // namespace
}  // namespace tessera::ir::samples
