// Code that the samplers of random.h share. Used by the SDK only. Functions on Values throw
// StatusException.
#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "client/array.h"
#include "ir/formula.h"

namespace tessera::random::internal {

using ir::Formula;
using ir::Value;

// The two u32 words of a key, or of one key for each element of an array.
struct KeyWords {
  Value high, low;
  OutSharding out_sharding = std::nullopt;  // sharding of the numbers that are drawn
};
KeyWords KeyWordsOf(Value key);
Value KeyOf(const KeyWords& words);
// Returns key i of the keys into which a key is split; the number of keys does not matter. Numbers
// drawn from the returned key have the sharding of numbers drawn from `key`.
KeyWords Child(const KeyWords& key, int64_t i);

// Throws TYPE_ERROR unless `key` is a key, u32[2].
const Array& CheckedKey(std::string_view name, const Arg& key);
void CheckFloat(std::string_view name, DType dtype, const Site& site);
void CheckInteger(std::string_view name, DType dtype, const Site& site);
void CheckMode(std::string_view name, std::string_view mode, const Site& site);
// Returns the shape of the samples for parameters of these shapes. Throws if `shape` does not fit
// them.
Dims SampleShape(std::string_view name, const std::optional<Dims>& shape,
                 const std::vector<Dims>& params, const Site& site);
Dims ShapeOf(const Arg& param);
// Throws if a value of this argument would lose digits as `dtype`.
void CheckCast(std::string_view name, const Arg& param, DType dtype, const Site& site);

// The functions below draw an array of numbers from one key. If `key` holds one key per element of
// the shape, each element is the first number of its key.
//
// CipherWords returns the output words of the cipher (threefry), from which the other functions
// make their numbers.
KeyWords CipherWords(const KeyWords& key, const Dims& shape, const Site& site);
Value Bits(const KeyWords& key, const Dims& shape, DType dtype, const Site& site);
Value Uniform(const KeyWords& key, const Dims& shape, DType dtype, double low, double high,
              const Site& site);
Value Uniform(const KeyWords& key, const Dims& shape, DType dtype, Value low, Value high,
              const Site& site);
Value Normal(const KeyWords& key, const Dims& shape, DType dtype, const Site& site);
Value Exponential(const KeyWords& key, const Dims& shape, DType dtype, const Site& site);
Value Gumbel(const KeyWords& key, const Dims& shape, DType dtype, std::string_view mode,
             const Site& site);
Value Signs(const KeyWords& key, const Dims& shape, DType dtype, const Site& site);

// Returns the constant `value` of `dtype` at every element of a shape.
Value Filled(ir::Builder& b, DType dtype, double value, const Dims& shape);

// The arguments of a sampler. The parameters have its dtype and shape.
struct SamplerArgs {
  KeyWords key;
  Dims shape;
  DType dtype;
  std::vector<Formula> params;
  Site site;

  const Formula& operator[](size_t i) const { return params[i]; }
  Value uniform(double low = 0, double high = 1) const {
    return Uniform(key, shape, dtype, low, high, site);
  }
};
using Sampler = absl::FunctionRef<Formula(const SamplerArgs&)>;
// Samples by a formula in a float dtype, which is also the dtype of the parameters.
Array Sampled(std::string_view name, const Arg& key, const std::optional<Dims>& shape,
              const std::vector<Arg>& params, DType dtype, Sampler sampler);
// Returns a parameter in the function that is being recorded. `values` are the values of the arrays
// among the parameters in turn; an array parameter takes values[*next] and increments `*next`.
Value NextParam(ir::Builder& b, const Arg& param, DType dtype, const std::vector<Value>& values,
                size_t* next);
std::vector<Array> ArraysOf(const Array& key, const std::vector<Arg>& params);

}  // namespace tessera::random::internal
