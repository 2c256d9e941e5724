// A small GPT learns to write like a given text, byte by byte, and then writes a text of its own.
// This is the tutorial of token embeddings, dropout, tied weights (gpt_model.cc), checkpoints and
// sampling.
//
//   gpt                                  learns this project's glossary on four CPU devices
//   gpt --text FILE --steps 2000         learns any text
//   gpt --mesh data=1,model=1            computes the same numbers on one device
//   gpt --checkpoint gpt.safetensors     saves at the end, and the next run continues from there
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "client/tessera.h"
#include "examples/command_line.h"
#include "examples/gpt_model.h"

namespace tessera::examples {

namespace {

constexpr int64_t kBatch = 16, kBlocks = 2, kTop = 8;

// 1. Sampling. Each new token is one of the kTop likeliest tokens, drawn with their probabilities.
// The draw takes the largest of the logits after adding Gumbel noise. The whole text is written by
// one program, which is a loop over the text's positions.
Array WriteText(const Gpt& p, const Array& prompt, const Array& key) {
  const int64_t begin = prompt.shape()[0];
  const Array padded = concatenate({prompt, zeros({kLength - begin}, kS32)});
  return fori_loop(
      begin, kLength,
      [&](const Array& i, const Array& text) {
        const Array logits = lax::dynamic_index_in_dim(Logits(p, expand_dims(text, 0))[0], i - 1);
        const auto [best, token] = top_k(squeeze(logits), kTop);
        const Array u = random::uniform(random::fold_in(key, i), {kTop}, kF32, 1e-9);
        const Array choice = argmax(best - log(-log(u)));
        return text.at(i).set(take(token, choice));
      },
      padded);
}

// 2. Where the parameters live. Heads and hidden units are sharded over `model`, and the batch is
// sharded over `data`.
const PartitionSpec kBatchSpec = P("data");
const Prefix<PartitionSpec> kBlockSpecs = {P(), P(None, None, "model"), P("model"),
                                           P(), P(None, "model"),       P("model")};

State Initial(const Mesh& mesh) {
  const Array keys = random::split(random::key(0), 2 + 4 * kBlocks);
  int64_t used = 0;
  const auto random_weights = [&](Dims shape, double scale, const PartitionSpec& spec) {
    return put(random::normal(keys[used++], std::move(shape)) * scale, mesh, spec);
  };
  const auto norm_scale = [&] { return put(ones({kWidth}), mesh, P()); };
  const double narrow = 1 / std::sqrt(kWidth), wide = 1 / std::sqrt(kHidden);
  Gpt p{random_weights({kVocabulary, kWidth}, 0.05, P()),
        random_weights({kLength, kWidth}, 0.05, P()),
        {},
        norm_scale()};
  for (int64_t i = 0; i < kBlocks; ++i)
    p.blocks.push_back(
        {norm_scale(),
         random_weights({kWidth, 3, kHeads, kHeadWidth}, narrow, P(None, None, "model")),
         random_weights({kHeads, kHeadWidth, kWidth}, narrow, P("model")), norm_scale(),
         random_weights({kWidth, kHidden}, narrow, P(None, "model")),
         random_weights({kHidden, kWidth}, wide, P("model"))});
  return {p, Optimizer().init(p)};
}

// ---- The text. ----------------------------------------------------------------------------------

std::string ReadText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(in), {});
  if (!in || text.size() < 2 * kLength)
    throw std::runtime_error(path + ": a text of at least " + std::to_string(2 * kLength) +
                             " bytes is expected");
  return text;
}
ir::Array Tokens(const std::string& text) {
  ir::Array a(kS32, {static_cast<int64_t>(text.size())});
  for (size_t i = 0; i < text.size(); ++i) a.Set(i, static_cast<unsigned char>(text[i]));
  return a;
}
// Returns excerpts from random places of the text. Each has one token more than the model reads.
Array Excerpts(const Array& text, const Array& key) {
  const auto last = static_cast<int32_t>(text.shape()[0] - kLength - 1);
  const Array begin = random::randint(key, {kBatch, 1}, 0, last + 1);
  return take(text, begin + expand_dims(arange(kLength + 1), 0));
}

// ---- Training. ----------------------------------------------------------------------------------

struct Flags {
  ClusterFlags cluster;
  std::string text = "docs/glossary.md", checkpoint, losses_out;
  int64_t steps = 300;
  bool explain = false;
};

const std::string kUsage =
    std::string("usage: gpt [options]\n") + kClusterUsage +
    "  --text FILE             what to learn (docs/glossary.md)\n"
    "  --checkpoint PATH       saves at the end and goes on from there: a .safetensors file\n"
    "                          below the workers' folder of files, or any path inside this "
    "process\n"
    "  --steps N               in all, those of a checkpoint among them (300)\n"
    "  --losses-out FILE       writes the loss of every step of this run, one a line\n"
    "  --explain               prints the plan of a step\n";

// Trains the model, saves it if --checkpoint is given, and prints a text that it writes. If the
// checkpoint exists, the training goes on from its step. Every step makes its random numbers from
// its own number, so that an interrupted training gives the same losses as an uninterrupted one.
int Run(int argc, char** argv) {
  Flags flags;
  std::vector<Option> options = flags.cluster.Options();
  options.insert(options.end(), {{"--text", &flags.text},
                                 {"--checkpoint", &flags.checkpoint},
                                 {"--steps", &flags.steps},
                                 {"--losses-out", &flags.losses_out},
                                 {"--explain", &flags.explain}});
  ParseOptions(argc, argv, options);
  const std::string training_text = ReadText(flags.text);
  const Cluster cluster = OpenCluster(flags.cluster, &flags.checkpoint);
  const Mesh& mesh = cluster.mesh;

  State state = Initial(mesh);
  int64_t first_step = 0;
  if (const std::string& path = flags.checkpoint; !path.empty()) {
    try {
      state = load(state, path);
      first_step = state.opt_state[0].count->item<int64_t>();
      std::printf("goes on from step %lld of %s\n", static_cast<long long>(first_step),
                  path.c_str());
    } catch (const Error& e) {
      if (e.reason() != "FILE_NOT_FOUND") throw;
    }
  }

  const Prefix<PartitionSpec> gpt = {P(), P(), {kBlockSpecs, kBlockSpecs}, P()};
  const auto step = jit(Step, {.name = "train_step",
                               .donate_argnums = {0},
                               .out_shardings = {{gpt, Optimizer().specs(gpt)}, P()}});
  const auto excerpts = jit(Excerpts, {.name = "excerpts", .out_shardings = kBatchSpec});
  const Array text = put(Tokens(training_text), mesh, P());
  const Array key = put(random::key(1), mesh, P());
  std::ofstream losses;
  if (!flags.losses_out.empty()) {
    losses.open(flags.losses_out);
    if (!losses) throw std::runtime_error(flags.losses_out + ": cannot be written");
  }
  double average_loss = 0;
  for (int64_t i = first_step; i < flags.steps; ++i) {
    // The random numbers of a step depend only on its number i, so that a resumed training goes on
    // with the numbers that it would have had.
    const Array step_key = random::fold_in(key, static_cast<int32_t>(i));
    const Array batch = excerpts(text, random::fold_in(step_key, 0));
    if (i == first_step && flags.explain)
      std::printf("%s\n", explain(step, state, batch, step_key).c_str());
    auto [next, loss] = step(state, batch, random::fold_in(step_key, 1));
    state = next;
    const double loss_value = loss.item<float>();
    if (losses.is_open()) losses << loss_value << "\n";
    average_loss = i == first_step ? loss_value : 0.95 * average_loss + 0.05 * loss_value;
    if ((i + 1) % 50 == 0 || i + 1 == flags.steps) {
      std::printf("step %lld/%lld  loss %.3f  %.2f bits a byte\n", static_cast<long long>(i + 1),
                  static_cast<long long>(flags.steps), average_loss, average_loss / std::log(2.0));
      std::fflush(stdout);
    }
  }
  if (!flags.checkpoint.empty()) save(state, flags.checkpoint, {.overwrite = true});

  const std::string prompt = training_text.substr(0, 8);
  // Sampling has a key of its own, because the keys of the steps are used up.
  const Array sampling_key = put(random::key(2), mesh, P());
  const Array written = jit(WriteText)(state.params, put(Tokens(prompt), mesh, P()), sampling_key);
  std::string out;
  for (const int32_t token : written.get<int32_t>()) out += static_cast<char>(token);
  std::printf("\nIt writes:\n%s\n", out.c_str());
  return 0;
}

}  // namespace
}  // namespace tessera::examples

int main(int argc, char** argv) {
  using namespace tessera::examples;  // NOLINT(google-build-using-namespace): main is outside
  return Main("gpt", kUsage, Run, argc, argv);
}
