// Enumerations that classify ops: families, lowerings, and the roles of regions. An OpDef
// (op_def.h) names one family and one lowering. Code that only tells ops apart by these includes
// this header.
#pragma once
#include <cstdint>

namespace tessera::ir {

enum class Family : uint8_t {
  kUnset,
  kElementwise,
  kReduction,
  kContraction,
  kDataMovement,
  kIndexing,
  kControlFlow,
  kRandom,
  kCollective,
  kCast,
};
// How a backend runs the op.  A new ordinary op never needs a new kind.
enum class Lowering : uint8_t {
  kUnset,
  kScalar,        // one loop over the scalar graph
  kReduce,        // a loop with a combiner, a ReduceKind or a computation
  kContract,      // sums of products of two operands (ContractionMap says which)
  kIndexMap,      // each result element is an operand element at a static affine index, or a fill
  kDynamicIndex,  // an index map with run-time offsets, of all elements or of each
  kScan,          // each element along attribute `dimension` is combined with those before it;
                  // from the end, with `reverse`
  kScatter,       // writes elements at run-time offsets, or combines them with what is there
  kCollective,    // exchanges data along mesh axes (CollectiveKind says how)
  kRegion,        // runs nested functions
  kAlias,         // result is the operand: casts of manual axes types, sharding_constraint
  kBarrier,       // results are the operands, and what reads any comes after all of these
  kHost,  // no code: the host evaluates it on every backend, on copies of a device's operands
  kSort,  // puts rows in order (SortRule says how): code on a CPU; on accelerators as kHost
};

// The role of a region in its op. Bodies, predicates and branches are planned, differentiated,
// batched and lowered as the ops around them are. The others only the rules of their op read: a
// computation is a function of scalars (a combiner, a comparator); a rule says how the op is
// differentiated, and is gone when a program is planned (DropRules in transform/transform.h).
enum class RegionRole : uint8_t {
  kBody,         // runs once, or trip_count times, or while the predicate holds
  kPredicate,    // before each run of the body; its result, a bool, says whether there is one
  kBranch,       // one of several, of which `branch_index` chooses the one that runs
  kComputation,  // of scalars
  kRule,         // a derivative of the first region, which is a body, or missing
};

}  // namespace tessera::ir
