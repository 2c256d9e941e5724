// A GPT on a mesh of data x tensor x seq, written in three ways. The batch is sharded over `data`,
// heads and hidden units over `tensor`, and the text over `seq`. With Auto axes the program gives
// hints and the planner decides. With Explicit axes every type says where its array lies. With
// shard_map the program is the program of one device, and calls the collectives itself. All ways
// use one model and give one loss curve.
//
//   gpt_three_ways                     on eight CPU devices inside this process
//   gpt_three_ways --explain           also prints what each way sends in a step
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "client/tessera.h"
#include "examples/command_line.h"

namespace tessera::examples {

// The parameters of the model. A token is a byte.
struct Block {
  Array norm1, qkv, out, norm2, up, down;
};
TESSERA_TREE(Block, norm1, qkv, out, norm2, up, down)
struct Gpt {
  Array tokens, positions;
  std::vector<Block> blocks;
  Array norm;
};
TESSERA_TREE(Gpt, tokens, positions, blocks, norm)

namespace {

constexpr int64_t kVocabulary = 256, kLength = 32, kWidth = 32, kHeads = 4, kBlocks = 2;
constexpr int64_t kHeadWidth = kWidth / kHeads, kHidden = 4 * kWidth, kBatch = 8;

// ---- 1. The model, once. ------------------------------------------------------------------------

// The operations that the model leaves to each way.
struct Way {
  // Returns tokens[ids], sharded as the ids are.
  std::function<Array(const Array& tokens, const Array& ids)> embed;
  // Returns the keys or values of the whole text, [batch, heads, length, size].
  std::function<Array(const Array& x)> whole_text;
  // Returns an einsum that adds up over heads or hidden units, which are sharded over `tensor`.
  std::function<Array(std::string_view spec, const Array& x, const Array& w)> summed_einsum;
  // Returns the positions in the text of the `length` queries that are on this device.
  std::function<Array(int64_t length)> query_positions;
  // Returns the mean over the tokens of all devices. x has a number for each token, [batch,
  // length].
  std::function<Array(const Array& x)> global_mean;
};

Array Norm(const Array& x, const Array& scale) {
  const Array centred = x - mean(x, -1, /*keepdims=*/true);
  return centred * lax::rsqrt(mean(square(centred), -1, true) + 1e-5) * scale;
}

Array Attention(const Way& way, const Block& p, const Array& x) {
  const Array qkv = einsum("btd,dchk->cbhtk", {x, p.qkv});  // c stands for query, key and value
  const Array keys = way.whole_text(qkv[1]), values = way.whole_text(qkv[2]);
  const Array scores = einsum("bhtk,bhsk->bhts", {qkv[0], keys}) / std::sqrt(kHeadWidth);
  const Array is_past = expand_dims(way.query_positions(x.shape()[1]), 1) >= arange(kLength);
  const Array weights = softmax(scores + where(is_past, 0.0, -1e9));
  const Array mixed = einsum("bhts,bhsk->bthk", {weights, values});
  return way.summed_einsum("bthk,hkd->btd", mixed, p.out);
}

// Returns the loss. `inputs` has the tokens of the texts and `targets` has the token that follows
// each of them; both are s32[batch, length].
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

// ---- 2. The ways. -------------------------------------------------------------------------------

// On one device the program need not say where anything lies.
Way OneDevice() {
  return {.embed = [](const Array& tokens, const Array& ids) { return take(tokens, ids, 0); },
          .whole_text = [](const Array& x) { return x; },
          .summed_einsum =
              [](std::string_view spec, const Array& x, const Array& w) {
                return einsum(spec, {x, w});
              },
          .query_positions = [](int64_t length) { return arange(length); },
          .global_mean = [](const Array& x) { return mean(x); }};
}

const PartitionSpec kTokenSpec = P("data", "seq"), kWholeTextSpec = P("data", "tensor");

// The program gives hints at a few places. From them the planner finds all other shardings, and
// what to send.
Way Auto() {
  Way way = OneDevice();
  way.embed = [](const Array& tokens, const Array& ids) {
    return with_sharding_constraint(take(tokens, ids, 0), kTokenSpec);
  };
  way.whole_text = [](const Array& x) { return with_sharding_constraint(x, kWholeTextSpec); };
  way.summed_einsum = [](std::string_view spec, const Array& x, const Array& w) {
    return with_sharding_constraint(einsum(spec, {x, w}), kTokenSpec);
  };
  return way;
}

// The types carry the shardings. The program says a result's sharding only where the types of the
// operands leave it open.
Way Explicit() {
  Way way = OneDevice();
  way.embed = [](const Array& tokens, const Array& ids) {
    return take(tokens, ids, 0, lax::GatherScatterMode::kFillOrDrop, kTokenSpec);
  };
  way.whole_text = [](const Array& x) { return reshard(x, kWholeTextSpec); };
  way.summed_einsum = [](std::string_view spec, const Array& x, const Array& w) {
    return einsum(spec, {x, w}, {}, kTokenSpec);
  };
  return way;
}

// The program is the program of one device. It gets what it lacks from the other devices by
// collectives.
Way ByShardMap() {
  Way way = OneDevice();
  way.whole_text = [](const Array& x) { return lax::all_gather(x, "seq", 2, /*tiled=*/true); };
  way.summed_einsum = [](std::string_view spec, const Array& x, const Array& w) {
    return lax::psum(einsum(spec, {x, w}), "tensor");
  };
  way.query_positions = [](int64_t length) {
    return lax::axis_index("seq") * length + arange(length);
  };
  way.global_mean = [](const Array& x) { return lax::pmean(mean(x), {"data", "seq"}); };
  return way;
}

// ---- 3. The training, which is the same for all ways. -------------------------------------------

// The shardings of the parameters.
const Prefix<PartitionSpec> kBlockSpecs = {P(), P(None, None, "tensor"), P("tensor"),
                                           P(), P(None, "tensor"),       P("tensor")};
const Prefix<PartitionSpec> kSpecs = {P(), P("seq"), {kBlockSpecs, kBlockSpecs}, P()};

Gpt Initial() {
  const Array keys = random::split(random::key(0), 2 + 4 * kBlocks);
  int64_t used = 0;
  const auto random_weights = [&](Dims shape, double scale) {
    return random::normal(keys[used++], std::move(shape)) * scale;
  };
  const double narrow = 1 / std::sqrt(kWidth), wide = 1 / std::sqrt(kHidden);
  Gpt p{random_weights({kVocabulary, kWidth}, 0.05),
        random_weights({kLength, kWidth}, 0.05),
        {},
        ones({kWidth})};
  for (int64_t i = 0; i < kBlocks; ++i) {
    const Array qkv = random_weights({kWidth, 3, kHeads, kHeadWidth}, narrow);
    const Array out = random_weights({kHeads, kHeadWidth, kWidth}, narrow);
    const Array up = random_weights({kWidth, kHidden}, narrow),
                down = random_weights({kHidden, kWidth}, wide);
    p.blocks.push_back({ones({kWidth}), qkv, out, ones({kWidth}), up, down});
  }
  return p;
}

// Excerpts of a text for one step, and the token that follows each of their tokens.
struct Batch {
  ir::Array inputs{kS32, {kBatch, kLength}}, targets{kS32, {kBatch, kLength}};
};
Batch Excerpts(const std::string& text, int64_t step) {
  Batch batch;
  const auto last = static_cast<int64_t>(text.size()) - kLength - 1;
  for (int64_t i = 0; i < kBatch * kLength; ++i) {
    const int64_t begin = (step * kBatch + i / kLength) * 61 % last, at = begin + i % kLength;
    batch.inputs.Set(i, static_cast<unsigned char>(text[at]));
    batch.targets.Set(i, static_cast<unsigned char>(text[at + 1]));
  }
  return batch;
}

using LossFn = std::function<Array(const Gpt& p, const Array& inputs, const Array& targets)>;

// Trains for `steps` steps and returns the loss of each. If `explains` is true, prints what the
// plan of a step sends.
std::vector<double> Train(const char* name, const Mesh& mesh, const LossFn& loss,
                          const std::string& text, int64_t steps, bool explains) {
  const set_mesh context(mesh);
  const auto optimizer = optim::adam(1e-2);
  Gpt p = filter_shard(Initial(), mesh, kSpecs);
  optim::OptState<Gpt> state = optimizer.init(p);
  const auto step = jit([&](const Gpt& now, const optim::OptState<Gpt>& moments,
                            const Array& inputs, const Array& targets) {
    const auto [value, grads] = value_and_grad(loss)(now, inputs, targets);
    const auto [updates, after] = optimizer.update(grads, moments);
    return std::tuple(optim::apply_updates(now, updates), after, value);
  });
  std::vector<double> losses;
  for (int64_t i = 0; i < steps; ++i) {
    const Batch batch = Excerpts(text, i);
    const Array inputs = put(batch.inputs, mesh, kTokenSpec),
                targets = put(batch.targets, mesh, kTokenSpec);
    if (i == 0 && explains) {
      const std::string plan = explain(step, p, state, inputs, targets);
      const size_t begin = plan.find("collectives:");
      std::printf("%s: %s\n", name,
                  plan.substr(begin, plan.find("memory per device:") - begin).c_str());
    }
    Array value;
    std::tie(p, state, value) = step(p, state, inputs, targets);
    losses.push_back(value.item<double>());
  }
  return losses;
}

const std::string kUsage = "usage: gpt_three_ways [options]\n" + kSessionUsage +
                           "  --steps N               (20)\n"
                           "  --explain               prints what each way sends in a step\n";

// Trains the model on one device and in each of the three ways, from the same parameters and on the
// same excerpts, and prints the losses side by side. Returns 1 if a loss differs from that on one
// device by more than rounding explains, or if the training has not lowered the loss.
int Run(int argc, char** argv) {
  SessionFlags flags;
  int64_t steps = 20;
  bool explains = false;
  std::vector<Option> options = flags.Options();
  options.insert(options.end(), {{"--steps", &steps}, {"--explain", &explains}});
  ParseOptions(argc, argv, options);
  std::ifstream in("docs/glossary.md", std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  if (!in || text.size() <= kLength + 1)
    throw std::runtime_error("docs/glossary.md: not found; run this from the repository's root");
  const auto session = OpenSession(flags, 8);

  const std::vector<std::string> axes = {"data", "tensor", "seq"};
  const Mesh mesh = make_mesh({2, 2, 2}, axes), one_device = make_mesh({1, 1, 1}, axes);
  const auto loss_of = [](const Way& way) -> LossFn {
    return [way](const Gpt& p, const Array& inputs, const Array& targets) {
      return Loss(way, p, inputs, targets);
    };
  };
  const auto train = [&](const char* name, const Mesh& on, const LossFn& loss) {
    return Train(name, on, loss, text, steps, explains);
  };
  const std::vector<std::vector<double>> curves = {
      train("one device", one_device.With(AxisType::kAuto), loss_of(OneDevice())),
      train("Auto", mesh.With(AxisType::kAuto), loss_of(Auto())),
      train("Explicit", mesh, loss_of(Explicit())),
      train("shard_map", mesh.With(AxisType::kAuto),
            shard_map(loss_of(ByShardMap()), mesh.With(AxisType::kAuto),
                      {kSpecs, kTokenSpec, kTokenSpec}, P()))};
  std::printf("step  one device      Auto  Explicit  shard_map\n");
  double worst = 0;
  for (int64_t i = 0; i < steps; ++i) {
    std::printf("%4d", static_cast<int>(i + 1));
    for (const std::vector<double>& curve : curves) {
      std::printf("  %8.5f", curve[i]);
      const double relative = std::abs(curve[i] - curves[0][i]) / curves[0][i];
      if (!(relative <= worst)) worst = relative;  // a NaN counts as a large difference
    }
    std::printf("\n");
  }
  constexpr double kBound = 1e-5;  // rounding of f32 when numbers are added in other orders
  std::printf("the losses differ by at most %.1e of those on one device (bound %.0e)\n", worst,
              kBound);
  return worst <= kBound && curves[0].back() < curves[0].front() ? 0 : 1;
}

}  // namespace
}  // namespace tessera::examples

int main(int argc, char** argv) {
  using namespace tessera::examples;  // NOLINT(google-build-using-namespace): main is outside
  return Main("gpt_three_ways", kUsage, Run, argc, argv);
}
