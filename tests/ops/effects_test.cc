// Proves that programs print the same on every backend: on CPUs, whose kernels are compiled or
// interpreted, and on accelerators. A program is sent without its effects and returns a record of
// them (ir/transform/record_effects.h). The test plans what is sent, runs it on the devices of the
// program's mesh, and compares the replay with what the evaluator prints. The accelerators are
// fakes, whose kernels run on the SIMT emulator.
#include <functional>

#include "ir/strided.h"
#include "ir/transform/record_effects.h"
#include "ir/transform/testing/effect_programs.h"
#include "tests/ops/on_backends.h"
#include "tests/ops/planned.h"
#include "worker/cpu/cpu_backend.h"
#include "worker/cuda/testing/fakes.h"
#include "worker/device/device_backend.h"

namespace tessera::ir::samples {
namespace {

using testing::EffectProgram;
using Kernels = worker::CpuBackendOptions::Kernels;
using DevicesFor = std::function<std::vector<ShardDevice>(int shards)>;

constexpr int32_t kFakeDevices = 4;  // as many as the largest mesh has

// Joins the blocks that the devices of the mesh have of an array.
Array Joined(const Shards& blocks, const PartitionSpec& spec, const Mesh& mesh) {
  Dims shape = blocks[0].shape();
  for (size_t d = 0; d < spec.dims.size(); ++d) shape[d] *= mesh.SizeOf(spec.dims[d]);
  Array out(blocks[0].dtype(), shape);
  for (size_t device = 0; device < blocks.size(); ++device) {
    Dims start(shape.size(), 0);
    for (size_t d = 0; d < spec.dims.size(); ++d)
      start[d] =
          mesh.IndexAlong(static_cast<int64_t>(device), spec.dims[d]) * blocks[device].shape()[d];
    WriteBlock(&out, start, blocks[device]);
  }
  return out;
}

// Runs the program on devices. Returns the lines that it prints, or the error as the only line.
std::vector<std::string> PrintedOn(const EffectProgram& p, const RecordLimits& limits,
                                   const DevicesFor& devices_for) {
  std::vector<std::string> lines;
  const absl::Status status = CatchStatus([&] {
    const FunctionWithRecord recorded = ValueOrThrow(RecordEffects(*p.f, limits));
    Planned planned = PlanOf({kOpset, recorded.function, {}, {}}, p.args);
    const std::vector<ShardDevice> on = devices_for(static_cast<int>(planned.devices.size()));
    const std::vector<Shards> results =
        RunOnBackends(on, planned.plan.device_program, planned.args, planned.devices);
    const size_t first = results.size() - recorded.effects.num_results;
    return EffectReplay(recorded.effects,
                        [&](int i) {
                          return Joined(results[first + i], planned.plan.out[first + i].spec,
                                        planned.plan.mesh);
                        })
        .Run(testing::PrintTo(&lines));
  });
  if (!status.ok()) lines = {status.ToString()};
  return lines;
}

std::vector<std::string> PrintedByEvaluator(const EffectProgram& p) {
  std::vector<std::string> lines;
  EvalOptions options;
  options.print = testing::PrintTo(&lines);
  ValueOrThrow(Evaluator(options).Run(*p.f, p.args));
  return lines;
}

void ExpectEqualPrints(const DevicesFor& devices_for) {
  for (const EffectProgram& p : testing::EffectPrograms())
    EXPECT_EQ(PrintedOn(p, {}, devices_for), PrintedByEvaluator(p)) << p.name;
  // The record is too small in the end.
  EXPECT_THAT(PrintedOn(testing::NestedLoops(), {.calls = 6}, devices_for),
              ::testing::ElementsAre(::testing::AllOf(::testing::HasSubstr("1 of its 7 calls"),
                                                      ::testing::HasSubstr("CALLBACKS_DROPPED"))));
}

DevicesFor CpuDevices(Kernels kernels) {
  return [kernels](int shards) {
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
}

TEST(Effects, ProgramsPrintTheSameOnCpus) {
  ExpectEqualPrints(CpuDevices(Kernels::kAlways));
  ExpectEqualPrints(CpuDevices(Kernels::kInterpreted));
}

TEST(Effects, ProgramsPrintTheSameOnAccelerators) {
  worker::cuda::SetFake("devices", kFakeDevices);
  std::vector<ShardDevice> devices;
  for (int i = 0; i < kFakeDevices; ++i) {
    worker::device::DeviceBackendOptions options;
    options.ordinal = i;
    options.memory_bytes = 64 << 20;
    options.collective_timeout = absl::Seconds(30);
    devices.push_back(
        {ValueOrThrow(worker::device::MakeDeviceBackend(&worker::cuda::FakeDevices(), options)),
         0});
  }
  const auto devices_for = [&](int shards) {
    return std::vector<ShardDevice>(devices.begin(), devices.begin() + shards);
  };
  ExpectEqualPrints(devices_for);
}

}  // namespace
}  // namespace tessera::ir::samples
