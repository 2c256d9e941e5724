// A convolutional network with batch normalization learns to read handwritten digits. The batch is
// spread over all devices. Each layer's results are normalized by their mean and variance over the
// whole batch, which are therefore sums over all devices.
// Reference: Ioffe and Szegedy, "Batch normalization: accelerating deep network training by
// reducing internal covariate shift" (2015).
//
//   conv_net                            on four CPU devices inside this process
//   conv_net --epochs 20 --mesh data=1,model=1
#include <cstdio>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "client/tessera.h"
#include "examples/command_line.h"
#include "examples/digits.h"

namespace tessera::examples {

// A convolution, and the scale and shift of its result after the normalization.
struct Layer {
  Array kernel, scale, shift;
};
TESSERA_TREE(Layer, kernel, scale, shift)
struct Net {
  Layer first, second, third;
  Array w, b;
};
TESSERA_TREE(Net, first, second, third, w, b)
// The mean and variance of a layer's results. Training keeps moving averages of both, which
// normalize the results after the training.
struct Moments {
  Array mean, variance;
};
TESSERA_TREE(Moments, mean, variance)
struct Statistics {
  Moments first, second, third;
};
TESSERA_TREE(Statistics, first, second, third)
struct Images {
  Array x, labels;  // f32[images, 8, 8, 1], s32[images]
};
TESSERA_TREE(Images, x, labels)

namespace {

constexpr int64_t kSide = 8, kClasses = 10, kBatch = 96;
constexpr double kTrainShare = 0.8, kMomentum = 0.9, kEpsilon = 1e-5;
constexpr uint64_t kSplitSeed = 7;

// Normalizes a layer's results, then scales and shifts them. If `new_averages` is null, they are
// normalized by `averages`. Otherwise they are normalized by the batch's own moments, and
// `new_averages` gets `averages` moved towards these moments.
Array Normalize(const Array& x, const Layer& layer, const Moments& averages,
                Moments* new_averages) {
  Moments m = averages;
  if (new_averages != nullptr) {
    m = {mean(x, {0, 1, 2}), var(x, {0, 1, 2})};
    const auto moving_average = [](const Array& from, const Array& to) {
      return stop_gradient(kMomentum * from + (1 - kMomentum) * to);
    };
    *new_averages = {moving_average(averages.mean, m.mean),
                     moving_average(averages.variance, m.variance)};
  }
  return (x - m.mean) * lax::rsqrt(m.variance + kEpsilon) * layer.scale + layer.shift;
}
Array ApplyLayer(const Array& x, const Layer& layer, const Moments& averages,
                 Moments* new_averages) {
  lax::ConvOptions options;
  options.dimension_numbers = {"NHWC", "HWIO", "NHWC"};
  const Array y = lax::conv_general_dilated(x, layer.kernel, {1, 1}, "SAME", options);
  return relu(Normalize(y, layer, averages, new_averages));
}
Array MaxPool(const Array& x) {
  return lax::reduce_window(
      x, -std::numeric_limits<double>::infinity(),
      [](const Array& a, const Array& b) { return lax::max(a, b); }, {1, 2, 2, 1}, {1, 2, 2, 1},
      "VALID");
}

// Returns the logits of each image's classes. If `new_averages` is null, the layers' results are
// normalized by `averages`. Otherwise they are normalized by the batch's own moments, and
// `new_averages` gets the moving averages after this batch.
Array Logits(const Net& net, const Statistics& averages, const Array& x, Statistics* new_averages) {
  const auto new_averages_of = [&](Moments Statistics::*layer) {
    return new_averages == nullptr ? nullptr : &(new_averages->*layer);
  };
  Array y = ApplyLayer(x, net.first, averages.first, new_averages_of(&Statistics::first));
  y = MaxPool(ApplyLayer(y, net.second, averages.second, new_averages_of(&Statistics::second)));
  y = ApplyLayer(y, net.third, averages.third, new_averages_of(&Statistics::third));
  return matmul(mean(y, {1, 2}), net.w) + net.b;
}

struct State {
  Net params;
  optim::OptState<Net> opt_state;
  Statistics statistics;
};
TESSERA_TREE(State, params, opt_state, statistics)

std::pair<State, Array> Step(const State& state, const Images& batch,
                             const optim::GradientTransformation& optimizer) {
  const auto loss = [](const Net& net, const Statistics& averages, const Images& images) {
    Statistics new_averages;
    const Array logits = Logits(net, averages, images.x, &new_averages);
    const Array losses = optim::softmax_cross_entropy_with_integer_labels(logits, images.labels);
    return std::pair(mean(losses), new_averages);
  };
  const auto [result, grads] = value_and_grad(loss)(state.params, state.statistics, batch);
  const auto [updates, opt_state] = optimizer.update(grads, state.opt_state);
  return {{optim::apply_updates(state.params, updates), opt_state, result.second}, result.first};
}

Array NumCorrect(const Net& net, const Statistics& averages, const Images& images) {
  return sum(
      equal(argmax(Logits(net, averages, images.x, nullptr), 1), images.labels).astype(kS32));
}

Images PutImages(const Digits& d, const Mesh& mesh) {
  ir::Array labels(kS32, {d.size()});
  for (int64_t i = 0; i < d.size(); ++i) labels.Set(i, d.labels[i]);
  const PartitionSpec by_image = P({"data", "model"});
  return {put(ir::Array::Of(kF32, {d.size(), kSide, kSide, 1}, d.pixels), mesh, by_image),
          put(labels, mesh, by_image)};
}

State Initial(const Mesh& mesh, const optim::GradientTransformation& optimizer) {
  const auto put_whole = [&](const Array& a) { return put(a, mesh, P()); };
  const Array keys = random::split(random::key(8), 4);
  const auto kernel = nn::initializers::variance_scaling(2, "fan_in", "normal");
  const auto layer = [&](int64_t key, int64_t in, int64_t out) {
    return Layer{put_whole(kernel(keys[key], {3, 3, in, out})), put_whole(ones({out})),
                 put_whole(zeros({out}))};
  };
  const auto moments = [&](int64_t n) {
    return Moments{put_whole(zeros({n})), put_whole(ones({n}))};
  };
  const Net net{layer(0, 1, 16), layer(1, 16, 32), layer(2, 32, 64),
                put_whole(random::normal(keys[3], {64, kClasses}) * 0.125),
                put_whole(zeros({kClasses}))};
  return {net, optimizer.init(net), {moments(16), moments(32), moments(64)}};
}

struct Flags {
  ClusterFlags cluster;
  int64_t epochs = 12;
  std::string data_file = "examples/data/digits.txt";
  double min_accuracy = 1;
};
const std::string kUsage = std::string("usage: conv_net [options]\n") + kClusterUsage +
                           "  --epochs N              (12)\n"
                           "  --data FILE             (examples/data/digits.txt)\n"
                           "  --min-accuracy PERCENT  exit code 1 below it\n";

// Trains the network and prints the loss and the accuracy on the test images after each epoch. The
// images are split with a fixed seed, so that every run sees the same split. Returns 1 if the
// accuracy at the end is below --min-accuracy, so that a test can run this program.
int Run(int argc, char** argv) {
  Flags flags;
  std::vector<Option> options = flags.cluster.Options();
  options.insert(options.end(), {{"--epochs", &flags.epochs},
                                 {"--data", &flags.data_file},
                                 {"--min-accuracy", &flags.min_accuracy}});
  ParseOptions(argc, argv, options);
  const Digits all = ReadDigits(flags.data_file);
  const std::vector<int64_t> split = Permutation(all.size(), kSplitSeed);
  const Cluster cluster = OpenCluster(flags.cluster);
  const int64_t devices = cluster.mesh.size();
  const auto train_size = static_cast<int64_t>(kTrainShare * static_cast<double>(all.size()));
  const Digits train = all.Select(split, 0, train_size);
  // The number of test images must be a multiple of the number of devices.
  const int64_t test_size = (all.size() - train_size) / devices * devices;
  const Images test =
      PutImages(all.Select(split, train_size, train_size + test_size), cluster.mesh);

  // The learning rate falls to a tenth for the last third of the epochs.
  const int64_t steps = train.size() / kBatch;
  const auto optimizer =
      optim::adam(optim::piecewise_constant_schedule(3e-3, {{2 * flags.epochs / 3 * steps, 0.1}}));
  State state = Initial(cluster.mesh, optimizer);
  const auto step =
      jit([&](const State& state, const Images& batch) { return Step(state, batch, optimizer); },
          {.name = "train_step", .donate_argnums = {0}});
  const auto num_correct = jit(NumCorrect);
  double accuracy = 0;
  for (int64_t epoch = 1; epoch <= flags.epochs; ++epoch) {
    const std::vector<int64_t> order =
        Permutation(train.size(), 2000 + static_cast<uint64_t>(epoch));
    Array last;
    for (int64_t s = 0; s < steps; ++s) {
      auto [next, loss] =
          step(state, PutImages(train.Select(order, s * kBatch, (s + 1) * kBatch), cluster.mesh));
      state = next;
      last = loss;
    }
    accuracy = 100.0 * num_correct(state.params, state.statistics, test).item<int32_t>() /
               static_cast<double>(test_size);
    std::printf("epoch %lld/%lld  loss %.4f  test images %.1f%%\n", static_cast<long long>(epoch),
                static_cast<long long>(flags.epochs), last.item<float>(), accuracy);
    std::fflush(stdout);
  }
  return accuracy < flags.min_accuracy ? 1 : 0;
}

}  // namespace
}  // namespace tessera::examples

int main(int argc, char** argv) {
  using namespace tessera::examples;  // NOLINT(google-build-using-namespace): main is outside
  return Main("conv_net", kUsage, Run, argc, argv);
}
