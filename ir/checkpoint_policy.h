// What checkpoint keeps.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace tessera::ir {

// What a checkpoint keeps for the derivative; the rest is computed again. Reference:
// jax.checkpoint_policies.
struct CheckpointPolicy {
  enum Kind : uint8_t {
    kNothing,
    kEverything,
    kDots,              // dot_general and convolution
    kDotsWithoutBatch,  // of these the dot_generals without batch dims
    kNames,             // what checkpoint_name gives one of `names`
    kOtherNames,        // what it gives another name
    kExceptNames,       // everything but that
  };
  Kind kind = kNothing;
  std::vector<std::string> names = {};
};

}  // namespace tessera::ir
