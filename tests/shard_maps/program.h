// Random shard_map programs. A program consists of a mesh, inputs, the specs of inputs and results,
// and a body of a few ops that every device runs. A seed makes the same program everywhere.
//
// A program records the shape of each value and the axes along which the value varies. MakeProgram
// finds both by the rules of JAX, which are implemented here independently of the SDK. Neither this
// file nor plain_loop.h, which computes the expected results, shares code with the SDK.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace tessera::shard_maps {

using Dims = std::vector<int64_t>;
using AxisSet = uint32_t;        // bit i stands for axis i of the mesh
using Axes = std::vector<int>;   // axes in order, the major one first
using Spec = std::vector<Axes>;  // axes over which each dim is sharded

// An axis of the mesh, or the named axis of a vmap.
struct Axis {
  std::string name;
  int64_t size;
  bool mapped = false;
};

// The type of one device's block of a value. `bound` is an upper bound of the magnitudes of the
// block's elements.
struct ValueType {
  Dims shape;
  AxisSet varying = 0;
  double bound = 1;
};

// The kind of a step. The comments say how a step of this kind uses the members of Step.
enum class StepKind : uint8_t {
  kConstant,  // an array of `numbers` from outside the body; of rank 0, a number in C++
  // Elementwise ops of one operand. numbers[0] is the factor or the term, if there is one.
  kSin,
  kCos,
  kTanh,
  kLogistic,
  kNegate,
  kSquare,
  kScale,
  kShift,
  kStopGradient,
  // Elementwise ops of two operands, or of four: kSelect is select(a < b, c, d).
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kMax,
  kMin,
  kSelect,
  // Ops on one block. The comment beside each op describes its `ints`.
  kReshape,      // the new shape
  kTranspose,    // the permutation
  kBroadcast,    // the new shape, then for each dim of the operand its position in the new shape
  kSlice,        // the starts, then the limits
  kConcatenate,  // the dim
  kPad,          // the amounts before each dim, then the amounts after each dim
  kReverse,      // the dims
  kCumsum,       // the dim
  kSort,         // the dim
  // The start index differs between devices: it is the index of the device along `axes`, clamped to
  // the range of valid starts. `ints` holds the dim and, for kDynamicSlice, the size of the slice.
  kDynamicSlice,
  kDynamicUpdate,
  // `ints` holds the dims; for kDot, the contracted dim of each operand.
  kSum,
  kProduct,
  kLargest,
  kDot,
  // Collectives over `axes`. `ints` holds the dim; for kAllToAll, the dim to split and the dim to
  // join; for kPermute, pairs of a source and a destination; for kPbroadcast, the source.
  kPsum,
  kPmean,
  kPmax,
  kPmin,
  kAllGather,
  kPsumScatter,
  kAllToAll,
  kPermute,
  kPbroadcast,
  kAxisIndex,
  kPvary,
  kGatherInvarying,
  // Sequences of casts and collectives through the states unreduced and reduced: a pcast to
  // unreduced followed by a psum or a psum_scatter, an all_gather to reduced followed by a pcast,
  // and a pcast to reduced followed by a pcast to varying.
  kPsumUnreduced,
  kScatterUnreduced,
  kGatherReduced,
  kThroughReduced,
  // Loops. The params of bodies[0] are the carry and, for kFori, the index as a float or, for
  // kScan, the element of in[1] if there is an in[1]. The results are the new carry and, if there
  // are two, a value to stack. `ints` holds the number of iterations and whether they run in
  // reverse order.
  kScan,
  kFori,
  // A branch. in[0] is a scalar, and `numbers` are thresholds. The number of thresholds below the
  // scalar is the index of the body that runs.
  kBranch,
  kJit,
  kCheckpoint,
  // `ints` holds the mapped dim of each operand, or -1 if the operand is not mapped, and then the
  // mapped dim of the result. `axes` holds the axis of the vmap if it has a name.
  kVmap,
  // with_sharding_constraint by specs[0], which names axes that are not manual.
  kConstrain,
  // The gradient of bodies[0], whose result is a scalar, at the point in[0].
  kGrad,
  // A shard_map over the axes that are not manual yet. `specs` holds its in_specs and then its
  // out_spec.
  kNested,
};

struct Step;
struct Body {
  std::vector<int> params;
  std::vector<Step> steps;
  std::vector<int> results;
};
// A step of a body. `in` and `out` are ids of values, which are unique in a program. A body may use
// the values of the bodies around it.
struct Step {
  StepKind kind;
  std::vector<int> in = {};
  std::vector<int> out = {};
  Axes axes = {};
  Dims ints = {};
  std::vector<double> numbers = {};
  bool tiled = false;
  std::vector<Body> bodies = {};
  std::vector<Spec> specs = {};
};

// A deliberate mistake in a program.
enum class Fault : uint8_t {
  kNone,
  kAxisMissingInOutSpec,  // an out_spec leaves out an axis along which the result varies
  kUnboundAxis,           // a psum over an axis that does not exist
  kCarryVariesMore,       // a carry that varies along more axes than its initial value
  kBranchesDiffer,        // a branch whose result varies along more axes than the other's
  kMixedStates,   // a psum over an axis along which the value varies and one along which it doesn't
  kInSpecLong,    // an in_spec with more dims than the argument
  kOutSpecLong,   // an out_spec with more dims than the result
  kIndivisible,   // an argument whose dim the axes do not divide
  kCastTwice,     // a pcast to varying of a value that varies already
  kPermuteTwice,  // a ppermute with two sources for one destination
  kIndivisibleScatter,  // a psum_scatter of a dim that the axes do not divide
  kGradOfPmax,          // a gradient through pmax
  kUnknownAxisInSpec,   // an in_spec that names an axis which the mesh does not have
};
inline constexpr int kUnknownAxis = -1;  // an axis that the mesh does not have
inline constexpr int kNumFaults = static_cast<int>(Fault::kUnknownAxisInSpec);

struct Program {
  uint64_t seed = 0;
  std::vector<Axis> mesh;                          // axes of the mesh, then the named axes of vmaps
  AxisSet manual = 0;                              // axes over which the outer shard_map runs
  bool is_explicit = false;                        // whether the axes of the mesh are Explicit
  std::vector<Dims> inputs;                        // shapes of the whole inputs
  std::vector<std::vector<double>> input_numbers;  // elements of the whole inputs
  std::vector<Spec> in_specs, out_specs;
  std::vector<Spec> input_shardings;  // shardings of the inputs before the call
  Body body;
  std::vector<ValueType> types;  // type of each value, by its id
  Fault fault = Fault::kNone;
  bool valid_unchecked = true;  // whether the results are the same with check_vma = false

  // Returns all axes of the mesh, without the axes of vmaps.
  AxisSet mesh_axes() const {
    AxisSet set = 0;
    for (size_t a = 0; a < mesh.size(); ++a) set |= AxisSet{!mesh[a].mapped} << a;
    return set;
  }
  int64_t SizeOf(const Axes& axes) const {
    int64_t n = 1;
    for (const int a : axes) n *= mesh[a].size;
    return n;
  }
  // Returns whether the program has a step of this kind, at any depth.
  bool Has(StepKind kind) const;
};

inline AxisSet SetOf(const Axes& axes) {
  AxisSet set = 0;
  for (const int a : axes) set |= AxisSet{1} << a;
  return set;
}
inline AxisSet SetOf(const Spec& spec) {
  AxisSet set = 0;
  for (const Axes& axes : spec) set |= SetOf(axes);
  return set;
}
inline int64_t Count(const Dims& shape) {
  int64_t n = 1;
  for (const int64_t d : shape) n *= d;
  return n;
}

Program MakeProgram(uint64_t seed);
// Returns a program with a mistake in it. The seed decides which mistake.
Program MakeWrongProgram(uint64_t seed);
// Returns the program as text, with one line for each step.
std::string ToText(const Program& p);
// Returns smaller programs, the smallest first. Each of them returns a single value of the body and
// has only the steps that this value needs.
std::vector<Program> SmallerPrograms(const Program& p);

}  // namespace tessera::shard_maps
