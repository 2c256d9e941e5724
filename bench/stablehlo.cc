// Measures how long one thread takes from the bytes of a StableHLO artifact to a verified program,
// and from a program back to the bytes.
//
//   bench-stablehlo [--ops N] [--rounds N] [--smoke]
//
// There are three programs: layers of a network, a loop of such layers, and layers with weights of
// a megabyte each as constants. A layer has products, sums, norms, functions and slices, and each
// op has its file and line. ExportProgram writes the artifacts. These steps are timed:
//
//   export    from the program to bytes
//   read      from the bytes to tables
//   import    from the tables to a program
//   verify    checking the program, as the coordinator checks a client's program
//   MB/s      bytes per second of `read` alone, and of `read`, `import` and `verify` together
//
// A second table shows how long a coordinator takes to read an artifact into a program and to plan
// the program, in its own process and in a jailed process (server/jail).
#include <cstdio>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_exception.h"
#include "bench/flags.h"
#include "bench/samples.h"
#include "ir/ops.h"
#include "ir/serial/source.h"
#include "ir/stablehlo/export.h"
#include "ir/stablehlo/import.h"
#include "ir/verify.h"
#include "server/jail/jailed_reader.h"
#include "server/planner/planner.h"

namespace tessera::bench {
namespace {

using namespace ir;  // NOLINT(google-build-using-namespace): nearly every name here is its

struct Flags {
  int64_t ops = 20'000;
  int rounds = 11;
  int weights = 32;  // number of weights of 1 MiB each
};

// Returns a layer of about twenty ops. Each op has a line of its own in the layer's source file.
Value AddLayer(Builder& b, Value x, Value w, int index) {
  int line = 0;
  const char* const file = InternFile(absl::StrCat("/home/user/model/layer_", index % 64, ".py"));
  const auto at = [&](Value v) {
    b.SetSite({file, ++line});
    return v;
  };
  at(x);
  const int64_t rows = x.dim(0), width = x.dim(1);
  const Value mean = at(Mul(ReduceSum(x, {1}), Full(b, x.dtype(), {rows}, 1.0 / width)));
  const Value centred = at(Sub(x, BroadcastInDim(mean, x.shape(), {0})));
  const Value scaled = at(Mul(centred, FullLike(x, 0.5)));
  const Value product = at(DotGeneral(scaled, w, {{}, {}, {1}, {0}}));
  const Value active = at(Tanh(product));
  const Value half = at(Slice(active, {0, 0}, {rows, width / 2}));
  const Value other = at(Slice(active, {0, width / 2}, {rows, width}));
  const Value gate = at(Mul(Logistic(half), other));
  const Value both = at(Concatenate({gate, half}, 1));
  const Value turned = at(Transpose(Reshape(both, {width, rows}), {1, 0}));
  return at(Add(x, Select(Compare(turned, FullLike(turned, 0), "GT"), turned, both)));
}

Program MakeLayers(int64_t ops, int weights) {
  Builder b(Scope{}, "layers");
  constexpr int64_t kRows = 8, kWidth = 16;
  Value x = b.Param(MakeType(DType::kF32, {kRows, kWidth}));
  const Value w = b.Param(MakeType(DType::kF32, {kWidth, kWidth}));
  for (int i = 0; i < weights; ++i) {
    Array weight(DType::kF32, {512, 512});
    for (int64_t k = 0; k < weight.num_elements(); ++k)
      weight.MutableAs<float>()[k] = static_cast<float>(k + i);
    const Value c = b.Emit1(ir::ops::kConstant, {}, {{"value", weight}});
    x = Add(x, Slice(c, {0, 0}, {kRows, kWidth}));
  }
  for (int i = 0; b.num_ops() < ops; ++i) x = AddLayer(b, x, w, i);
  return {kOpset, b.Build({x}), {}, {}};
}

// Returns a program with the layers in the body of a loop.
Program MakeLoop(int64_t ops) {
  const Program body = MakeLayers(ops, 0);
  Builder step(Scope{}, "step");
  const Value carry = step.Param(body.entry->type(0)), w = step.Param(body.entry->type(1));
  const Value next = Call(step, body.entry, {carry, w})[0];
  const FunctionRef f = step.Build({next, w});
  Builder b(Scope{}, "loop");
  const Value x = b.Param(body.entry->type(0)), v = b.Param(body.entry->type(1));
  return {kOpset, b.Build({Scan(b, f, {x, v}, 0, 2, 10)[0]}), {}, {}};
}

struct Row {
  std::string name;
  Program program;
  Samples exports = {}, read = {}, import = {}, verify = {}, total = {};
  size_t bytes = 0;
};

// Runs `f`, adds the time that it took to `samples`, and returns its result.
template <class F>
auto MeasureCall(Samples* samples, const F& f) {
  const absl::Time start = absl::Now();
  auto out = f();
  samples->Add(absl::Now() - start);
  return out;
}

void Measure(Row* row) {
  const std::string bytes = ValueOrThrow(
      MeasureCall(&row->exports, [&] { return stablehlo::ExportProgram(row->program); }));
  row->bytes = bytes.size();
  const stablehlo::Bytes view(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  const absl::Time start = absl::Now();
  const stablehlo::Artifact artifact =
      ValueOrThrow(MeasureCall(&row->read, [&] { return stablehlo::ReadArtifact(view); }));
  const Program program =
      ValueOrThrow(MeasureCall(&row->import, [&] { return stablehlo::ImportProgram(artifact); }));
  ThrowIfError(MeasureCall(&row->verify, [&] { return Verify(program); }));
  row->total.Add(absl::Now() - start);
}

// A program that a client sends, and the times for which the client waits.
struct ServedRow {
  std::string name;
  Program program;
  Samples read = {}, plan = {}, jailed_read = {}, jailed_plan = {};
};

void MeasureServed(server::jail::JailedReader& jailed, ServedRow* row) {
  const std::string tenant = "bench", bytes = ValueOrThrow(stablehlo::ExportProgram(row->program));
  const api::ProgramSource source{api::ProgramSource::Form::kStablehlo, bytes};
  server::core::PlanRequest request;
  request.tenant = tenant;
  request.cluster.absent_device_memory_bytes = int64_t{1} << 34;
  request.options.explain = false;
  request.program =
      ValueOrThrow(MeasureCall(&row->read, [&] { return serial::ReadSource(source, {}); }));
  ValueOrThrow(MeasureCall(&row->plan, [&] { return server::planner::MakePlan(request); }));
  ValueOrThrow(MeasureCall(&row->jailed_read,
                           [&] { return jailed.Read(tenant, source, absl::InfiniteFuture()); }));
  ValueOrThrow(MeasureCall(&row->jailed_plan, [&] { return jailed.Plan(request); }));
}

void PrintServed(const Flags& flags) {
  server::jail::PoolOptions pool;
  pool.process = {.binary = "/proc/self/exe", .args = {server::jail::kJailFlag}, .title = "jailed"};
  server::jail::JailedReader jailed(std::move(pool), {});
  ThrowIfError(jailed.Check());
  Builder one(Scope{}, "one");
  const Value x = one.Param(MakeType(DType::kF32, {2}));
  std::vector<ServedRow> rows = {{"one op", {kOpset, one.Build({Add(x, x)}), {}, {}}},
                                 {"layers", MakeLayers(flags.ops, 0)}};
  std::printf("\n%-32s %8s %9s %9s %9s %9s %9s\n", "ms, median", "ops", "read", "plan", "in jail",
              "in jail", "more");
  for (ServedRow& row : rows) {
    const int64_t ops = CountOps(*row.program.entry);
    // The first call of a tenant takes longer, because a jailed process is then used for the first
    // time.
    for (int i = 0; i < flags.rounds * (ops < 100 ? 50 : 1); ++i) MeasureServed(jailed, &row);
    const auto ms = [](const Samples& samples) { return samples.Quantile(0.5) / 1000; };
    std::printf("%-32s %8lld %9.3f %9.3f %9.3f %9.3f %9.3f\n", row.name.c_str(),
                static_cast<long long>(ops), ms(row.read), ms(row.plan), ms(row.jailed_read),
                ms(row.jailed_plan),
                ms(row.jailed_read) + ms(row.jailed_plan) - ms(row.read) - ms(row.plan));
  }
}

// Reads the flags, measures the three programs and prints both tables. The jailed process is this
// executable with the flag kJailFlag, so Main looks for that flag first. Returns 2 if a flag is
// wrong; an error in a measurement ends the program with an exception.
int Main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], server::jail::kJailFlag) == 0)
    return server::jail::RunJailedProcess(server::planner::MakePlan);
  Flags flags;
  FlagParser parser("bench-stablehlo",
                    "Measures how long StableHLO artifacts take to become verified programs.");
  parser.AddNumber("--ops", &flags.ops, "ops of a program");
  parser.AddNumber("--rounds", &flags.rounds, "number of rounds");
  parser.AddAction(
      "--smoke",
      [&flags] {
        flags = {200, 1, 1};
      },
      "runs short, as a test");
  if (const std::optional<int> status = parser.Parse(argc, argv)) return *status;
  std::vector<Row> rows = {
      {"layers", MakeLayers(flags.ops, 0)},
      {"a loop of them", MakeLoop(flags.ops)},
      {absl::StrCat("layers and ", flags.weights, " MiB of weights"),
       MakeLayers(flags.ops, flags.weights)},
  };
  std::printf("%-32s %8s %9s %9s %9s %9s %9s %9s %16s\n", "ms, median", "ops", "KB", "export",
              "read", "import", "verify", "in all", "MB/s");
  for (Row& row : rows) {
    for (int i = 0; i < flags.rounds; ++i) Measure(&row);
    const auto ms = [](const Samples& samples) { return samples.Quantile(0.5) / 1000; };
    const double kilobytes = static_cast<double>(row.bytes) / 1e3;
    std::printf("%-32s %8lld %9.0f %9.1f %9.1f %9.1f %9.1f %9.1f %8.1f %7.1f\n", row.name.c_str(),
                static_cast<long long>(CountOps(*row.program.entry)), kilobytes, ms(row.exports),
                ms(row.read), ms(row.import), ms(row.verify), ms(row.total),
                kilobytes / ms(row.read), kilobytes / ms(row.total));
  }
  PrintServed(flags);
  return 0;
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) { return tessera::bench::Main(argc, argv); }
