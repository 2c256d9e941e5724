// A layer of many experts, which are small networks of their own. A router chooses the two best
// experts for each token. Each device has one expert and a part of the tokens. An all_to_all brings
// the tokens to their experts, and another all_to_all brings the answers back.
// Reference: Lepikhin et al., "GShard: scaling giant models with conditional computation and
// automatic sharding" (2020).
//
//   mixture_of_experts                 four experts on four CPU devices inside this process
#include <cmath>
#include <cstdio>
#include <utility>
#include <vector>

#include "client/tessera.h"
#include "examples/command_line.h"
#include "examples/compare.h"

namespace tessera::examples {

// The weights of the router, and the weights of the experts, f32[experts, ...].
struct Layer {
  Array router, up, down;
};
TESSERA_TREE(Layer, router, up, down)

namespace {

constexpr int64_t kExperts = 4, kTokens = 64, kWidth = 16, kHidden = 32, kChosen = 2;
constexpr int64_t kOwnTokens = kTokens / kExperts;
// How many tokens an expert takes from each device. Here it takes all tokens of the device, so that
// none is turned away and the result equals the dense computation. Large models take fewer.
constexpr int64_t kCapacity = kOwnTokens;

// Returns the weight of each expert for each token, f32[tokens, experts]. The weight is 0 for all
// experts but the kChosen best.
Array Gates(const Array& router, const Array& x) {
  const auto [best, expert] = top_k(softmax(matmul(x, router)), kChosen);
  const Array share = best / sum(best, -1, /*keepdims=*/true);
  return sum(expand_dims(share, -1) * one_hot(expert, kExperts), 1);
}

// The dense computation, to compare with: every expert answers every token, and most answers have
// the weight 0.
Array DenseExperts(const Layer& p, const Array& x) {
  const Array hidden = gelu(einsum("tw,ewh->eth", {x, p.up}));
  const Array answers = einsum("eth,ehw->etw", {hidden, p.down});
  return einsum("te,etw->tw", {Gates(p.router, x), answers});
}

// The program of one device on the axis `expert`. `x` has the device's own tokens, and `p` has its
// own expert with a first dim of 1.
Array RoutedExperts(const Layer& p, const Array& x) {
  const Array gates = Gates(p.router, x);
  // Makes the queues to the experts: queue[t, e, c] is 1 if token t has place c in the queue to
  // expert e, and 0 otherwise.
  const Array is_chosen = (gates > 0).astype(kF32);
  const Array queue_position = where(gates > 0, cumsum(is_chosen, 0) - 1, -1);
  const Array queue =
      one_hot(queue_position.astype(kS32), kCapacity);  // [tokens, experts, capacity]
  // Sends each expert its queue, and receives from each device the queue to the expert of this
  // device.
  const Array sent = einsum("tec,tw->ecw", {queue, x});
  const Array received = lax::all_to_all(sent, "expert", 0, 0);
  const Array hidden = gelu(einsum("dcw,wh->dch", {received, squeeze(p.up, 0)}));
  const Array answers = einsum("dch,hw->dcw", {hidden, squeeze(p.down, 0)});
  const Array returned = lax::all_to_all(answers, "expert", 0, 0);
  return einsum("tec,ecw->tw", {queue * expand_dims(gates, -1), returned});
}

const std::string kUsage = "usage: mixture_of_experts [options]\n" + kSessionUsage;

// Compares the routed layer with the dense computation: its results, and the gradients of a loss.
// Prints how many tokens each expert gets, and the plan, in which the two all_to_alls appear.
// Returns 1 if a difference is larger than the rounding of f32 explains.
int Run(int argc, char** argv) {
  SessionFlags flags;
  ParseOptions(argc, argv, flags.Options());
  const auto session = OpenSession(flags, kExperts);
  const Mesh mesh = make_mesh({kExperts}, {"expert"}, {AxisType::kAuto});

  const Array keys = random::split(random::key(0), 5);
  const auto random_weights = [&](int64_t i, Dims shape, const PartitionSpec& spec) {
    const double scale = 1 / std::sqrt(static_cast<double>(shape[shape.size() - 2]));
    return put(random::normal(keys[i], std::move(shape)) * scale, mesh, spec);
  };
  const Prefix<PartitionSpec> specs = {P(), P("expert"), P("expert")};
  const Layer layer{random_weights(0, {kWidth, kExperts}, P()),
                    random_weights(1, {kExperts, kWidth, kHidden}, P("expert")),
                    random_weights(2, {kExperts, kHidden, kWidth}, P("expert"))};
  const Array x = put(random::normal(keys[3], {kTokens, kWidth}), mesh, P("expert"));
  const Array target = put(random::normal(keys[4], {kTokens, kWidth}), mesh, P("expert"));

  const auto routed = shard_map(RoutedExperts, mesh, {specs, P("expert")}, P("expert"));
  const auto tokens_of_experts = jit([](const Array& router, const Array& x) {
    return sum((Gates(router, x) > 0).astype(kS32), 0);
  })(layer.router, x);
  std::printf("tokens of each expert: %s\n\n", tokens_of_experts.to_string().c_str());

  const auto value_and_grad_of = [&](const auto& model) {
    return jit(value_and_grad(
        [&, model](const Layer& p, const Array& x) { return sum(square(model(p, x) - target)); }));
  };
  const auto routed_loss_and_grads = value_and_grad_of(routed);
  std::printf("%s\n", explain(routed_loss_and_grads, layer, x).c_str());
  constexpr double kBound = 1e-5;  // rounding of f32 when numbers are added in another order
  const double values =
      LargestRelativeDifference(jit(routed)(layer, x), jit(DenseExperts)(layer, x));
  const double gradients = LargestRelativeDifference(
      routed_loss_and_grads(layer, x).second, value_and_grad_of(DenseExperts)(layer, x).second);
  std::printf(
      "routed and dense experts differ by %.1e of the largest, their gradients by %.1e "
      "(bound %.0e)\n",
      values, gradients, kBound);
  return values <= kBound && gradients <= kBound ? 0 : 1;
}

}  // namespace
}  // namespace tessera::examples

int main(int argc, char** argv) {
  using namespace tessera::examples;  // NOLINT(google-build-using-namespace): main is outside
  return Main("mixture_of_experts", kUsage, Run, argc, argv);
}
