// The policies of the op `checkpoint`: which values it keeps.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace tessera::ir {

// Says which values of its region a checkpoint keeps for the derivative. All other values are
// computed again when the derivative needs them. Reference: jax.checkpoint_policies.
struct CheckpointPolicy {
  enum Kind : uint8_t {
    kNothing,
    kEverything,
    kDots,              // results of dot_general and convolution
    kDotsWithoutBatch,  // like kDots, but without contractions that have batch dims
    kNames,             // values that checkpoint_name gives a name in `names`
    kOtherNames,        // values that checkpoint_name gives a name not in `names`
    kExceptNames,       // every value except those that kNames keeps
  };
  Kind kind = kNothing;
  std::vector<std::string> names = {};
};

}  // namespace tessera::ir
