// Random shard_map programs: a mesh, inputs, how they and the results are cut, and a body of some
// ops, of which each device runs all. The same seed makes the same program everywhere.
//
// A program knows the shape of each of its values and along which axes it varies, by the rules of
// JAX that are written down here a second time: nothing of this file, nor of plain_loop.h, which
// computes what a program gives, is shared with the SDK.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace tessera::shard_maps {

using Dims = std::vector<int64_t>;
using AxisSet = uint32_t;        // bit i: axis i of the mesh
using Axes = std::vector<int>;   // in an order: the major one first
using Spec = std::vector<Axes>;  // the axes of each dim

// Of the mesh, or that a vmap maps along and names.
struct Axis {
  std::string name;
  int64_t size;
  bool mapped = false;
};

// Of one device's block. No element is larger than `bound`, as far as is known.
struct ValueType {
  Dims shape;
  AxisSet varying = 0;
  double bound = 1;
};

enum class Do : uint8_t {
  kConstant,  // `numbers`, an array from outside; of rank 0 it may be a number of C++
  // Elementwise, of one: numbers[0] is the factor or term.
  kSin,
  kCos,
  kTanh,
  kLogistic,
  kNegate,
  kSquare,
  kScale,
  kShift,
  kStopGradient,
  // Of two, or of four: select(a < b, c, d).
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kMax,
  kMin,
  kSelect,
  // Of shapes. ints: the shape; the permutation; the shape, and which dim of it each dim becomes;
  // starts and then limits; amounts before and then after; the dims; the dim.
  kReshape,
  kTranspose,
  kBroadcast,
  kSlice,
  kConcatenate,
  kPad,
  kReverse,
  kCumsum,
  kSort,
  // At an index that varies: that of the device along `axes`, clamped. ints: the dim, the size.
  kDynamicSlice,
  kDynamicUpdate,
  // ints: the dims; of kDot the contracted dim of each.
  kSum,
  kProduct,
  kLargest,
  kDot,
  // Collectives over `axes`. ints: the dim, of kAllToAll the split one and the joined one;
  // kPermute: sources and destinations by turns; kFrom: the source.
  kPsum,
  kPmean,
  kPmax,
  kPmin,
  kAllGather,
  kPsumScatter,
  kAllToAll,
  kPermute,
  kFrom,
  kAxisIndex,
  kPvary,
  kGatherInvarying,
  // Through states that a body passes through: psum and psum_scatter of pcast to unreduced,
  // all_gather to reduced and pcast of that, pcast to reduced and to varying.
  kPsumUnreduced,
  kScatterUnreduced,
  kGatherReduced,
  kThroughReduced,
  // bodies[0] takes the carry, the index as a float or the element of in[1]; ints: how often,
  // whether in reverse. Its results: the carry and perhaps what is stacked.
  kScan,
  kFori,
  // in[0] is a scalar, of which numbers are thresholds: as many as are below it say which body.
  kBranch,
  kJit,
  kCheckpoint,
  // ints: the mapped dim of each operand, -1 for none, then that of the result; axes: its name.
  kVmap,
  // with_sharding_constraint by specs[0], of axes that are not manual.
  kConstrain,
  // The gradient of bodies[0], a scalar, by in[0].
  kGrad,
  // A shard_map over the axes that are not manual yet: in_specs, and that of the result last.
  kNested,
};

struct Step;
struct Body {
  std::vector<int> params;
  std::vector<Step> steps;
  std::vector<int> results;
};
// Values have numbers, which are unique in a program; a body may use those around it.
struct Step {
  Do what;
  std::vector<int> in = {};
  std::vector<int> out = {};
  Axes axes = {};
  Dims ints = {};
  std::vector<double> numbers = {};
  bool tiled = false;
  std::vector<Body> bodies = {};
  std::vector<Spec> specs = {};
};

// What is wrong with a program on purpose.
enum class Fault : uint8_t {
  kNone,
  kUnproven,      // an out_spec leaves out an axis along which the result varies
  kUnboundAxis,   // a psum over an axis that there is not
  kCarry,         // a carry that varies more than its initial value
  kBranches,      // a branch that varies more than the other
  kMixedStates,   // a psum over an axis along which the value varies and one along which it doesn't
  kInSpecLong,    // an in_spec of more dims than the argument has
  kOutSpecLong,   // an out_spec of more dims than the result has
  kIndivisible,   // an argument that is not divisible
  kCastTwice,     // pcast to varying of what varies
  kPermuteTwice,  // two sources of one destination
  kScatter,       // a psum_scatter of a dim that is not divisible
  kGradOfPmax,    // a gradient through pmax
  kSpecOfOther,   // an in_spec that names an axis which the mesh does not have
};
inline constexpr int kNowhere = -1;  // an axis that the mesh does not have
inline constexpr int kNumFaults = static_cast<int>(Fault::kSpecOfOther);

struct Program {
  uint64_t seed = 0;
  std::vector<Axis> mesh;    // and after its axes those of vmaps
  AxisSet manual = 0;        // along which the outer shard_map runs
  bool is_explicit = false;  // the axes of the mesh
  std::vector<Dims> inputs;  // whole
  std::vector<std::vector<double>> numbers;
  std::vector<Spec> in_specs, out_specs;
  std::vector<Spec> placed;  // where the inputs lie
  Body body;
  std::vector<ValueType> values;  // by number
  Fault fault = Fault::kNone;
  bool without_types = true;  // whether check_vma = false makes no difference

  // Of the mesh alone.
  AxisSet all() const {
    AxisSet set = 0;
    for (size_t a = 0; a < mesh.size(); ++a) set |= AxisSet{!mesh[a].mapped} << a;
    return set;
  }
  int64_t SizeOf(const Axes& axes) const {
    int64_t n = 1;
    for (const int a : axes) n *= mesh[a].size;
    return n;
  }
  // Whether a step of this kind is in it, at any depth.
  bool Has(Do what) const;
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
// The same with one of the mistakes in it; which one depends on the seed.
Program MakeWrongProgram(uint64_t seed);
// As text, a line for each step.
std::string ToText(const Program& p);
// Programs with fewer results and only what these need, the smallest first: of each value of the
// body alone.
std::vector<Program> Smaller(const Program& p);

}  // namespace tessera::shard_maps
