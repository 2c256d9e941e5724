// Samples: the test cases of ops. They drive every check of an op (tests/ops/*_test.cc,
// scripts/record_samples.py).
//
// A sample is one op with attributes, types of operands, and a way to fill the operands. The
// comments also call it a row, since it is one entry of the table of all samples. A row does not
// depend on time, memory or the standard library's distributions. It gives the same bytes
// everywhere, so that values recorded on another machine stay comparable. The rows are made once;
// any thread may read them.
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

// How the elements of an operand are made. They depend on the row's name and on the operand's
// position. If the operand varies over mesh axes, they also depend on the coordinate along these
// axes.
struct Fill {
  enum Kind : uint8_t {
    kUniform,  // floats in [low, high)
    kInts,     // whole numbers from low to high, both included
    kBits,     // every bit is random; a bool is true with probability 1/2
    kCodes,    // the bit patterns 0, 1, 2, ..., cut to the dtype's width
    kValues,   // `values`, one after the other, repeated
    kPicks,    // random choices from `values`
    // Complex dtypes: kBits, kDominant and kDistinct fill the imaginary parts, too; the other kinds
    // leave them 0. The imaginary parts of kDominant and kDistinct are uniform in [low, high),
    // except that kDominant leaves them 0 on the diagonals of square matrices.
    kDominant,  // matrices in the last two dims: uniform, plus n + i at (i, i) for n rows
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
// Returns the usual fill of a dtype: [-2, 2) for floats, -9..9 for signed integers and 0..9 for
// unsigned ones, cut to the range of the dtype, and random bools.
Fill UsualFill(DType dtype);

struct Operand {
  Type type;
  Fill fill;
};
Operand Of(DType dtype, Dims shape);  // filled with UsualFill(dtype)
Operand Of(DType dtype, Dims shape, Fill fill);
// Returns an operand that varies over mesh axes: every coordinate has its own block.
Operand Varying(DType dtype, Dims shape, AxisSet axes);
Operand Varying(DType dtype, Dims shape, AxisSet axes, Fill fill);

// The kinds of checks that a row may exclude. A row gives a reason for each check that it excludes.
enum class CheckKind : uint8_t {
  kRecorded,   // the evaluator gives the recorded values
  kJvp,        // the jvp agrees with finite differences
  kTranspose,  // the transpose passes the dot-product test
  kBatch,      // vmap gives what a loop gives
  kSharded,    // a sharded run gives what one device gives
  kVarying,    // a wrong varying set is refused
  kCost,       // the cost is positive and grows with the batch
};

// How far results may be from the recorded values.
struct Tolerance {
  enum Kind : uint8_t {
    kExact,      // every bit is equal; all NaNs count as equal
    kUlps,       // at most `bound` units in the last place apart
    kReordered,  // for sums in another order: bound * eps * (the op on the operands' magnitudes)
    kScaled,     // bound * eps * (the largest magnitude among the recorded results)
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
  std::string name;  // unique name: "add/f32", "pad/f32/interior"
  const OpDef* def = nullptr;
  std::vector<Operand> operands;
  Attrs attrs;
  std::vector<FunctionRef> regions;
  // The scope of the op. If all axes of its mesh are Manual, the op stands inside a
  // manual_computation over all of them.
  Scope scope;
  Tolerance tolerance;
  int main = 0;  // index of the operand whose dtype counts as the row's dtype
  // Sets of operands. The op is linear in all operands of a set together.
  std::vector<std::vector<int>> linear;
  std::map<CheckKind, std::string> excluded;
  // The reason why recorded values are compared by magnitude only, without their signs. If empty,
  // they are compared with their signs.
  std::string free_signs;

  DType dtype() const { return operands.empty() ? DType::kF32 : operands[main].type.dtype; }
  bool manual() const;
  bool Excludes(CheckKind kind) const { return excluded.count(kind) > 0; }

  // A row is written as one expression, in which the functions below change the row and return it:
  //   Make("multiply", "f32", {Of(kF32, {2, 4}), Of(kF32, {2, 4})}).Linear({{0}, {1}})
  Sample& With(Attrs a);
  Sample& Region(FunctionRef f);
  Sample& In(Scope s);
  Sample& Within(Tolerance t);
  Sample& Main(int operand);
  Sample& Linear(std::vector<std::vector<int>> sets);
  Sample& Without(CheckKind kind, std::string reason);
  Sample& NotSmooth(std::string reason);  // excludes kJvp and kTranspose
  Sample& UpToSigns(std::string reason);  // compares recorded values by magnitude
  // If ops only store and move the row's dtype and do not compute with it, excludes the checks of
  // derivatives.
  Sample& Moves();
};
// Returns a region that is a computation: a function whose parameters are scalars of these dtypes.
FunctionRef Computation(const std::vector<DType>& params,
                        const std::function<std::vector<Value>(const std::vector<Value>&)>& body);
// Returns a row with the name `wire_name`/`label`. Dies if no op has that wire name.
Sample Make(std::string_view wire_name, std::string_view label, std::vector<Operand> operands);

// The rows of each family. Every family has its own file.
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
  std::string_view name;  // name of its file in tests/ops/recorded, without the extension
  const std::vector<Sample>& samples;
};
const std::vector<SampleFamily>& Families();
const std::vector<const Sample*>& AllSamples();
std::vector<const Sample*> SamplesOf(const OpDef& def);

// All dtypes; the dtypes that kernels can compute with (Computable); and subsets of Computable.
std::vector<DType> AllDTypes();
const std::vector<DType>& Computable();
std::vector<DType> Floats();
std::vector<DType> Integers();
std::vector<DType> Numbers();  // integers and floats
// Returns the name of a dtype as it is used in labels.
std::string N(DType dtype);

// ---- Running a sample. --------------------------------------------------------------------------

// Returns a function that consists of the row's op alone. Throws StatusException if the op rejects
// the types of the row.
FunctionRef FunctionOf(const Sample& s);
// Returns the mesh devices that run a sample: all devices if the scope has a Manual axis, else one.
std::vector<int64_t> DevicesOf(const Scope& scope);
// Returns the filled operands as args[operand][shard].
std::vector<Shards> ArgsOf(const Sample& s);
// Returns data of `type` in addition to the row's operands, which a check needs: one block for each
// shard. Blocks are equal along the axes on which the type is invarying. Different keys give
// different data.
Shards FilledShards(const Type& type, const Fill& fill, const Scope& scope, std::string_view key);
// Runs `f` in the evaluator, on the devices of its own scope.
absl::StatusOr<std::vector<Shards>> RunShards(const Function& f, std::vector<Shards> args);

// Returns why `got` differs from `want` by more than the tolerance, or "". `magnitude` is the
// result of the op on the operands' magnitudes; only kReordered uses it.
std::string Difference(const Array& got, const Array& want, const Tolerance& tolerance,
                       const Array* magnitude);
// Runs the op on the magnitudes of the operands, in the row's own dtypes. kReordered needs the
// result.
absl::StatusOr<std::vector<Shards>> MagnitudesOf(const Sample& s, std::vector<Shards> args);
// Compares every result and shard of `got` with `want`. Returns "" or the first difference.
std::string FirstDifference(const std::vector<Shards>& got, const std::vector<Shards>& want,
                            const Tolerance& tolerance, const std::vector<Shards>* magnitudes);

}  // namespace tessera::ir::samples
