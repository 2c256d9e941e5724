// A Gaussian process learns smooth functions from noisy points. The logarithm of the points'
// likelihood is computed with a Cholesky factor of each function's covariance. The gradient of the
// likelihood is used to find the scale, the length and the noise that all functions share. The
// functions are spread over the devices. Reference: Rasmussen and Williams, "Gaussian Processes for
// Machine Learning" (2006), algorithm 2.1.
//
//   gaussian_process                    on four CPU devices inside this process
//   gaussian_process --functions 32 --points 128
#include <cmath>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "client/tessera.h"
#include "examples/command_line.h"

namespace tessera::examples {

// The parameters of the covariance. They are logarithms, so that any number stands for a positive
// parameter.
struct Kernel {
  Array scale, length, noise;
};
TESSERA_TREE(Kernel, scale, length, noise)
struct Points {
  Array x, y;  // f32[functions, points]
};
TESSERA_TREE(Points, x, y)

namespace {

constexpr double kNoise = 0.2;   // standard deviation of the points' noise
constexpr int64_t kPlaces = 50;  // number of places at which functions are predicted
constexpr double kEnd = 6;       // the functions are defined on [0, kEnd]

// Returns the covariance of each function at x, [functions, n], with itself at y, [functions, m].
Array Covariance(const Kernel& k, const Array& x, const Array& y) {
  const Array distance = (expand_dims(x, 2) - expand_dims(y, 1)) / exp(k.length);
  return exp(2.0 * k.scale - 0.5 * distance * distance);
}
// Returns the Cholesky factor of the covariance of each function's points.
Array CholeskyFactorOf(const Kernel& k, const Points& p) {
  const Array noise = exp(2.0 * k.noise) + 1e-4;
  return linalg::cholesky(Covariance(k, p.x, p.x) + noise * eye(p.x.shape()[1]));
}
Array SolveLower(const Array& l, const Array& b, bool transpose) {
  return lax::linalg::triangular_solve(
      l, b, {.left_side = true, .lower = true, .transpose_a = transpose});
}

// Returns the negative logarithm of the points' likelihood, divided by the number of points.
Array Loss(const Kernel& k, const Points& p) {
  const Array l = CholeskyFactorOf(k, p);
  const Array z = SolveLower(l, expand_dims(p.y, 2), /*transpose=*/false);
  const Array row = expand_dims(arange(l.shape()[1]), 1);
  const Array diagonal = sum(where(equal(row, arange(l.shape()[1])), l, 0), -1);
  const double count = static_cast<double>(p.x.shape()[0] * p.x.shape()[1]);
  return (0.5 * sum(z * z) + sum(log(diagonal))) / count + 0.5 * std::log(2 * 3.14159265358979);
}

// Returns the functions' predicted values at the places `at`.
Array Predict(const Kernel& k, const Points& p, const Array& at) {
  const Array l = CholeskyFactorOf(k, p);
  const Array z = SolveLower(l, expand_dims(p.y, 2), /*transpose=*/false);
  const Array weights = SolveLower(l, z, /*transpose=*/true);
  return squeeze(matmul(Covariance(k, at, p.x), weights), 2);
}

struct State {
  Kernel params;
  optim::OptState<Kernel> opt_state;
};
TESSERA_TREE(State, params, opt_state)
optim::GradientTransformation Optimizer() { return optim::adam(5e-2); }
std::pair<State, Array> Step(const State& state, const Points& p) {
  const auto [loss, grads] = value_and_grad(Loss)(state.params, p);
  const auto [updates, opt_state] = Optimizer().update(grads, state.opt_state);
  return {{optim::apply_updates(state.params, updates), opt_state}, loss};
}

// Returns the true functions at x, [functions, n]. Each function is a sum of two waves with a phase
// of its own.
Array Truth(const Array& phase, const Array& x) {
  return sin(x + phase) + 0.5 * sin(2.0 * x - phase);
}

struct Flags {
  ClusterFlags cluster;
  int64_t functions = 8, points = 40, steps = 100;
  double min_explained = 1;
};
const std::string kUsage = std::string("usage: gaussian_process [options]\n") + kClusterUsage +
                           "  --functions N            a multiple of the devices (8)\n"
                           "  --points N               of each function (40)\n"
                           "  --steps N                (100)\n"
                           "  --min-explained PERCENT  exit code 1 below it\n";

// Makes noisy points of known functions, learns the parameters from them, and predicts the
// functions at other places. Since the true functions are known, the program can tell how much of
// their variance the prediction explains. Returns 1 if that is less than --min-explained.
int Run(int argc, char** argv) {
  Flags flags;
  std::vector<Option> options = flags.cluster.Options();
  options.insert(options.end(), {{"--functions", &flags.functions},
                                 {"--points", &flags.points},
                                 {"--steps", &flags.steps},
                                 {"--min-explained", &flags.min_explained}});
  ParseOptions(argc, argv, options);
  const Cluster cluster = OpenCluster(flags.cluster);
  const Mesh& mesh = cluster.mesh;

  const Array keys = random::split(random::key(5), 3);
  const Dims shape = {flags.functions, flags.points};
  const Array phase = random::uniform(keys[0], {flags.functions, 1}, kF32, 0, 6);
  const Array x = random::uniform(keys[1], shape, kF32, 0, kEnd);
  const Array y = Truth(phase, x) + kNoise * random::normal(keys[2], shape);
  const PartitionSpec by_function = P({"data", "model"});
  const Points points{put(x, mesh, by_function), put(y, mesh, by_function)};
  const Array places = broadcast_to(arange(kPlaces).astype(kF32) * (kEnd / (kPlaces - 1)),
                                    {flags.functions, kPlaces});
  const Array at = put(places, mesh, by_function),
              truth = put(Truth(phase, places), mesh, by_function);

  const auto replicated = [&] { return put(zeros({}), mesh, P()); };
  const Kernel first{replicated(), replicated(), replicated()};
  State state{first, Optimizer().init(first)};

  const auto step = jit(Step, {.name = "train_step", .donate_argnums = {0}});
  for (int64_t i = 1; i <= flags.steps; ++i) {
    auto [next, loss] = step(state, points);
    state = next;
    if (i % 25 != 0 && i != flags.steps) continue;
    const auto learned = [](const Array& a) { return std::exp(a.item<float>()); };
    std::printf("step %lld/%lld  -log p %.3f  scale %.2f  length %.2f  noise %.2f\n",
                static_cast<long long>(i), static_cast<long long>(flags.steps), loss.item<float>(),
                learned(state.params.scale), learned(state.params.length),
                learned(state.params.noise));
    std::fflush(stdout);
  }
  const auto explained_by =
      jit([](const Kernel& k, const Points& p, const Array& at, const Array& truth) {
        const Array mean_squared_error = mean(square(Predict(k, p, at) - truth));
        return 100.0 * (1 - mean_squared_error / mean(square(truth - mean(truth))));
      });
  const double explained = explained_by(state.params, points, at, truth).item<float>();
  std::printf("between the points %.1f%% of the functions' variance is explained\n", explained);
  return explained < flags.min_explained ? 1 : 0;
}

}  // namespace
}  // namespace tessera::examples

int main(int argc, char** argv) {
  using namespace tessera::examples;  // NOLINT(google-build-using-namespace): main is outside
  return Main("gaussian_process", kUsage, Run, argc, argv);
}
