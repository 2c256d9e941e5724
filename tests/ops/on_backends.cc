// Runs samples directly on worker backends, without a server or an executor process around them. A
// sample, or row, is one op with given attributes and operands: a test case (samples.h). The tests
// of the CPU backend, of device plugins and of random programs (backend_test, device_test,
// programs_test, and tests/stablehlo) call it with the backends that they want to compare.
#include "tests/ops/on_backends.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "base/status_exception.h"
#include "ir/eval/eval.h"
#include "ir/op_def.h"
#include "ir/text.h"
#include "tests/ops/planned.h"
#include "worker/collectives/host_collectives.h"

namespace tessera::ir::samples {
namespace {

using worker::DeviceBufferRef;

constexpr absl::Duration kPatience = absl::Seconds(60);

// Runs one shard: copies its arguments to the device, runs the executable, and copies its results
// back.
std::vector<Array> RunShard(worker::Backend& backend, const worker::Executable& executable,
                            const worker::RunContext& context, std::vector<Array> args) {
  std::vector<DeviceBufferRef> buffers;
  for (Array& a : args)
    buffers.push_back(ValueOrThrow(backend.FromHost(context.device, std::move(a))));
  const worker::Enqueued enqueued = ValueOrThrow(backend.Enqueue(executable, context, buffers));
  struct Completion {
    absl::Notification done;
    absl::Status status;
  };
  const auto completion = std::make_shared<Completion>();
  const auto complete = [completion](const absl::Status& status) {
    completion->status = status;
    completion->done.Notify();
  };
  if (enqueued.event == nullptr) {
    complete(absl::OkStatus());
  } else {
    enqueued.event->OnDone(complete);
  }
  if (!completion->done.WaitForNotificationWithTimeout(kPatience))
    Throw(absl::DeadlineExceededError("the launch does not end"));
  if (!completion->status.ok()) Throw(completion->status);
  std::vector<Array> results;
  for (const DeviceBufferRef& r : enqueued.results)
    results.push_back(ValueOrThrow(backend.ToHost(*r)));
  return results;
}

}  // namespace

// Compiles once for each backend and gives every shard its own thread, because the shards wait for
// each other in collectives. A shard that fails aborts the collectives, so that its peers end, too.
std::vector<Shards> RunOnBackends(const std::vector<ShardDevice>& on, const FunctionRef& f,
                                  const std::vector<Shards>& args,
                                  const std::vector<int64_t>& devices) {
  const int n = static_cast<int>(devices.size());
  std::map<worker::Backend*, std::shared_ptr<const worker::Executable>> executables;
  worker::CommunicatorConfig config;
  config.timeout = kPatience;
  config.generation = 1;
  std::vector<int> ranks;
  for (int i = 0; i < n; ++i) {
    auto& executable = executables[on[i].backend.get()];
    if (executable == nullptr)
      executable = ValueOrThrow(on[i].backend->Compile({kOpset, f, {}, {}}));
    config.ranks.push_back({i, "test", 1, "", "here"});
    config.local_ranks.push_back(i);
    ranks.push_back(i);
  }
  // A device keeps state for each generation, so each run takes a new one and closes it at the end.
  static std::atomic<uint64_t> generation{0};
  const uint64_t this_generation = ++generation;
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
      context.device = on[i].device;
      context.mesh_device = devices[i];
      context.collectives = collectives.get();
      context.generation = this_generation;
      context.ranks = ranks;
      context.cancel = &never;
      std::vector<Array> mine;
      for (const Shards& shards : args) mine.push_back(shards[i]);
      worker::Backend& backend = *on[i].backend;
      ends[i] = CatchStatus(
          [&] { results[i] = RunShard(backend, *executables.at(&backend), context, mine); });
      if (!ends[i].ok()) collectives->Abort(ends[i]);
    });
  }
  for (std::thread& t : threads) t.join();
  for (const auto& [backend, executable] : executables) backend->CloseGeneration(this_generation);
  for (const absl::Status& end : ends)
    if (!end.ok()) Throw(end);
  std::vector<Shards> out(f->results.size());
  for (size_t r = 0; r < out.size(); ++r)
    for (int i = 0; i < n; ++i) out[r].push_back(results[i][r]);
  return out;
}

bool MayRoundToTf32(const Sample& s) {
  return s.def->lowering == Lowering::kContract && s.dtype() == DType::kF32 &&
         PrecisionOf(s.attrs) != Precision::kHighest;
}

// The evaluator runs the same function as the backends. For a row on a mesh that has axes other
// than Manual ones, this is the device program of a plan, because neither can run the row itself.
std::string DifferenceOnBackends(
    const Sample& s, double ulps_min,
    const std::function<std::vector<ShardDevice>(int shards)>& devices_for, bool tf32) {
  FunctionRef f = FunctionOf(s);
  std::vector<Shards> args = ArgsOf(s);
  std::vector<Shards> magnitudes;
  const bool reordered = s.tolerance.kind == Tolerance::kReordered;
  if (reordered) magnitudes = ValueOrThrow(MagnitudesOf(s, args));
  std::vector<int64_t> devices = DevicesOf(s.scope);
  if (!s.scope.mesh.empty() && !s.manual()) {  // Only a plan can run such a row.
    std::vector<Array> whole;
    for (const Shards& shards : args) whole.push_back(shards[0]);
    Planned p = PlanOf({kOpset, f, {}, {}}, whole);
    f = p.plan.device_program;
    args = std::move(p.args);
    devices = std::move(p.devices);
    for (size_t r = 0; r < magnitudes.size(); ++r) {
      const Array of_whole = magnitudes[r][0];
      magnitudes[r].clear();
      for (const int64_t d : devices)
        magnitudes[r].push_back(BlockOf(of_whole, p.plan.out[r].spec, p.plan.mesh, d));
    }
  }
  const std::vector<ShardDevice> on = devices_for(static_cast<int>(devices.size()));
  if (on.empty()) return "";
  const std::vector<Shards> want = ValueOrThrow(Evaluator().RunOnDevices(devices, *f, args));
  const std::vector<Shards> got = RunOnBackends(on, f, args, devices);
  Tolerance tolerance = s.tolerance;
  if (tolerance.kind == Tolerance::kUlps)
    tolerance = ulps_min == 0 ? kExact : Ulps(std::max(tolerance.bound, ulps_min));
  // An f32 has 13 more mantissa bits than a TF32. Cutting them off changes a factor by less than
  // 2^-10 of itself, and rounding changes it by less than cutting. Hence a product of two factors
  // changes by less than 2^-9 of itself, and a sum of products by less than 2^-9 of the sum of
  // their magnitudes. The bound counts in epsilons of f32, 2^-23, and already allows for sums in
  // another order.
  if (tf32 && tolerance.kind == Tolerance::kReordered && MayRoundToTf32(s))
    tolerance.bound += 0x1p-9 / 0x1p-23;
  const std::string why = FirstDifference(got, want, tolerance, reordered ? &magnitudes : nullptr);
  return why.empty() ? "" : absl::StrCat(why, "\n", PrintFunction(*f));
}

}  // namespace tessera::ir::samples
