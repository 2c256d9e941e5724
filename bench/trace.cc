// Measures how long the tracing of a training step takes, from its C++ to the bytes of its program.
// The time is compared with JAX's trace and lowering of the same step on the same cores.
//
//   bench-trace [--layers N] [--rounds N] [--traces N] [--smoke] [--jax PYTHON]
//
// Tessera's time is that of jit(f).lower(args...) and of writing the program's bytes. It includes
// the C++ function, its gradient, the optimizer and all transforms. JAX's time is
// jit(f).trace(...).lower() after jax.clear_caches(), without bytes. Neither side keeps anything
// from one trace for the next. Tessera and JAX take turns, round by round, and the loss of each
// step is compared with JAX's once, after the first trace of each side. The steps train one GPT:
//
//   one device   the step of examples/gpt.cc
//   Explicit     the step of examples/gpt_three_ways.cc on a mesh of eight devices, with shardings
//                in types
//   shard_map    the step of examples/gpt_three_ways.cc on that mesh, with shard_map
#include <sys/resource.h>

#include <cmath>
#include <cstdio>
#include <functional>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "bench/compared.h"
#include "bench/flags.h"
#include "bench/gpt_state.h"
#include "bench/samples.h"
#include "client/tessera.h"
#include "examples/gpt_model.h"
#include "ir/serial/program.h"

namespace tessera::bench {
namespace {

using examples::Block;
using examples::Gpt;
using examples::State;

constexpr int64_t kBatch = 8;

// ---- The model on a mesh, written as in examples/gpt_three_ways.cc. -----------------------------

// The operations that differ between the two ways to write a sharded model.
// examples/gpt_three_ways.cc explains each of them.
struct Way {
  std::function<Array(const Array& tokens, const Array& ids)> embed;
  std::function<Array(const Array& x)> whole_text;
  std::function<Array(std::string_view spec, const Array& x, const Array& w)> summed_einsum;
  std::function<Array(int64_t length)> query_positions;
  std::function<Array(const Array& x)> global_mean;
};

const PartitionSpec kTokenSpec = P("data", "seq"), kWholeTextSpec = P("data", "tensor");

Way Explicit() {
  return {.embed =
              [](const Array& tokens, const Array& ids) {
                return take(tokens, ids, 0, lax::GatherScatterMode::kFillOrDrop, kTokenSpec);
              },
          .whole_text = [](const Array& x) { return reshard(x, kWholeTextSpec); },
          .summed_einsum =
              [](std::string_view spec, const Array& x, const Array& w) {
                return einsum(spec, {x, w}, {}, kTokenSpec);
              },
          .query_positions = [](int64_t length) { return arange(length); },
          .global_mean = [](const Array& x) { return mean(x); }};
}

Way ByShardMap() {
  return {.embed = [](const Array& tokens, const Array& ids) { return take(tokens, ids, 0); },
          .whole_text = [](const Array& x) { return lax::all_gather(x, "seq", 2, /*tiled=*/true); },
          .summed_einsum =
              [](std::string_view spec, const Array& x, const Array& w) {
                return lax::psum(einsum(spec, {x, w}), "tensor");
              },
          .query_positions =
              [](int64_t length) { return lax::axis_index("seq") * length + arange(length); },
          .global_mean =
              [](const Array& x) {
                return lax::pmean(mean(x), {"data", "seq"});
              }};
}

Array Norm(const Array& x, const Array& scale) {
  const Array centred = x - mean(x, -1, /*keepdims=*/true);
  return centred * lax::rsqrt(mean(square(centred), -1, true) + 1e-5) * scale;
}

Array Attention(const Way& way, const Block& p, const Array& x) {
  const Array qkv = einsum("btd,dchk->cbhtk", {x, p.qkv});
  const Array keys = way.whole_text(qkv[1]), values = way.whole_text(qkv[2]);
  const Array scores = einsum("bhtk,bhsk->bhts", {qkv[0], keys}) / std::sqrt(examples::kHeadWidth);
  const Array is_past =
      expand_dims(way.query_positions(x.shape()[1]), 1) >= arange(examples::kLength);
  const Array weights = softmax(scores + where(is_past, 0.0, -1e9));
  const Array mixed = einsum("bhts,bhsk->bthk", {weights, values});
  return way.summed_einsum("bthk,hkd->btd", mixed, p.out);
}

Array Loss(const Way& way, const Gpt& p, const Array& inputs, const Array& targets) {
  Array x = way.embed(p.tokens, inputs) + p.positions;
  for (const Block& block : p.blocks) {
    x = x + Attention(way, block, Norm(x, block.norm1));
    const Array hidden = gelu(matmul(Norm(x, block.norm2), block.up));
    x = x + way.summed_einsum("btf,fd->btd", hidden, block.down);
  }
  const Array log_p = log_softmax(einsum("btd,vd->btv", {Norm(x, p.norm), p.tokens}));
  return way.global_mean(-take_along_axis(log_p, expand_dims(targets, -1), -1));
}

Prefix<PartitionSpec> Specs(int64_t layers) {
  const Prefix<PartitionSpec> block = {P(), P(None, None, "tensor"), P("tensor"),
                                       P(), P(None, "tensor"),       P("tensor")};
  Prefix<PartitionSpec> blocks(std::initializer_list<Prefix<PartitionSpec>>{});
  for (int64_t i = 0; i < layers; ++i) blocks.children.emplace_back("", block);
  return {P(), P("seq"), blocks, P()};
}

// ---- Rows. --------------------------------------------------------------------------------------

struct Times {
  Samples wall, cpu;
};

struct Row {
  std::string name;  // the row's name in bench/trace_jax.py
  std::function<ir::Program()> trace;
  std::function<double()> loss;
  double our_first = 0, jax_first = 0;  // ms
  Times ours = {}, jax = {};
  Samples writing = {};  // the part of our time that writes the bytes
  int64_t ops = 0, num_bytes = 0;
};

template <class F, class... A>
Row MakeRow(const std::string& name, std::optional<Mesh> mesh, F f, A... args) {
  Row row;
  row.name = name;
  row.trace = [=] {
    std::optional<set_mesh> context;
    if (mesh) context.emplace(*mesh);
    return jit(f).lower(args...).call().traced.program;
  };
  row.loss = [=] {
    std::optional<set_mesh> context;
    if (mesh) context.emplace(*mesh);
    return jit(f)(args...).second.template item<double>();
  };
  return row;
}

Row MakeMeshRow(const std::string& name, int64_t layers, const Mesh& mesh,
                const std::function<Array(const Gpt&, const Array&, const Array&)>& loss) {
  const set_mesh context(mesh);
  const Gpt p = filter_shard(GptState(layers).params, mesh, Specs(layers));
  const State state = {p, examples::Optimizer().init(p)};
  const auto text = [&](uint32_t salt) {
    return put(IntegersOnHost(salt, examples::kVocabulary, {kBatch, examples::kLength}), mesh,
               kTokenSpec);
  };
  const auto step = [loss](const State& now, const Array& inputs, const Array& targets) {
    const auto [value, grads] =
        value_and_grad([&](const Gpt& p) { return loss(p, inputs, targets); })(now.params);
    const auto [updates, after] = examples::Optimizer().update(grads, now.opt_state);
    return std::pair(State{optim::apply_updates(now.params, updates), after}, value);
  };
  return MakeRow(name, mesh, step, state, text(1000), text(1001));
}

std::vector<Row> MakeRows(int64_t layers) {
  const Mesh mesh = make_mesh({2, 2, 2}, {"data", "tensor", "seq"});
  const Mesh automatic = mesh.With(AxisType::kAuto);
  const auto loss_of = [](const Way& way) {
    return [way](const Gpt& p, const Array& inputs, const Array& targets) {
      return Loss(way, p, inputs, targets);
    };
  };
  const Array text = put(IntegersOnHost(1000, examples::kVocabulary, {2, examples::kLength + 1}));
  std::vector<Row> rows;
  rows.push_back(
      MakeRow("one device", std::nullopt, examples::Step, GptState(layers), text, random::key(1)));
  rows.push_back(MakeMeshRow("Explicit", layers, mesh, loss_of(Explicit())));
  rows.push_back(MakeMeshRow(
      "shard_map", layers, automatic,
      shard_map(loss_of(ByShardMap()), automatic, {Specs(layers), kTokenSpec, kTokenSpec}, P())));
  return rows;
}

// ---- Measuring. ---------------------------------------------------------------------------------

absl::Duration ProcessorTime() {
  rusage used;
  getrusage(RUSAGE_SELF, &used);
  return absl::DurationFromTimeval(used.ru_utime) + absl::DurationFromTimeval(used.ru_stime);
}

void TraceOnce(Row* row) {
  const absl::Time begin = absl::Now();
  const absl::Duration cpu = ProcessorTime();
  const ir::Program program = row->trace();
  const absl::Time traced = absl::Now();
  const std::string bytes = ir::serial::ToProto(program).SerializeAsString();
  const absl::Time end = absl::Now();
  row->ours.cpu.Add(ProcessorTime() - cpu);
  row->ours.wall.Add(end - begin);
  row->writing.Add(end - traced);
  row->num_bytes = static_cast<int64_t>(bytes.size());
  row->ops = ir::CountOps(*program.entry);
}

absl::Status TraceInJax(JaxScript* jax, Row* row) {
  TESSERA_RETURN_IF_ERROR(jax->Measure(row->name, 1, &row->jax.wall));
  return jax->Measure(row->name + ", cpu", 1, &row->jax.cpu);
}

double Ms(const Samples& us, double quantile) { return us.Quantile(quantile) * 1e-3; }

void Print(const std::vector<Row>& rows, bool with_jax) {
  std::printf("%-11s %6s %8s | %7s %7s %7s %7s %7s", "ms", "ops", "bytes", "first", "median", "min",
              "cpu", "writing");
  if (with_jax)
    std::printf(" | %8s %8s %8s %8s | %7s %6s %6s %6s", "JAX: 1st", "median", "min", "cpu",
                "ratio:1", "median", "min", "cpu");
  std::printf("\n");
  for (const Row& row : rows) {
    const auto& [wall, cpu] = row.ours;
    std::printf("%-11s %6d %8d | %7.1f %7.1f %7.1f %7.1f %7.1f", row.name.c_str(),
                static_cast<int>(row.ops), static_cast<int>(row.num_bytes), row.our_first,
                Ms(wall, 0.5), Ms(wall, 0), Ms(cpu, 0), Ms(row.writing, 0));
    if (with_jax) {
      const auto& [jax_wall, jax_cpu] = row.jax;
      std::printf(" | %8.1f %8.1f %8.1f %8.1f | %7.3f %6.3f %6.3f %6.3f", row.jax_first,
                  Ms(jax_wall, 0.5), Ms(jax_wall, 0), Ms(jax_cpu, 0), row.our_first / row.jax_first,
                  Ms(wall, 0.5) / Ms(jax_wall, 0.5), Ms(wall, 0) / Ms(jax_wall, 0),
                  Ms(cpu, 0) / Ms(jax_cpu, 0));
    }
    std::printf("\n");
  }
}

struct Flags {
  int layers = 12, rounds = 5, traces = 3;
  std::string jax;
};

// Measures the three steps and prints the table. The first trace of each step has a column of its
// own. The loss is compared with JAX's right after that trace. Then the steps take turns within a
// round, several traces of ours before one of JAX's.
absl::Status Run(const Flags& flags) {
  Session::SetDefault(Session::Embedded({.devices = 8}));
  std::vector<Row> rows = MakeRows(flags.layers);
  std::optional<JaxScript> jax;
  if (!flags.jax.empty()) {
    TESSERA_ASSIGN_OR_RETURN(JaxScript started, JaxScript::Start(flags.jax, "trace_jax.py",
                                                                 {absl::StrCat(flags.layers)}));
    jax.emplace(std::move(started));
  }
  for (Row& row : rows) {
    TraceOnce(&row);
    row.our_first = Ms(row.ours.wall, 0);
    if (!jax) continue;
    TESSERA_RETURN_IF_ERROR(TraceInJax(&*jax, &row));
    row.jax_first = Ms(row.jax.wall, 0);
    TESSERA_RETURN_IF_ERROR(jax->Check(row.name, {row.loss()}));
  }
  for (int round = 0; round < flags.rounds; ++round) {
    for (Row& row : rows) {
      for (int i = 0; i < flags.traces; ++i) TraceOnce(&row);
      if (jax) TESSERA_RETURN_IF_ERROR(TraceInJax(&*jax, &row));
    }
  }
  Print(rows, jax.has_value());
  rows.clear();
  Session::SetDefault(nullptr);
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Flags flags;
  FlagParser parser("bench-trace", "Measures how long the tracing of a training step takes.");
  parser.AddNumber("--layers", &flags.layers, "layers of the GPT");
  parser.AddNumber("--rounds", &flags.rounds, "number of rounds");
  parser.AddNumber("--traces", &flags.traces, "traces of each step in a round");
  parser.AddAction(
      "--smoke", [&flags] { flags.layers = flags.rounds = flags.traces = 1; },
      "runs short, as a test");
  parser.AddText("--jax", "PYTHON", &flags.jax, "compares with JAX under this Python");
  if (const std::optional<int> status = parser.Parse(argc, argv)) return *status;
  const absl::Status status = Run(flags);
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) { return tessera::bench::Main(argc, argv); }
