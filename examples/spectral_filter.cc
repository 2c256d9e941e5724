// A filter learns to take noise out of signals. The gradient through a Fourier transform and its
// inverse finds how much of each frequency to keep. The signals are spread over the devices. The
// learned filter approaches Wiener's.
// Reference: N. Wiener, "Extrapolation, Interpolation, and Smoothing of Stationary Time Series"
// (1949).
//
//   spectral_filter                     on four CPU devices inside this process
//   spectral_filter --signals 256 --length 1000
#include <cmath>
#include <cstdio>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "client/tessera.h"
#include "examples/command_line.h"

namespace tessera::examples {

struct Filter {
  Array gains;  // f32[frequencies]; their sigmoid is the part of a frequency to keep
};
TESSERA_TREE(Filter, gains)
struct Signals {
  Array noisy, clean;  // f32[signals, length]
};
TESSERA_TREE(Signals, noisy, clean)

namespace {

constexpr int64_t kWaves = 3;   // waves in each signal
constexpr double kNoise = 0.7;  // standard deviation of the noise

Array ApplyFilter(const Filter& f, const Array& x) {
  const Array spectrum = fft::rfft(x), gain = sigmoid(f.gains);
  return fft::irfft(complex(real(spectrum) * gain, imag(spectrum) * gain), x.shape()[1]);
}
Array MeanSquaredError(const Array& x, const Array& clean) { return mean(square(x - clean)); }
Array Loss(const Filter& f, const Signals& s) {
  return MeanSquaredError(ApplyFilter(f, s.noisy), s.clean);
}

struct State {
  Filter params;
  optim::OptState<Filter> opt_state;
};
TESSERA_TREE(State, params, opt_state)
optim::GradientTransformation Optimizer() { return optim::adam(1e-1); }
std::pair<State, Array> Step(const State& state, const Signals& s) {
  const auto [loss, grads] = value_and_grad(Loss)(state.params, s);
  const auto [updates, opt_state] = Optimizer().update(grads, state.opt_state);
  return {{optim::apply_updates(state.params, updates), opt_state}, loss};
}

// Makes signals that are sums of a few slow waves, with and without noise. The noise has all
// frequencies.
Signals MakeSignals(const Array& key, int64_t signals, int64_t length) {
  const Array keys = random::split(key, 3);
  const Array cycles = random::randint(keys[0], {signals, kWaves, 1}, 1, 12).astype(kF32);
  const Array phase = random::uniform(keys[1], {signals, kWaves, 1}, kF32, 0, 2 * std::numbers::pi);
  const Array time = arange(length).astype(kF32) / static_cast<double>(length);
  const Array clean = sum(sin(2 * std::numbers::pi * cycles * time + phase), 1);
  return {clean + kNoise * random::normal(keys[2], {signals, length}), clean};
}

struct Flags {
  ClusterFlags cluster;
  int64_t signals = 64, length = 360, steps = 100;
  double min_removed = 1;
};
const std::string kUsage = std::string("usage: spectral_filter [options]\n") + kClusterUsage +
                           "  --signals N              a multiple of the devices (64)\n"
                           "  --length N               of each signal (360)\n"
                           "  --steps N                (100)\n"
                           "  --min-removed PERCENT    exit code 1 below it\n";

// Trains the filter on some signals, and prints how much of the noise it removes from other signals
// that it has not seen. Returns 1 if that is less than --min-removed.
int Run(int argc, char** argv) {
  Flags flags;
  std::vector<Option> options = flags.cluster.Options();
  options.insert(options.end(), {{"--signals", &flags.signals},
                                 {"--length", &flags.length},
                                 {"--steps", &flags.steps},
                                 {"--min-removed", &flags.min_removed}});
  ParseOptions(argc, argv, options);
  const Cluster cluster = OpenCluster(flags.cluster);
  const Mesh& mesh = cluster.mesh;

  const Array keys = random::split(random::key(6), 2);
  const auto signals = [&](int64_t key) {
    const Signals s = MakeSignals(keys[key], flags.signals, flags.length);
    const PartitionSpec by_signal = P({"data", "model"});
    return Signals{put(s.noisy, mesh, by_signal), put(s.clean, mesh, by_signal)};
  };
  const Signals train = signals(0), test = signals(1);
  const Filter first{put(zeros({flags.length / 2 + 1}), mesh, P())};
  State state{first, Optimizer().init(first)};

  const auto step = jit(Step, {.name = "train_step", .donate_argnums = {0}});
  for (int64_t i = 1; i <= flags.steps; ++i) {
    auto [next, loss] = step(state, train);
    state = next;
    if (i % 25 != 0 && i != flags.steps) continue;
    std::printf("step %lld/%lld  error %.4f\n", static_cast<long long>(i),
                static_cast<long long>(flags.steps), loss.item<float>());
    std::fflush(stdout);
  }
  const double before = jit(MeanSquaredError)(test.noisy, test.clean).item<float>();
  const double after = jit(Loss)(state.params, test).item<float>();
  const double removed = 100 * (1 - after / before);
  std::printf("%.1f%% of the noise of unseen signals is removed\n", removed);
  return removed < flags.min_removed ? 1 : 0;
}

}  // namespace
}  // namespace tessera::examples

int main(int argc, char** argv) {
  using namespace tessera::examples;  // NOLINT(google-build-using-namespace): main is outside
  return Main("spectral_filter", kUsage, Run, argc, argv);
}
