// A small network learns to tell two moons apart. A struct of parameters, a loss, its gradient, a
// compiled step and Adam are all in view. At the end the program prints how the network divides the
// plane.
//
//   mlp                          on four CPU devices inside this process
//   mlp --address HOST:PORT      on a cluster
#include <cmath>
#include <cstdio>
#include <tuple>
#include <utility>
#include <vector>

#include "client/tessera.h"
#include "examples/command_line.h"

namespace tessera::examples {

// The parameters. Any struct whose fields are named can hold them, and so can a vector of such
// structs.
struct Layer {
  Array weight, bias;
};
TESSERA_TREE(Layer, weight, bias)
using Mlp = std::vector<Layer>;

namespace {

constexpr int64_t kPoints = 512;

// The model. Returns for each of a batch of points, f32[points, 2], the logit that the point
// belongs to the second moon.
Array Logits(const Mlp& mlp, Array x) {
  for (size_t i = 0; i < mlp.size(); ++i) {
    if (i > 0) x = tanh(x);
    x = matmul(x, mlp[i].weight) + mlp[i].bias;
  }
  return squeeze(x, 1);
}

Array Loss(const Mlp& mlp, Array x, Array labels) {
  return mean(optim::sigmoid_binary_cross_entropy(Logits(mlp, x), labels));
}

Mlp Initial(const Array& key, const std::vector<int64_t>& sizes) {
  Mlp mlp;
  for (size_t i = 0; i + 1 < sizes.size(); ++i) {
    const Array layer_key = random::fold_in(key, static_cast<int32_t>(i));
    mlp.push_back({nn::initializers::lecun_normal()(layer_key, {sizes[i], sizes[i + 1]}),
                   zeros({sizes[i + 1]})});
  }
  return mlp;
}

// Returns points around two half circles, and the half circle of each point. Each half circle ends
// inside the other.
std::pair<Array, Array> Moons(const Array& key) {
  const Array keys = random::split(key), labels = remainder(arange(kPoints), 2).astype(kF32);
  const Array angle = random::uniform(keys[0], {kPoints}, kF32, 0, M_PI);
  const Array x = where(labels > 0, 1 - cos(angle), cos(angle));
  const Array y = where(labels > 0, 0.5 - sin(angle), sin(angle));
  return {stack({x, y}, 1) + 0.1 * random::normal(keys[1], {kPoints, 2}), labels};
}

// Prints the plane around the moons, with one character for each place.
void Print(const Mlp& mlp) {
  constexpr int kRows = 18, kColumns = 60;
  const Array x = broadcast_to(arange(kColumns, kF32) * (4.0 / kColumns) - 1.5, {kRows, kColumns});
  const Array y =
      broadcast_to(expand_dims(1.3 - arange(kRows, kF32) * (2.2 / kRows), 1), {kRows, kColumns});
  const Array second = Logits(mlp, stack({x, y}, 2).reshape({-1, 2})) > 0;
  const std::vector<bool> is_second = second.get<bool>();
  for (size_t i = 0; i < is_second.size(); ++i)
    std::printf("%c%s", is_second[i] ? '#' : '.', (i + 1) % kColumns == 0 ? "\n" : "");
}

const std::string kUsage = "usage: mlp [options]\n" + kSessionUsage +
                           "  --steps N               (200)\n"
                           "  --min-accuracy PERCENT  exit code 1 below it\n";

// Trains the network on all points, and prints the accuracy and the plane. The program shards only
// its data; the planner derives the shardings of all else. Returns 1 if the accuracy is below
// --min-accuracy.
int Run(int argc, char** argv) {
  SessionFlags flags;
  int64_t steps = 200;
  double min_accuracy = 1;
  std::vector<Option> options = flags.Options();
  options.insert(options.end(), {{"--steps", &steps}, {"--min-accuracy", &min_accuracy}});
  ParseOptions(argc, argv, options);
  const auto session = OpenSession(flags, 4);

  // The program says only once where something lies: each device has a quarter of the points. All
  // else follows from that, also the sums of the gradients over the devices.
  const Mesh mesh = make_mesh({4}, {"data"}, {AxisType::kAuto});
  const auto [points, moons] = Moons(random::key(0));
  const Array x = put(points, mesh, P("data")), labels = put(moons, mesh, P("data"));

  const auto optimizer = optim::adam(3e-2);
  Mlp mlp = Initial(random::key(1), {2, 16, 16, 1});
  optim::OptState<Mlp> state = optimizer.init(mlp);
  const auto step = jit([&](const Mlp& now, const optim::OptState<Mlp>& moments, Array x, Array y) {
    const auto [loss, grads] = value_and_grad(Loss)(now, x, y);
    const auto [updates, next] = optimizer.update(grads, moments);
    return std::tuple(optim::apply_updates(now, updates), next, loss);
  });
  for (int64_t i = 1; i <= steps; ++i) {
    Array loss;
    std::tie(mlp, state, loss) = step(mlp, state, x, labels);
    if (i % 50 == 0) std::printf("step %3d  loss %.4f\n", static_cast<int>(i), loss.item<float>());
  }
  const Array correct = equal(Logits(mlp, x) > 0, labels > 0);
  const double accuracy = 100 * mean(correct.astype(kF32)).item<double>();
  std::printf("%.1f%% of the points are told apart\n\n", accuracy);
  Print(mlp);
  return accuracy < min_accuracy ? 1 : 0;
}

}  // namespace
}  // namespace tessera::examples

int main(int argc, char** argv) {
  using namespace tessera::examples;  // NOLINT(google-build-using-namespace): main is outside
  return Main("mlp", kUsage, Run, argc, argv);
}
