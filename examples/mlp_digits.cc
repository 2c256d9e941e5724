// The tutorial: a small network learns to read handwritten digits on a mesh.
//
// The program is written for one device. Only its inputs have placements: the batch is sharded over
// the mesh axis `data`, and the weights are sharded over `model`.
//
//   mlp_digits                                     on four CPU devices inside this process
//   mlp_digits --mesh data=1,model=1               computes the same numbers on one device
//   mlp_digits --address 127.0.0.1:8470            on a cluster
//   mlp_digits --checkpoint mlp.safetensors        saves after every epoch, and resumes from there
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <limits>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "client/tessera.h"
#include "examples/command_line.h"
#include "examples/digits.h"

namespace tessera::examples {

// 1. The parameters. Any struct whose fields are named can hold them.
struct Mlp {
  Array w1, b1, w2, b2;
};
TESSERA_TREE(Mlp, w1, b1, w2, b2)

namespace {

constexpr int64_t kPixels = 64, kHidden = 128, kClasses = 10, kBatch = 128;
constexpr double kTrainShare = 0.8;
constexpr uint64_t kSplitSeed = 7;

// 2. The program.
Array Logits(const Mlp& p, Array x) { return matmul(relu(matmul(x, p.w1) + p.b1), p.w2) + p.b2; }

Array Loss(const Mlp& p, Array x, Array labels) {
  return mean(optim::softmax_cross_entropy_with_integer_labels(Logits(p, x), labels));
}

// The state of the training: the parameters, and Adam's moments of each parameter.
struct State {
  Mlp params;
  optim::OptState<Mlp> opt_state;
};
TESSERA_TREE(State, params, opt_state)
optim::GradientTransformation Optimizer() { return optim::adam(4e-3); }

// One step of the training, which jit compiles into a single program.
std::pair<State, Array> Step(const State& state, Array x, Array labels) {
  const auto [loss, grads] = value_and_grad(Loss)(state.params, x, labels);
  const auto [updates, opt_state] = Optimizer().update(grads, state.opt_state);
  return {{optim::apply_updates(state.params, updates), opt_state}, loss};
}

Array Predict(const Mlp& p, Array x) { return argmax(Logits(p, x), 1); }

// 3. Where the parameters live.
const PartitionSpec kW1 = P(None, "model"), kB1 = P("model"), kW2 = P("model", None), kB2 = P();
const Prefix<PartitionSpec> kSpecs = {kW1, kB1, kW2, kB2};

State Initial(const Mesh& mesh, DType dtype) {
  const Array keys = random::split(random::key(0), 2);
  const auto hidden = nn::initializers::variance_scaling(2, "fan_in", "normal");
  const auto output = nn::initializers::variance_scaling(1, "fan_in", "normal");
  const Mlp params{put(hidden(keys[0], {kPixels, kHidden}, dtype), mesh, kW1),
                   put(zeros({kHidden}, dtype), mesh, kB1),
                   put(output(keys[1], {kHidden, kClasses}, dtype), mesh, kW2),
                   put(zeros({kClasses}, dtype), mesh, kB2)};
  return {params, Optimizer().init(params)};
}

struct Batch {
  Array x, labels;
};
Batch PutBatch(const Digits& d, const Mesh& mesh, DType dtype) {
  ir::Array labels(kS32, {d.size()});
  for (int64_t i = 0; i < d.size(); ++i) labels.Set(i, d.labels[i]);
  return {put(ir::Array::Of(dtype, {d.size(), kPixels}, d.pixels), mesh, P("data")),
          put(labels, mesh, P("data"))};
}

// 4. Checkpoints: the whole state of the training, as one tree in one file.
struct Checkpoint {
  State state;
  Array losses;  // losses of all steps so far, f64
};
TESSERA_TREE(Checkpoint, state, losses)

void Save(const std::string& path, const State& state, const std::vector<double>& losses) {
  const auto steps = static_cast<int64_t>(losses.size());
  save(Checkpoint{state, put(ir::Array::Of(kF64, {steps}, losses))}, path, {.overwrite = true});
}

// Returns the state and the losses in the file, or nullopt if there is no file.
std::optional<Checkpoint> Restore(const std::string& path, const State& like) {
  Dims losses;
  try {
    for (const SavedArray& a : saved_arrays(path)) {
      if (a.name == "losses") losses = a.shape;
    }
  } catch (const Error& e) {
    if (e.reason() == "FILE_NOT_FOUND") return std::nullopt;
    throw;
  }
  return load(Checkpoint{like, abstract(losses, kF64)}, path);
}

// ---- The command line. --------------------------------------------------------------------------

struct Flags {
  ClusterFlags cluster;
  DType dtype = kF32;
  int64_t epochs = 30;
  std::string checkpoint, losses_out, predictions_out, data_file = "examples/data/digits.txt";
  bool explain = true;
  double min_accuracy = 0;
};

const std::string kUsage =
    std::string("usage: mlp_digits [options]\n") + kClusterUsage +
    "  --checkpoint PATH       saves after every epoch and goes on from there: a .safetensors "
    "file\n"
    "                          below the workers' folder of files, or any path inside this "
    "process\n"
    "  --dtype f32|f64         what it computes in (f32)\n"
    "  --epochs N              (30)\n"
    "  --data FILE             (examples/data/digits.txt)\n"
    "  --losses-out FILE       writes the loss of every step, one a line\n"
    "  --predictions-out FILE  writes the digit read in every test image, one a line\n"
    "  --no-explain            does not print the plan\n"
    "  --min-accuracy PERCENT  exit code 1 below it\n";

Flags Parse(int argc, char** argv) {
  Flags flags;
  std::string dtype = "f32";
  bool no_explain = false;
  std::vector<Option> options = flags.cluster.Options();
  options.insert(options.end(), {{"--checkpoint", &flags.checkpoint},
                                 {"--dtype", &dtype},
                                 {"--epochs", &flags.epochs},
                                 {"--data", &flags.data_file},
                                 {"--losses-out", &flags.losses_out},
                                 {"--predictions-out", &flags.predictions_out},
                                 {"--no-explain", &no_explain},
                                 {"--min-accuracy", &flags.min_accuracy}});
  ParseOptions(argc, argv, options);
  if (dtype != "f32" && dtype != "f64") throw UsageError("--dtype: f32 or f64 is expected");
  flags.dtype = dtype == "f32" ? kF32 : kF64;
  flags.explain = !no_explain;
  return flags;
}

std::string ProgressBar(int done, int total) {
  constexpr int kWidth = 24;
  const int filled = kWidth * done / total;
  return std::string(filled, '#') + std::string(kWidth - filled, '.');
}

// Writes the values to a file, one on each line. Does nothing if `path` is empty.
template <class T>
void WriteLines(const std::string& path, const std::vector<T>& values) {
  if (path.empty()) return;
  std::ofstream out(path);
  out.precision(std::numeric_limits<double>::max_digits10);
  for (const T& value : values) out << value << "\n";
  if (!out.flush()) throw std::runtime_error(path + ": cannot be written");
}

// ---- 5. Training. -------------------------------------------------------------------------------

// Trains for one pass over the training images, in the order of `epoch`. Returns the loss of each
// step.
template <class StepFn>
std::vector<double> TrainEpoch(const StepFn& step, const Digits& train, int epoch, const Mesh& mesh,
                               DType dtype, bool print_plan, State* state) {
  const std::vector<int64_t> order = Permutation(train.size(), 1000 + static_cast<uint64_t>(epoch));
  std::vector<Array> pending;
  for (int64_t s = 0; s < train.size() / kBatch; ++s) {
    const Batch batch = PutBatch(train.Select(order, s * kBatch, (s + 1) * kBatch), mesh, dtype);
    if (print_plan && s == 0) {
      std::printf("\n%s\n\n", explain(step, *state, batch.x, batch.labels).c_str());
    }
    // The call returns at once. The devices compute while the next batch is uploaded.
    auto [next, loss] = step(*state, batch.x, batch.labels);
    *state = next;
    pending.push_back(loss);
  }
  std::vector<double> losses;
  for (const Array& loss : pending) losses.push_back(loss.item<double>());
  return losses;
}

// Trains the network, reports the accuracy on the test images after each epoch, and writes the
// files that the options ask for. It goes on from the checkpoint if there is one; then it skips the
// epochs that are done, which it finds by the number of losses. Returns 1 if the accuracy at the
// end is below --min-accuracy.
int Run(int argc, char** argv) {
  Flags flags = Parse(argc, argv);
  const int64_t data_size = ParseMesh(flags.cluster.mesh).first;
  const Digits all = ReadDigits(flags.data_file);
  const std::vector<int64_t> split = Permutation(all.size(), kSplitSeed);
  const int64_t train_size = static_cast<int64_t>(kTrainShare * static_cast<double>(all.size()));
  const Digits train = all.Select(split, 0, train_size);
  // The test images are sharded over `data` too, so that their number must be a multiple of the
  // axis's size. There are 360 of them, which one, two and four divide.
  const int64_t test_size = (all.size() - train_size) / data_size * data_size;
  const Digits test = all.Select(split, train_size, train_size + test_size);

  const Cluster cluster = OpenCluster(flags.cluster, &flags.checkpoint);
  const Mesh& mesh = cluster.mesh;
  const std::string& checkpoint = flags.checkpoint;
  std::printf("mesh %s on %zu devices, %lld images to learn from, %lld to test on\n",
              mesh.ToString().c_str(), mesh.devices.size(), static_cast<long long>(train.size()),
              static_cast<long long>(test.size()));

  State state = Initial(mesh, flags.dtype);
  const auto step = jit(Step, {.name = "train_step",
                               .donate_argnums = {0},
                               .out_shardings = {{kSpecs, Optimizer().specs(kSpecs)}, P()}});
  const auto predict = jit(Predict, {.name = "predict"});
  const Batch test_batch = PutBatch(test, mesh, flags.dtype);
  const int64_t steps = train.size() / kBatch;
  std::vector<double> losses;
  if (!checkpoint.empty()) {
    if (std::optional<Checkpoint> found = Restore(checkpoint, state)) {
      state = std::move(found->state);
      losses = found->losses.get<double>();
      std::printf("goes on from epoch %lld of %s\n",
                  static_cast<long long>(losses.size()) / static_cast<long long>(steps),
                  checkpoint.c_str());
    }
  }
  const auto epochs = static_cast<int>(flags.epochs);
  std::vector<int32_t> predictions;
  double accuracy = 0;
  const auto report = [&](int epoch, double loss) {
    predictions = predict(state.params, test_batch.x).get<int32_t>();
    int64_t right = 0;
    for (int64_t i = 0; i < test.size(); ++i) right += predictions[i] == test.labels[i];
    accuracy = 100.0 * static_cast<double>(right) / static_cast<double>(test.size());
    std::printf("epoch %3d/%d [%s] loss %.4f  test accuracy %.2f%%\n", epoch, epochs,
                ProgressBar(epoch, epochs).c_str(), loss, accuracy);
    std::fflush(stdout);
  };
  const int done = static_cast<int>(static_cast<int64_t>(losses.size()) / steps);
  if (done >= epochs) report(done, losses.back());
  for (int epoch = done; epoch < epochs; ++epoch) {
    const std::vector<double> epoch_losses =
        TrainEpoch(step, train, epoch, mesh, flags.dtype, epoch == done && flags.explain, &state);
    losses.insert(losses.end(), epoch_losses.begin(), epoch_losses.end());
    report(epoch + 1, std::accumulate(epoch_losses.begin(), epoch_losses.end(), 0.0) /
                          static_cast<double>(steps));
    if (!checkpoint.empty()) Save(checkpoint, state, losses);
  }
  WriteLines(flags.losses_out, losses);
  WriteLines(flags.predictions_out, predictions);
  if (accuracy < flags.min_accuracy) {
    std::fprintf(stderr, "mlp_digits: test accuracy %.2f%% is below %.2f%%\n", accuracy,
                 flags.min_accuracy);
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace tessera::examples

int main(int argc, char** argv) {
  using namespace tessera::examples;  // NOLINT(google-build-using-namespace): main is outside
  return Main("mlp_digits", kUsage, Run, argc, argv);
}
