// A training that decides for itself when to stop, as one device program. It trains a linear
// classifier of the digits in a while loop, which ends once the validation loss has not improved
// for some steps.
//
//   early_stopping                      on four CPU devices inside this process
//   early_stopping --patience 50
#include <cstdio>
#include <string>
#include <vector>

#include "client/tessera.h"
#include "examples/command_line.h"
#include "examples/digits.h"

namespace tessera::examples {

struct Model {
  Array w, b;
};
TESSERA_TREE(Model, w, b)
// The loop's carry: the current model, the best model so far, the loss of the best model, the step
// that found it, and the current step.
struct Training {
  Model model, best;
  Array best_loss, best_step, step;
};
TESSERA_TREE(Training, model, best, best_loss, best_step, step)
struct Images {
  Array x, labels;
};
TESSERA_TREE(Images, x, labels)

namespace {

constexpr int64_t kPixels = 64, kClasses = 10;
constexpr double kLearningRate = 2;

Array Logits(const Model& m, const Array& x) { return matmul(x, m.w) + m.b; }
Array Loss(const Model& m, const Images& images) {
  const Array logits = Logits(m, images.x);
  return mean(optim::softmax_cross_entropy_with_integer_labels(logits, images.labels));
}

// Trains on `train` and keeps the model with the lowest loss on `valid`. Stops after `patience`
// steps without a lower loss, and after `limit` steps in any case.
Training Train(const Images& train, const Images& valid, Array patience, Array limit) {
  const auto sgd = optim::sgd(kLearningRate);  // this optimizer keeps no state
  const auto goes_on = [&](const Training& t) {
    return logical_and(t.step - t.best_step < patience, t.step < limit);
  };
  const auto train_step = [&](const Training& t) {
    const Model grads = grad(Loss)(t.model, train);
    const Model updates = sgd.update(grads, sgd.init(t.model)).first;
    const Model model = optim::apply_updates(t.model, updates);
    const Array loss = Loss(model, valid), better = loss < t.best_loss;
    const auto if_better = [&](Array a, Array b) { return where(better, a, b); };
    const Array step = t.step + 1;
    return Training{model, tree_map(if_better, model, t.best), if_better(loss, t.best_loss),
                    if_better(step, t.best_step), step};
  };
  const Model zero{zeros({kPixels, kClasses}), zeros({kClasses})};
  const Array zero_steps = full({}, 0, kS32);
  return while_loop(goes_on, train_step,
                    Training{zero, zero, Loss(zero, valid), zero_steps, zero_steps});
}

Array Accuracy(const Model& m, const Images& images) {
  return mean(equal(argmax(Logits(m, images.x), 1), images.labels).astype(kF32));
}

struct Flags {
  ClusterFlags cluster;
  std::string data_file = "examples/data/digits.txt";
  int64_t patience = 25, limit = 5000;
  double min_accuracy = 1;
};
const std::string kUsage = std::string("usage: early_stopping [options]\n") + kClusterUsage +
                           "  --data FILE             (examples/data/digits.txt)\n"
                           "  --patience N            steps without a better loss (25)\n"
                           "  --limit N               steps at most (5000)\n"
                           "  --min-accuracy PERCENT  exit code 1 below it\n";

// Splits the digits into images to train on, to validate with and to test with, and runs the whole
// training as one call. The client only learns afterwards how many steps the loop took. Returns 1
// if the accuracy on the test images is below --min-accuracy.
int Run(int argc, char** argv) {
  Flags flags;
  std::vector<Option> options = flags.cluster.Options();
  options.insert(options.end(), {{"--data", &flags.data_file},
                                 {"--patience", &flags.patience},
                                 {"--limit", &flags.limit},
                                 {"--min-accuracy", &flags.min_accuracy}});
  ParseOptions(argc, argv, options);
  const Digits all = ReadDigits(flags.data_file);
  const std::vector<int64_t> order = Permutation(all.size(), 7);
  const Cluster cluster = OpenCluster(flags.cluster);
  // Each number of images must be a multiple of the size of the axis `data`.
  const int64_t data_size = ParseMesh(flags.cluster.mesh).first;
  const auto images = [&](int64_t begin, int64_t end) {
    const Digits d = all.Select(order, begin, begin + (end - begin) / data_size * data_size);
    ir::Array labels(kS32, {d.size()});
    for (int64_t i = 0; i < d.size(); ++i) labels.Set(i, d.labels[i]);
    return Images{put(ir::Array::Of(kF32, {d.size(), kPixels}, d.pixels), cluster.mesh, P("data")),
                  put(labels, cluster.mesh, P("data"))};
  };
  const Images train = images(0, 200), valid = images(200, 600), test = images(600, 1600);

  const Training t = jit(Train, {.name = "train_until_it_stops"})(
      train, valid, static_cast<int32_t>(flags.patience), static_cast<int32_t>(flags.limit));
  const double accuracy = 100.0 * jit(Accuracy)(t.best, test).item<float>();
  std::printf(
      "stopped after %d steps; the best was step %d, validation loss %.4f, "
      "test accuracy %.1f%%\n",
      t.step.item<int32_t>(), t.best_step.item<int32_t>(), t.best_loss.item<float>(), accuracy);
  return accuracy < flags.min_accuracy ? 1 : 0;
}

}  // namespace
}  // namespace tessera::examples

int main(int argc, char** argv) {
  using namespace tessera::examples;  // NOLINT(google-build-using-namespace): main is outside
  return Main("early_stopping", kUsage, Run, argc, argv);
}
