// Random numbers from keys: bit for bit those of JAX's threefry2x32 with partitionable counters,
// independent of the sharding of the result. Reference: Salmon et al. 2011.
//
// A key is a u32[2] array. Each use of a key gives the same numbers: split it for each use.
#pragma once
#include <cstdint>

#include "client/array.h"

namespace tessera::random {

Array key(uint64_t seed, Site site = Site::Here());
Array split(const Arg& key, int64_t n = 2);      // u32[n,2]
Array fold_in(const Arg& key, const Arg& data);  // a key for (key, data); data 32 bits
Array bits(const Arg& key, Dims shape);          // u32
Array uniform(const Arg& key, Dims shape, DType dtype = DType::kF32, double low = 0,
              double high = 1);
Array normal(const Arg& key, Dims shape, DType dtype = DType::kF32);
Array bernoulli(const Arg& key, double p, Dims shape);
// Integers in [low, high), high - low at most 2^31 - 1 (as JAX: biased by less than 2^-32).
Array randint(const Arg& key, Dims shape, int32_t low, int32_t high);

}  // namespace tessera::random
