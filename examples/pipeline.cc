// A network that is too deep for one device. Each device has the layers of one stage. A batch goes
// through the stages in small parts, one after another, so that all stages are at work.
// Reference: Huang et al., "GPipe: efficient training of giant neural networks using pipeline
// parallelism" (2018).
//
//   pipeline                           four stages on four CPU devices inside this process
#include <cmath>
#include <cstdio>
#include <tuple>
#include <utility>
#include <vector>

#include "client/tessera.h"
#include "examples/command_line.h"

namespace tessera::examples {

// The layers of one stage. With one more dim in front, the arrays hold the layers of all stages.
struct Stage {
  Array w1, b1, w2, b2;
};
TESSERA_TREE(Stage, w1, b1, w2, b2)

namespace {

constexpr int64_t kStages = 4, kParts = 8, kRows = 16, kWidth = 32, kHidden = 64;

Array Apply(const Stage& s, const Array& x) {
  return x + matmul(tanh(matmul(x, s.w1) + s.b1), s.w2) + s.b2;
}

// The model without a pipeline, on one device. `x` is f32[parts, rows, width].
Array Plain(const Stage& stages, Array x) {
  for (int64_t i = 0; i < kStages; ++i)
    x = Apply(tree_map([&](const Array& a) { return a[i]; }, stages), x);
  return x;
}

// Like Plain, but written for one device on the axis `stage`. The device has its own stage, with a
// first dim of 1, and all of `x`. In each tick it applies its stage to what the device before it
// has sent. The first device applies its stage to the next part of `x` instead. The results of the
// last device are the results of the model, kStages - 1 ticks late.
Array Pipelined(const Stage& own, const Array& x) {
  const Stage stage = tree_map([](const Array& a) { return squeeze(a, 0); }, own);
  const Array stage_index = lax::axis_index("stage");
  std::vector<std::pair<int64_t, int64_t>> to_the_next;
  for (int64_t i = 0; i + 1 < kStages; ++i) to_the_next.push_back({i, i + 1});

  // Empty parts follow the last part, so that it gets through all stages.
  const Array parts = concatenate({x, zeros({kStages - 1, kRows, kWidth})});
  const auto tick = [&](const Array& received, const Array& part) {
    const Array out = Apply(stage, where(equal(stage_index, 0), part, received));
    return std::pair(lax::ppermute(out, "stage", to_the_next), out);
  };
  // The received arrays vary over the devices, so the value with which the loop begins must vary
  // too.
  const Array nothing = lax::pcast(zeros({kRows, kWidth}), "stage", "varying");
  const Array outs = scan(tick, nothing, parts).second[Slice{kStages - 1}];
  // Gives the last device's results to all devices.
  return lax::psum(where(equal(stage_index, kStages - 1), outs, 0), "stage");
}

Stage Initial(const Mesh& mesh) {
  const Array keys = random::split(random::key(0));
  const double narrow = 1 / std::sqrt(kWidth), wide = 0.5 / std::sqrt(kHidden);
  const auto put_on_stages = [&](const Array& a) { return put(a, mesh, P("stage")); };
  return {put_on_stages(random::normal(keys[0], {kStages, kWidth, kHidden}) * narrow),
          put_on_stages(zeros({kStages, kHidden})),
          put_on_stages(random::normal(keys[1], {kStages, kHidden, kWidth}) * wide),
          put_on_stages(zeros({kStages, kWidth}))};
}

const std::string kUsage =
    "usage: pipeline [options]\n" + kSessionUsage + "  --steps N               (20)\n";

// Trains the pipelined and the plain network side by side, from the same parameters, and compares
// their losses. Prints the pipeline's plan, in which its ppermute appears, and how many ticks of a
// stage are idle. Returns 1 if a loss differs by more than the rounding of f32 explains.
int Run(int argc, char** argv) {
  SessionFlags flags;
  int64_t steps = 20;
  std::vector<Option> options = flags.Options();
  options.push_back({"--steps", &steps});
  ParseOptions(argc, argv, options);
  const auto session = OpenSession(flags, kStages);
  const Mesh mesh = make_mesh({kStages}, {"stage"}, {AxisType::kAuto});

  // The network learns to reverse each row.
  const Array x = put(random::normal(random::key(1), {kParts, kRows, kWidth}), mesh, P());
  const Array y = flip(x, 2);

  const auto optimizer = optim::adam(3e-3);
  const auto step_of = [&](const auto& model) {
    return jit([&optimizer, model](const Stage& stages, const optim::OptState<Stage>& state,
                                   const Array& x, const Array& y) {
      const auto loss = [&](const Stage& s) { return mean(square(model(s, x) - y)); };
      const auto [value, grads] = value_and_grad(loss)(stages);
      const auto [updates, next] = optimizer.update(grads, state);
      return std::tuple(optim::apply_updates(stages, updates), next, value);
    });
  };
  const auto pipeline = shard_map(Pipelined, mesh, {P("stage"), P()}, P());
  const auto pipelined = step_of(pipeline);
  const auto plain = step_of(Plain);

  Stage a = Initial(mesh), b = a;
  optim::OptState<Stage> state_a = optimizer.init(a), state_b = state_a;
  std::printf("%s\n", explain(jit(pipeline), a, x).c_str());
  constexpr double kBound = 1e-5;  // rounding of f32 when numbers are added in another order
  double worst = 0;
  for (int64_t i = 1; i <= steps; ++i) {
    Array loss_a, loss_b;
    std::tie(a, state_a, loss_a) = pipelined(a, state_a, x, y);
    std::tie(b, state_b, loss_b) = plain(b, state_b, x, y);
    const double pipelined_value = loss_a.item<double>(), plain_value = loss_b.item<double>();
    const double relative = std::abs(pipelined_value - plain_value) / plain_value;
    if (!(relative <= worst)) worst = relative;  // a NaN counts as a large difference
    if (i == 1 || i % 5 == 0)
      std::printf("step %2d  loss %.6f pipelined, %.6f plain\n", static_cast<int>(i),
                  pipelined_value, plain_value);
  }
  std::printf(
      "the losses differ by at most %.1e of the plain ones (bound %.0e); "
      "%d of %d ticks of a stage are idle\n",
      worst, kBound, static_cast<int>(kStages - 1), static_cast<int>(kParts + kStages - 1));
  return worst <= kBound ? 0 : 1;
}

}  // namespace
}  // namespace tessera::examples

int main(int argc, char** argv) {
  using namespace tessera::examples;  // NOLINT(google-build-using-namespace): main is outside
  return Main("pipeline", kUsage, Run, argc, argv);
}
