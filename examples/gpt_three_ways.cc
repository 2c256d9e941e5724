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
  std::function<Array(const Array& x)> of_all_text;
  // Returns an einsum that adds up over heads or hidden units, which are sharded over `tensor`.
  std::function<Array(std::string_view spec, const Array& x, const Array& w)> added_up;
  // Returns the positions in the text of the `length` queries that are on this device.
  std::function<Array(int64_t length)> places;
  // Returns the mean over the tokens of all devices. x has a number for each token, [batch,
  // length].
  std::function<Array(const Array& x)> mean_of_all;
};

Array Norm(const Array& x, const Array& scale) {
  const Array centred = x - mean(x, -1, /*keepdims=*/true);
  return centred * lax::rsqrt(mean(square(centred), -1, true) + 1e-5) * scale;
}

Array Attention(const Way& way, const Block& p, const Array& x) {
  const Array qkv = einsum("btd,dchk->cbhtk", {x, p.qkv});  // c stands for query, key and value
  const Array keys = way.of_all_text(qkv[1]), values = way.of_all_text(qkv[2]);
  const Array scores = einsum("bhtk,bhsk->bhts", {qkv[0], keys}) / std::sqrt(kHeadWidth);
  const Array is_past = expand_dims(way.places(x.shape()[1]), 1) >= arange(kLength);
  const Array weights = softmax(scores + where(is_past, 0.0, -1e9));
  const Array mixed = einsum("bhts,bhsk->bthk", {weights, values});
  return way.added_up("bthk,hkd->btd", mixed, p.out);
}

// Returns the loss. `read` has the tokens of the texts and `next` has the token that follows each
// of them; both are s32[batch, length].
Array Loss(const Way& way, const Gpt& p, const Array& read, const Array& next) {
  Array x = way.embed(p.tokens, read) + p.positions;
  for (const Block& block : p.blocks) {
    x = x + Attention(way, block, Norm(x, block.norm1));
    const Array hidden = gelu(matmul(Norm(x, block.norm2), block.up));
    x = x + way.added_up("btf,fd->btd", hidden, block.down);
  }
  const Array log_p = log_softmax(einsum("btd,vd->btv", {Norm(x, p.norm), p.tokens}));
  return way.mean_of_all(-take_along_axis(log_p, expand_dims(next, -1), -1));
}

// ---- 2. The ways. -------------------------------------------------------------------------------

// On one device the program need not say where anything lies.
Way OneDevice() {
  return {.embed = [](const Array& tokens, const Array& ids) { return take(tokens, ids, 0); },
          .of_all_text = [](const Array& x) { return x; },
          .added_up =
              [](std::string_view spec, const Array& x, const Array& w) {
                return einsum(spec, {x, w});
              },
          .places = [](int64_t length) { return arange(length); },
          .mean_of_all = [](const Array& x) { return mean(x); }};
}

const PartitionSpec kTokens = P("data", "seq"), kHeadsOfAll = P("data", "tensor");

// The program gives hints at a few places. From them the planner finds all other shardings, and
// what to send.
Way Auto() {
  Way way = OneDevice();
  way.embed = [](const Array& tokens, const Array& ids) {
    return with_sharding_constraint(take(tokens, ids, 0), kTokens);
  };
  way.of_all_text = [](const Array& x) { return with_sharding_constraint(x, kHeadsOfAll); };
  way.added_up = [](std::string_view spec, const Array& x, const Array& w) {
    return with_sharding_constraint(einsum(spec, {x, w}), kTokens);
  };
  return way;
}

// The types carry the shardings. The program says a result's sharding only where the types of the
// operands leave it open.
Way Explicit() {
  Way way = OneDevice();
  way.embed = [](const Array& tokens, const Array& ids) {
    return take(tokens, ids, 0, lax::GatherScatterMode::kFillOrDrop, kTokens);
  };
  way.of_all_text = [](const Array& x) { return reshard(x, kHeadsOfAll); };
  way.added_up = [](std::string_view spec, const Array& x, const Array& w) {
    return einsum(spec, {x, w}, {}, kTokens);
  };
  return way;
}

// The program is the program of one device. It gets what it lacks from the other devices by
// collectives.
Way ByShardMap() {
  Way way = OneDevice();
  way.of_all_text = [](const Array& x) { return lax::all_gather(x, "seq", 2, /*tiled=*/true); };
  way.added_up = [](std::string_view spec, const Array& x, const Array& w) {
    return lax::psum(einsum(spec, {x, w}), "tensor");
  };
  way.places = [](int64_t length) { return lax::axis_index("seq") * length + arange(length); };
  way.mean_of_all = [](const Array& x) { return lax::pmean(mean(x), {"data", "seq"}); };
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
  const auto drawn = [&](Dims shape, double scale) {
    return random::normal(keys[used++], std::move(shape)) * scale;
  };
  const double narrow = 1 / std::sqrt(kWidth), wide = 1 / std::sqrt(kHidden);
  Gpt p{drawn({kVocabulary, kWidth}, 0.05), drawn({kLength, kWidth}, 0.05), {}, ones({kWidth})};
  for (int64_t i = 0; i < kBlocks; ++i) {
    const Array qkv = drawn({kWidth, 3, kHeads, kHeadWidth}, narrow);
    const Array out = drawn({kHeads, kHeadWidth, kWidth}, narrow);
    const Array up = drawn({kWidth, kHidden}, narrow), down = drawn({kHidden, kWidth}, wide);
    p.blocks.push_back({ones({kWidth}), qkv, out, ones({kWidth}), up, down});
  }
  return p;
}

// Excerpts of a text for one step, and the token that follows each of their tokens.
struct Batch {
  ir::Array read{kS32, {kBatch, kLength}}, next{kS32, {kBatch, kLength}};
};
Batch Excerpts(const std::string& text, int64_t step) {
  Batch batch;
  const auto last = static_cast<int64_t>(text.size()) - kLength - 1;
  for (int64_t i = 0; i < kBatch * kLength; ++i) {
    const int64_t begin = (step * kBatch + i / kLength) * 61 % last, at = begin + i % kLength;
    batch.read.Set(i, static_cast<unsigned char>(text[at]));
    batch.next.Set(i, static_cast<unsigned char>(text[at + 1]));
  }
  return batch;
}

using LossFn = std::function<Array(const Gpt& p, const Array& read, const Array& next)>;

// Trains for `steps` steps and returns the loss of each. If `explains` is true, prints what the
// plan of a step sends.
std::vector<double> Train(const char* name, const Mesh& mesh, const LossFn& loss,
                          const std::string& text, int64_t steps, bool explains) {
  const set_mesh context(mesh);
  const auto optimizer = optim::adam(1e-2);
  Gpt p = filter_shard(Initial(), mesh, kSpecs);
  optim::OptState<Gpt> state = optimizer.init(p);
  const auto step = jit([&](const Gpt& now, const optim::OptState<Gpt>& moments, const Array& read,
                            const Array& next) {
    const auto [value, grads] = value_and_grad(loss)(now, read, next);
    const auto [updates, after] = optimizer.update(grads, moments);
    return std::tuple(optim::apply_updates(now, updates), after, value);
  });
  std::vector<double> losses;
  for (int64_t i = 0; i < steps; ++i) {
    const Batch batch = Excerpts(text, i);
    const Array read = put(batch.read, mesh, kTokens), next = put(batch.next, mesh, kTokens);
    if (i == 0 && explains) {
      const std::string plan = explain(step, p, state, read, next);
      const size_t begin = plan.find("collectives:");
      std::printf("%s: %s\n", name,
                  plan.substr(begin, plan.find("memory per device:") - begin).c_str());
    }
    Array value;
    std::tie(p, state, value) = step(p, state, read, next);
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
  const Mesh mesh = make_mesh({2, 2, 2}, axes), one = make_mesh({1, 1, 1}, axes);
  const auto loss_of = [](const Way& way) -> LossFn {
    return [way](const Gpt& p, const Array& read, const Array& next) {
      return Loss(way, p, read, next);
    };
  };
  const auto train = [&](const char* name, const Mesh& on, const LossFn& loss) {
    return Train(name, on, loss, text, steps, explains);
  };
  const std::vector<std::vector<double>> curves = {
      train("one device", one.With(AxisType::kAuto), loss_of(OneDevice())),
      train("Auto", mesh.With(AxisType::kAuto), loss_of(Auto())),
      train("Explicit", mesh, loss_of(Explicit())),
      train("shard_map", mesh.With(AxisType::kAuto),
            shard_map(loss_of(ByShardMap()), mesh.With(AxisType::kAuto), {kSpecs, kTokens, kTokens},
                      P()))};
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
  std::printf("they differ by %.1e of one device's (bound %.0e)\n", worst, kBound);
  return worst <= kBound && curves[0].back() < curves[0].front() ? 0 : 1;
}

}  // namespace
}  // namespace tessera::examples

int main(int argc, char** argv) {
  using namespace tessera::examples;  // NOLINT(google-build-using-namespace): main is outside
  return Main("gpt_three_ways", kUsage, Run, argc, argv);
}
