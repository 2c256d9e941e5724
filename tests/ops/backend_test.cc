// backend = evaluator: the CPU backend on threads, with collectives among them and kernels for
// every op, gives what the evaluator gives. Kernels that are interpreted give it bit for bit,
// compiled ones but for the last bits of functions; sums in another order within their bound.
#include <algorithm>
#include <thread>

#include "absl/time/time.h"
#include "ir/text.h"
#include "tests/ops/op_test.h"
#include "tests/ops/planned.h"
#include "worker/collectives/communicator.h"
#include "worker/cpu/cpu_backend.h"

namespace tessera::ir::samples {
namespace {

using worker::DeviceBufferRef;

// One lane: the arguments of one device to its results.
std::vector<Array> RunLane(worker::Backend& backend, const worker::Executable& executable,
                           const worker::RunContext& context, std::vector<Array> args) {
  std::vector<DeviceBufferRef> buffers;
  for (Array& a : args)
    buffers.push_back(ValueOrThrow(backend.FromHost(context.device, std::move(a))));
  const worker::Enqueued enqueued = ValueOrThrow(backend.Enqueue(executable, context, buffers));
  absl::Status ended = absl::UnknownError("not called");
  enqueued.event->OnDone([&](const absl::Status& status) { ended = status; });
  if (!ended.ok()) Throw(ended);
  std::vector<Array> results;
  for (const DeviceBufferRef& r : enqueued.results)
    results.push_back(ValueOrThrow(backend.ToHost(*r)));
  return results;
}

// `f` is a device program; args[argument][device], as the answer is [result][device].
using Kernels = worker::CpuBackendOptions::Kernels;

std::vector<Lanes> RunOnBackend(const FunctionRef& f, const std::vector<Lanes>& args,
                                const std::vector<int64_t>& devices, Kernels kernels) {
  const int n = static_cast<int>(devices.size());
  const std::unique_ptr<worker::Backend> backend = worker::MakeCpuBackend(
      {.num_devices = n, .memory_bytes = int64_t{1} << 30, .codegen = {}, .kernels = kernels});
  const auto executable = ValueOrThrow(backend->Compile({kOpset, f, {}, {}}));
  worker::CommunicatorConfig config;
  config.timeout = absl::Seconds(60);
  std::vector<int> ranks;
  for (int i = 0; i < n; ++i) {
    config.members.push_back({i, "test", 1, "", "here"});
    config.local_ranks.push_back(i);
    ranks.push_back(i);
  }
  const auto collectives = worker::MakeCollectives(std::move(config), -1);
  const worker::CancelToken never;
  std::vector<std::vector<Array>> results(n);
  std::vector<absl::Status> ends(n);
  std::vector<std::thread> threads;
  for (int i = 0; i < n; ++i) {
    threads.emplace_back([&, i] {
      worker::RunContext context;
      context.launch = 1;
      context.program = "sample";
      context.device = i;
      context.mesh_device = devices[i];
      context.collectives = collectives.get();
      context.ranks = ranks;
      context.cancel = &never;
      std::vector<Array> mine;
      for (const Lanes& lanes : args) mine.push_back(lanes[i]);
      ends[i] = CatchStatus([&] { results[i] = RunLane(*backend, *executable, context, mine); });
      if (!ends[i].ok()) collectives->Abort(ends[i]);
    });
  }
  for (std::thread& t : threads) t.join();
  for (const absl::Status& end : ends)
    if (!end.ok()) Throw(end);
  std::vector<Lanes> out(f->results.size());
  for (size_t r = 0; r < out.size(); ++r)
    for (int i = 0; i < n; ++i) out[r].push_back(results[i][r]);
  return out;
}

class BackendTest : public OpTest {
 protected:
  void RunRows(Kernels kernels);
};

void BackendTest::RunRows(Kernels kernels) {
  ForRows([&](const Sample& s) -> std::string {
    FunctionRef f = FunctionOf(s);
    std::vector<Lanes> args = ArgsOf(s);
    std::vector<int64_t> devices = DevicesOf(s.scope);
    if (!s.scope.mesh.empty() && !s.manual()) {  // What only a plan can run.
      std::vector<Array> whole;
      for (const Lanes& lanes : args) whole.push_back(lanes[0]);
      Planned p = PlanOf({kOpset, f, {}, {}}, whole);
      f = p.plan.device_program;
      args = std::move(p.args);
      devices = std::move(p.devices);
    }
    const std::vector<Lanes> want = ValueOrThrow(Evaluator().WithLanes(devices, *f, args));
    const std::vector<Lanes> got = RunOnBackend(f, args, devices, kernels);
    std::vector<Lanes> magnitudes;
    const bool reordered = s.tolerance.kind == Tolerance::kReordered;
    if (reordered) magnitudes = ValueOrThrow(MagnitudesOf(s, ArgsOf(s)));
    Tolerance tolerance = s.tolerance;
    if (tolerance.kind == Tolerance::kUlps)
      tolerance = kernels == Kernels::kInterpreted ? kExact : Ulps(std::max(tolerance.bound, 2.0));
    const std::string why = Differences(got, want, tolerance, reordered ? &magnitudes : nullptr);
    return why.empty() ? "" : absl::StrCat(why, "\n", PrintFunction(*f));
  });
}

TEST_P(BackendTest, InterpretedKernelsGiveWhatTheEvaluatorGives) { RunRows(Kernels::kInterpreted); }
TEST_P(BackendTest, CompiledKernelsGiveWhatTheEvaluatorGives) { RunRows(Kernels::kAlways); }
TESSERA_FOR_EVERY_OP(BackendTest);

}  // namespace
}  // namespace tessera::ir::samples
