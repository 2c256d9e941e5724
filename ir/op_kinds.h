// Enumerations that classify ops: families, lowerings, and the roles of regions. An OpDef
// (op_def.h) names one family and one lowering. Code that needs no rules of ops includes this
// header instead of op_def.h.
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
// How a backend runs the op. A new op rarely needs a new kind.
enum class Lowering : uint8_t {
  kUnset,
  kScalar,        // one loop over the scalar graph
  kReduce,        // a loop with a combiner: a ReduceKind or a computation
  kContract,      // sums of products of two operands (see ContractionMap)
  kIndexMap,      // each result element is a fill, or an operand element at a static affine index
  kDynamicIndex,  // an index map with run-time offsets, one for all elements or one each
  // Each element along attribute `dimension` is combined with those before it, or with `reverse`
  // with those after it.
  kScan,
  kScatter,     // writes elements at run-time offsets, or combines them with the elements there
  kCollective,  // exchanges data along mesh axes (see CollectiveKind)
  kRegion,      // runs nested functions
  kAlias,       // the result is the operand: casts of manual axes types, sharding_constraint
  kBarrier,     // the results are the operands; a reader of any waits for all operands
  kHost,        // no backend has code: the host evaluates the op on copies of the operands
  kSort,  // puts rows in order (see SortRule): has code on a CPU; on accelerators it is like kHost
};

// The role of a region in its op. Bodies, predicates and branches are planned, differentiated,
// batched and lowered like the ops around them. Regions of the other roles are read only by the
// rules of their op. A computation is a function of scalars (a combiner, a comparator). A rule says
// how the op is differentiated; rules are gone when a program is planned (DropRules in
// transform/transform.h).
enum class RegionRole : uint8_t {
  kBody,         // runs once, or trip_count times, or while the predicate holds
  kPredicate,    // runs before each run of the body; its result, a bool, says whether the body runs
  kBranch,       // one of several; `branch_index` chooses the branch that runs
  kComputation,  // a function of scalars
  kRule,         // a derivative of the first region; that region is a body, or there is no body
};

}  // namespace tessera::ir
