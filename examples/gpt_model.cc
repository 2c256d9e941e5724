// The model of examples/gpt.cc: a decoder with causal attention, dropout and tied embeddings, its
// loss, and a step of its training with Adam. The benchmarks of compilation, of tracing and of
// Python clients use the same model, so the model is in a file of its own.
#include "examples/gpt_model.h"

#include <cmath>

namespace tessera::examples {
namespace {

constexpr double kKeep = 0.9;  // the part of the numbers that dropout keeps

Array Norm(const Array& x, const Array& scale) {
  const Array centred = x - mean(x, -1, /*keepdims=*/true);
  return centred * lax::rsqrt(mean(square(centred), -1, true) + 1e-5) * scale;
}

Array Dropout(const Array& x, const std::optional<Array>& key) {
  if (!key) return x;
  return where(random::bernoulli(*key, kKeep, x.shape()), x / kKeep, 0);
}

Array Attention(const Block& p, const Array& x) {
  const int64_t length = x.shape()[1];
  const Array qkv = einsum("btd,dchk->cbhtk", {x, p.qkv});  // c stands for query, key and value
  const Array scores = einsum("bhtk,bhsk->bhts", {qkv[0], qkv[1]}) / std::sqrt(kHeadWidth);
  const Array position = arange(length);
  const Array is_past = expand_dims(position, 1) >= expand_dims(position, 0);
  const Array weights = softmax(where(is_past, scores, -1e9));
  return einsum("bthk,hkd->btd", {einsum("bhts,bhsk->bthk", {weights, qkv[2]}), p.out});
}

}  // namespace

Array Logits(const Gpt& p, const Array& tokens, const std::optional<Array>& key) {
  const int64_t length = tokens.shape()[1];
  const auto key_of = [&](int64_t i) {
    return key ? std::optional(random::fold_in(*key, static_cast<int32_t>(i))) : std::nullopt;
  };
  Array x = take(p.tokens, tokens, 0) + p.positions[Slice{0, length}];
  for (size_t i = 0; i < p.blocks.size(); ++i) {
    const Block& block = p.blocks[i];
    x = x + Dropout(Attention(block, Norm(x, block.norm1)), key_of(2 * i));
    const Array hidden = gelu(matmul(Norm(x, block.norm2), block.up));
    x = x + Dropout(matmul(hidden, block.down), key_of(2 * i + 1));
  }
  // The weights are tied: the same embedding reads a token and writes it.
  return matmul(Norm(x, p.norm), transpose(p.tokens));
}

Array Loss(const Gpt& p, const Array& text, const std::optional<Array>& key) {
  const Array inputs = text[{Slice{}, Slice{0, -1}}], targets = text[{Slice{}, Slice{1}}];
  const Array log_p = log_softmax(Logits(p, inputs, key));
  return -mean(take_along_axis(log_p, expand_dims(targets, -1), -1));
}

optim::GradientTransformation Optimizer() { return optim::adam(3e-3); }

std::pair<State, Array> Step(const State& state, const Array& text, const Array& key) {
  const auto [loss, grads] =
      value_and_grad([&](const Gpt& p) { return Loss(p, text, key); })(state.params);
  const auto [updates, opt_state] = Optimizer().update(grads, state.opt_state);
  return {{optim::apply_updates(state.params, updates), opt_state}, loss};
}

}  // namespace tessera::examples
