// Trains several small networks side by side with functions named as in Equinox. The program says
// in C++, line by line, what equinox_mlp.py says in Python. If it is given the losses of that
// program, it compares its own losses with them.
//
//   equinox_mlp                        on a device inside this process
//   equinox_mlp --expect examples/data/equinox_mlp_losses.txt
#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "client/tessera.h"
#include "examples/command_line.h"

namespace tessera::examples {

// An eqx.Module becomes a struct whose fields are named. The method __init__ becomes a function,
// and __call__ becomes an operator().
struct Linear {
  Array weight, bias;

  Array operator()(const Array& x) const { return matmul(weight, x) + bias; }
};
TESSERA_TREE(Linear, weight, bias)

struct Mlp {
  std::vector<Linear> layers;
  Array order;   // order of the inputs: integers, which are not trained
  double scale;  // scale of the result
  Array (*activation)(const Arg& x);

  Array operator()(Array x) const {
    x = x[order];
    for (size_t i = 0; i + 1 < layers.size(); ++i) x = activation(layers[i](x));
    return scale * layers.back()(x)[0];
  }
};
TESSERA_TREE(Mlp, layers, order, scale, activation)

namespace {

Linear MakeLinear(int64_t in_size, int64_t out_size, const Array& key) {
  const double limit = 1 / std::sqrt(in_size);
  const Array keys = random::split(key);
  return {random::uniform(keys[0], {out_size, in_size}, kF32, -limit, limit),
          random::uniform(keys[1], {out_size}, kF32, -limit, limit)};
}

Mlp MakeMlp(const Array& key) {
  const Array keys = random::split(key, 4);
  return {{MakeLinear(3, 16, keys[0]), MakeLinear(16, 16, keys[1]), MakeLinear(16, 1, keys[2])},
          random::permutation(keys[3], 3),
          2.0,
          tanh};
}

Array Loss(const Mlp& model, const Array& x, const Array& y) {
  return mean(square(vmap(model)(x) - y));
}

const auto kLossesAndGrads =
    filter_value_and_grad([](const Mlp& models, const Array& x, const Array& y) {
      const Array losses = filter_vmap(Loss, {0, None, None})(models, x, y);
      return std::pair(sum(losses), losses);
    });

const auto kOptimizer = optim::adam(1e-2);
using OptState = optim::OptState<Mlp>;

const auto kStep = filter_jit([](Mlp models, OptState state, const Array& x, const Array& y) {
  const auto [value, grads] = kLossesAndGrads(models, x, y);
  const auto [updates, next] = kOptimizer.update(grads, state);
  return std::tuple(optim::apply_updates(models, updates), next, value.second);
});

// Returns the largest difference between a loss and the loss in the file, relative to the latter.
double LargestRelativeDifference(const std::vector<std::vector<float>>& losses,
                                 const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);  // the first line names the versions that made the losses
  double worst = 0;
  for (const std::vector<float>& step_losses : losses) {
    if (!std::getline(in, line)) throw std::runtime_error(path + ": a line per step is expected");
    std::istringstream numbers(line);
    for (const float loss : step_losses) {
      double want = 0;
      if (!(numbers >> want)) throw std::runtime_error(path + ": cannot read '" + line + "'");
      const double relative = std::abs(loss - want) / want;
      if (!(relative <= worst)) worst = relative;  // a NaN counts as a large difference
    }
  }
  return worst;
}

const std::string kUsage =
    "usage: equinox_mlp [options]\n" + kSessionUsage +
    "  --expect FILE           what equinox_mlp.py --losses-out has written\n";

// Makes the data and four networks, trains them together for 100 steps, and compares the losses
// with those in --expect if it is given. The random keys are used as in equinox_mlp.py, so that
// both programs begin with the same data and parameters. Returns 1 if the losses differ too much.
int Run(int argc, char** argv) {
  SessionFlags flags;
  std::string expect;
  std::vector<Option> options = flags.Options();
  options.push_back({"--expect", &expect});
  ParseOptions(argc, argv, options);
  const auto session = OpenSession(flags, 1);

  const Array keys = random::split(random::key(0), 2);
  const Array x = random::uniform(keys[0], {64, 3}, kF32, -1, 1);
  const Array y = sin(3 * x[{Slice{}, 0}]) * x[{Slice{}, 1}] + x[{Slice{}, 2}];

  Mlp models = filter_vmap(MakeMlp)(random::split(keys[1], 4));
  OptState state = kOptimizer.init(filter(models, is_inexact_array));
  std::vector<std::vector<float>> losses;
  for (int i = 0; i < 100; ++i) {
    Array step_losses;
    std::tie(models, state, step_losses) = kStep(models, state, x, y);
    losses.push_back(step_losses.get<float>());
    if (i % 20 == 0 || i == 99)
      std::printf("step %3d  losses %s\n", i, step_losses.to_string().c_str());
  }
  if (expect.empty()) return 0;
  constexpr double kBound = 1e-5;  // rounding of f32 when numbers are added in another order
  const double worst = LargestRelativeDifference(losses, expect);
  std::printf("the losses differ by at most %.1e of those of Equinox (bound %.0e)\n", worst,
              kBound);
  return worst <= kBound ? 0 : 1;
}

}  // namespace
}  // namespace tessera::examples

int main(int argc, char** argv) {
  using namespace tessera::examples;  // NOLINT(google-build-using-namespace): main is outside
  return Main("equinox_mlp", kUsage, Run, argc, argv);
}
