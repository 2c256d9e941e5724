// The GPT that examples/gpt.cc trains: its parameters, its loss and a step of its training.
#pragma once
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "client/tessera.h"

namespace tessera::examples {

// The parameters of the model. A token is a byte.
struct Block {
  Array norm1, qkv, out, norm2, up, down;
};
TESSERA_TREE(Block, norm1, qkv, out, norm2, up, down)
struct Gpt {
  Array tokens, positions;  // [kVocabulary, kWidth], [kLength, kWidth]
  std::vector<Block> blocks;
  Array norm;
};
TESSERA_TREE(Gpt, tokens, positions, blocks, norm)

constexpr int64_t kVocabulary = 256, kLength = 64, kWidth = 64, kHeads = 4;
constexpr int64_t kHeadWidth = kWidth / kHeads, kHidden = 4 * kWidth;

// The model, written for one device and a batch of texts. Returns the logits of the token that
// follows each of `tokens`, s32[batch, length]. `key` is the random key of dropout; without a key
// nothing is dropped.
Array Logits(const Gpt& p, const Array& tokens, const std::optional<Array>& key = std::nullopt);
// Returns the mean of -log p over all tokens of `text`, s32[batch, length + 1], after the first.
Array Loss(const Gpt& p, const Array& text, const std::optional<Array>& key);

struct State {
  Gpt params;
  optim::OptState<Gpt> opt_state;
};
TESSERA_TREE(State, params, opt_state)
optim::GradientTransformation Optimizer();
// Returns the next state, and the loss of the state before.
std::pair<State, Array> Step(const State& state, const Array& text, const Array& key);

}  // namespace tessera::examples
