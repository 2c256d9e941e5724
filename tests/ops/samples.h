// Samples: the rows that drive every check of an op (tests/ops/*_test.cc,
// scripts/record_samples.py).
//
// A row is an op with attributes, operand types and a way to fill them.  Nothing in a row depends
// on time, memory or the standard library's distributions: the same row gives the same bytes
// everywhere, so that values recorded elsewhere stay comparable.  Rows are made once; any thread
// may read them.
#pragma once
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/status.h"
#include "ir/array.h"
#include "ir/eval/eval.h"
#include "ir/ops.h"
#include "ir/program.h"

namespace tessera::ir::samples {

// How the elements of an operand come about.  They depend on the row's name, the operand's position
// and, where the operand varies over mesh axes, on the coordinate along these.
struct Fill {
  enum Kind : uint8_t {
    kUniform,  // floats in [low, high)
    kInts,     // whole numbers low..high
    kBits,     // every bit at random; bools at even odds
    kCodes,    // the bits 0, 1, 2 ..., cut to the dtype's width
    kValues,   // `values` in turn
    kPicks,    // `values` at random
    // Of complex dtypes only these two fill the imaginary parts too: uniformly, but for the
    // diagonals of square matrices that are dominant, which are real.
    kDominant,  // matrices, the last two dims: uniform, plus n + i on the diagonal of n x n
    kDistinct,  // a shuffle of equally spaced numbers from low to high: no two are close
  } kind = kUniform;
  double low = 0, high = 1;
  std::vector<double> values;
};
Fill Uniform(double low, double high);
Fill Ints(int64_t low, int64_t high);
Fill Bits();
Fill Codes();
Fill Values(std::vector<double> values);
Fill Picks(std::vector<double> values);
Fill Dominant(double low, double high);
Fill Distinct(double low, double high);
// [-2, 2) for floats, -9..9 for signed integers, 0..9 for unsigned ones, as far as the dtype has
// them; coins for bools.
Fill Usual(DType dtype);

struct Operand {
  Type type;
  Fill fill;
};
Operand Of(DType dtype, Dims shape);  // filled as usual
Operand Of(DType dtype, Dims shape, Fill fill);
// Varying over mesh axes: every coordinate has its own block.
Operand Varying(DType dtype, Dims shape, AxisSet axes);
Operand Varying(DType dtype, Dims shape, AxisSet axes, Fill fill);

// What may be left out of the checks, each with a reason.
enum class Check : uint8_t {
  kRecorded,   // evaluator = recorded
  kJvp,        // jvp = finite differences
  kTranspose,  // dot-product test
  kBatch,      // vmap = loop
  kSharded,    // sharded = unsharded
  kVarying,    // a wrong varying set is refused
  kCost,       // cost is positive and monotone
};
inline constexpr int kNumChecks = 7;
std::string_view CheckName(Check check);

// How far results may be from recorded ones.
struct Tolerance {
  enum Kind : uint8_t {
    kExact,      // every bit (NaNs are all alike)
    kUlps,       // `bound` units in the last place
    kReordered,  // bound * eps * (the op on the operands' magnitudes): sums in another order
    kScaled,     // bound * eps * the largest of the results
  } kind = kExact;
  double bound = 0;
};
inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
inline constexpr Tolerance kExact{};
constexpr Tolerance Ulps(double n) { return {Tolerance::kUlps, n}; }
constexpr Tolerance Reordered(double terms) { return {Tolerance::kReordered, terms}; }
constexpr Tolerance Scaled(double bound) { return {Tolerance::kScaled, bound}; }

struct Sample {
  std::string name;  // "add/f32", "pad/f32/interior"; unique
  const OpDef* def = nullptr;
  std::vector<Operand> operands;
  Attrs attrs;
  std::vector<FunctionRef> regions;
  Scope scope;  // all axes Manual: the op stands inside a manual_computation over them all
  Tolerance tolerance;
  int main = 0;  // the operand whose dtype stands for the row's
  // Sets of operands in which the op is linear, all of a set at once.
  std::vector<std::vector<int>> linear;
  std::map<Check, std::string> excluded;
  std::string free_signs;  // why recorded values are compared by magnitude; empty: they are not

  DType dtype() const { return operands.empty() ? DType::kF32 : operands[main].type.dtype; }
  bool manual() const;
  bool Excludes(Check check) const { return excluded.count(check) > 0; }

  // Rows are written as one expression:
  //   Make("multiply", "f32", {Of(kF32, {2, 4}), Of(kF32, {2, 4})}).Linear({{0}, {1}})
  Sample& With(Attrs a);
  Sample& Region(FunctionRef f);
  Sample& In(Scope s);
  Sample& Within(Tolerance t);
  Sample& Main(int operand);
  Sample& Linear(std::vector<std::vector<int>> sets);
  Sample& Without(Check check, std::string reason);
  Sample& NotSmooth(std::string reason);  // without derivatives
  Sample& UpToSigns(std::string reason);  // recorded values are compared by magnitude
  // Without derivatives if the dtype is only stored and moved.
  Sample& Moves();
};
// A region that is a computation: of scalars of these dtypes.
FunctionRef Computation(const std::vector<DType>& params,
                        const std::function<std::vector<Value>(const std::vector<Value>&)>& body);
// The row `wire_name`/`label`.
Sample Make(std::string_view wire_name, std::string_view label, std::vector<Operand> operands);

// The families, one file each.
std::vector<Sample> ElementwiseSamples();
std::vector<Sample> DataMovementSamples();
std::vector<Sample> IndexingSamples();
std::vector<Sample> ReductionSamples();
std::vector<Sample> ContractionSamples();
std::vector<Sample> LinearAlgebraSamples();
std::vector<Sample> RandomSamples();
std::vector<Sample> CollectiveSamples();
std::vector<Sample> ControlSamples();

struct SampleFamily {
  std::string_view name;  // of the file in tests/ops/recorded
  const std::vector<Sample>& samples;
};
const std::vector<SampleFamily>& Families();
const std::vector<const Sample*>& AllSamples();
std::vector<const Sample*> SamplesOf(const OpDef& def);

// All dtypes; those that have kernels, and parts of them.
std::vector<DType> AllDTypes();
const std::vector<DType>& Computable();
std::vector<DType> Floats();
std::vector<DType> Integers();
std::vector<DType> Numbers();  // integers and floats
// Name of a dtype as it stands in labels.
std::string N(DType dtype);

// ---- Running a sample. --------------------------------------------------------------------------

// The op alone: params of the operand types, its results.  Throws StatusException.
FunctionRef FunctionOf(const Sample& s);
// Mesh devices that take part: all of a manual scope, else one.
std::vector<int64_t> DevicesOf(const Scope& scope);
// The operands, args[operand][shard].
std::vector<Shards> ArgsOf(const Sample& s);
// An array of `type` (a block for each shard, equal where the type is invarying) for other data
// that a check needs; `key` tells them apart.
Shards FilledShards(const Type& type, const Fill& fill, const Scope& scope, std::string_view key);
// Runs `f` on the shards of its own scope.
absl::StatusOr<std::vector<Shards>> RunShards(const Function& f, std::vector<Shards> args);

// Why `got` is not `want` within the tolerance, or "".  `magnitude`: for kReordered, the op on the
// magnitudes; else unused.
std::string Difference(const Array& got, const Array& want, const Tolerance& tolerance,
                       const Array* magnitude);
// The op on the operands' magnitudes, in f64 where that matters; only for kReordered.
absl::StatusOr<std::vector<Shards>> MagnitudesOf(const Sample& s, std::vector<Shards> args);
// Every result and shard of `got` against `want`; "" or the first difference.
std::string Differences(const std::vector<Shards>& got, const std::vector<Shards>& want,
                        const Tolerance& tolerance, const std::vector<Shards>* magnitudes);

}  // namespace tessera::ir::samples
