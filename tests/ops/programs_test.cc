// Proves that random programs over the whole op table (programs.h) give the results that JAX
// computes op by op, and the same results for every backend, number of devices and sharding. The
// ops of the programs come from samples, or rows: test cases of one op each (samples.h).
//
// TESSERA_RANDOM_PROGRAMS gives the range of seeds, and TESSERA_RECORDED_PROGRAMS the file with
// JAX's results. scripts/random_programs sets both.
#include "tests/ops/programs.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/testing/datadriven.h"
#include "ir/op_def.h"
#include "ir/registry.h"
#include "ir/text.h"
#include "ir/transform/transform.h"
#include "tests/ops/on_backends.h"
#include "tests/ops/op_test.h"
#include "tests/ops/planned.h"
#include "tests/ops/sample_json.h"
#include "worker/cpu/cpu_backend.h"

namespace tessera::ir::samples {
namespace {

using Specs = std::vector<std::optional<PartitionSpec>>;

constexpr int kDevices = 4;
// Compiled functions of floats may be this far from those of the evaluator.
constexpr double kCompiledUlps = 2;

std::vector<ShardDevice> Devices() {
  static const auto* const kBackend = new std::shared_ptr<worker::Backend>(
      worker::MakeCpuBackend({.num_devices = kDevices,
                              .memory_bytes = int64_t{1} << 30,
                              .codegen = {},
                              .kernels = worker::CpuBackendOptions::Kernels::kAlways,
                              .dump = {}}));
  std::vector<ShardDevice> devices;
  for (int i = 0; i < kDevices; ++i) devices.push_back({*kBackend, i});
  return devices;
}

// Returns a description of the first result that differs by more than its `ulps` + `more`, or "" if
// none does. A result whose `ulps` is 0 must be exact.
std::string FirstDifferentResult(const std::vector<double>& ulps, const std::vector<Shards>& got,
                                 const std::vector<Shards>& want, double more) {
  for (size_t r = 0; r < want.size(); ++r) {
    const Tolerance within = ulps[r] > 0 ? Ulps(ulps[r] + more) : kExact;
    const std::string why = FirstDifference({got[r]}, {want[r]}, within, nullptr);
    if (!why.empty()) return absl::StrCat("of result ", r, ": ", why);
  }
  return "";
}

// Returns the results with every number below twice the least normal number replaced by a zero of
// the same sign. XLA flushes subnormal numbers to zero in all floats but f16 (see
// WithoutSubnormalsAndNans in programs.cc). The factor of two is needed because XLA computes asin
// from intermediate values that are half as large as the result.
std::vector<Shards> WithoutTiny(std::vector<Shards> results) {
  for (Shards& shards : results)
    for (Array& a : shards) {
      const DType dtype = a.dtype();
      if (dtype != DType::kF64 && dtype != DType::kF32 && dtype != DType::kBF16) continue;
      const double least = dtype == DType::kF64 ? 0x1p-1021 : 0x1p-125;
      for (int64_t i = 0; i < a.num_elements(); ++i)
        if (std::abs(a.At(i)) < least) a.Set(i, std::copysign(0.0, a.At(i)));
    }
  return results;
}

// Calls `check` for every program. `check` returns why the program fails, or "".
void ForEachProgram(const std::function<std::string(const RandomProgram&)>& check) {
  for (const RandomProgram& p : RandomPrograms()) {
    std::string why;
    const absl::Status status = CatchStatus([&] { why = check(p); });
    if (!status.ok()) why = status.ToString();
    EXPECT_EQ(why, "") << p.sample.name << ":\n" << PrintFunction(*p.sample.regions[0]);
  }
}

TEST(RandomProgramsTest, GiveWhatJaxGives) {
  const char* elsewhere = std::getenv("TESSERA_RECORDED_PROGRAMS");
  const Recording recording = ValueOrThrow(ReadRecording(
      elsewhere != nullptr ? elsewhere : SourcePath("tests/ops/recorded/programs.jsonl")));
  size_t failed = 0;
  ForEachProgram([&](const RandomProgram& p) -> std::string {
    const auto it = recording.samples.find(p.sample.name);
    if (it == recording.samples.end() || it->second.digest != DigestOf(p.sample))
      return "its values are not recorded; run scripts/record_samples.py with \"programs\"";
    if (!it->second.failed.empty()) {
      std::cout << p.sample.name << ": not compared: " << it->second.failed << "\n";
      ++failed;
      return "";
    }
    const std::vector<Shards> got =
        ValueOrThrow(RunShards(*FunctionOf(p.sample), ArgsOf(p.sample)));
    return FirstDifferentResult(p.ulps_of_xla, WithoutTiny(got), WithoutTiny(it->second.results),
                                0);
  });
  // XLA's compiler crashes with a segmentation fault on about one program in 500 (in JAX 0.10.2).
  EXPECT_LE(failed, RandomPrograms().size() / 100) << "programs that JAX did not survive";
}

// Returns a random spec. It uses each axis of the mesh for a dim whose size the axis divides, or
// not at all.
PartitionSpec AnySpec(std::mt19937_64& random, const Type& type, const Mesh& mesh) {
  PartitionSpec spec;
  spec.dims.resize(type.rank());
  if (type.rank() == 0) return spec;
  for (const MeshAxis& axis : mesh.axes) {
    AxisList& dim = spec.dims[random() % type.rank()];
    dim.push_back(axis.name);
    const auto d = static_cast<int>(&dim - spec.dims.data());
    if (random() % 4 == 0 || type.shape[d] % mesh.SizeOf(dim) != 0) dim.pop_back();
  }
  return spec;
}

// Compares a compiled run on one device with the evaluator. Then compares the blocks of sharded
// runs with the run on one device, bit for bit.
TEST(RandomProgramsTest, AreTheSameUnderEveryPlacement) {
  const Mesh kMeshes[] = {{{{"d", 2}}}, {{{"x", 2}, {"y", 2}}}};
  ForEachProgram([&](const RandomProgram& p) -> std::string {
    const FunctionRef& f = p.sample.regions[0];
    const std::vector<Shards> args = ArgsOf(p.sample);
    const std::vector<Shards> one = RunOnBackends(Devices(), f, args, {0});
    const std::vector<Shards> evaluated = ValueOrThrow(RunShards(*f, args));
    std::string why = FirstDifferentResult(p.ulps, one, evaluated, kCompiledUlps);
    if (!why.empty()) return absl::StrCat("compiled and evaluated differ: ", why);

    std::mt19937_64 random(p.seed);
    std::vector<Array> whole;
    for (const Shards& shards : args) whole.push_back(shards[0]);
    for (const Mesh& mesh : kMeshes) {
      Program program{kOpset, ValueOrThrow(Rescope(*f, Scope{mesh}, f->param_types())), {}, {}};
      const auto specs = [&](const std::vector<Type>& types, Specs* specs) {
        for (const Type& t : types)
          specs->push_back(random() % 3 == 0 ? std::nullopt
                                             : std::optional(AnySpec(random, t, mesh)));
      };
      specs(f->param_types(), &program.in_shardings);
      specs(f->result_types(), &program.out_shardings);
      const Planned planned = PlanOf(program, whole);
      const std::vector<Shards> cut =
          RunOnBackends(Devices(), planned.plan.device_program, planned.args, planned.devices);
      for (size_t r = 0; r < cut.size(); ++r)
        for (const int64_t d : planned.devices) {
          const Array want = BlockOf(one[r][0], planned.plan.out[r].spec, mesh, d);
          const std::string differs = Difference(cut[r][d], want, kExact, nullptr);
          if (!differs.empty())
            return absl::StrCat("on ", mesh.ToString(), ", result ", r, " on device ", d, ": ",
                                differs, "\n", PrintFunction(*planned.plan.device_program));
        }
    }
    return "";
  });
}

// Every op of the table is in a random program, or NotInPrograms names the reason why not.
TEST(RandomProgramsTest, HaveAllOps) {
  std::set<std::string> in, missing;
  for (const RandomProgram& p : RandomPrograms())
    for (const Op& op : p.sample.regions[0]->ops) in.insert(std::string(op.def->name));
  for (const OpDef* def : AllOps()) {
    const std::string name(def->name);
    if (in.count(name) + NotInPrograms().count(name) == 0) missing.insert(name);
    EXPECT_FALSE(in.count(name) > 0 && NotInPrograms().count(name) > 0) << name;
  }
  for (const auto& [name, reason] : NotInPrograms()) EXPECT_NE(FindOp(name), nullptr) << name;
  std::printf("%zu programs of %zu ops; %zu others are named\n", RandomPrograms().size(), in.size(),
              NotInPrograms().size());
  if (RandomPrograms().size() < OpsOfRandomPrograms().size())
    GTEST_SKIP() << "too few programs for every op to be in one";
  EXPECT_EQ(absl::StrJoin(missing, " "), "");
}

}  // namespace
}  // namespace tessera::ir::samples
