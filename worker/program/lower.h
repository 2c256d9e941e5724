// Lowers a function to a list of items of a few kinds, with its regions inlined and its aliasing
// ops removed: the input of Fuse.
//
// A value is a dense row-major array with a number of elements and no shape: a reshape of a value
// is the value itself. Stateless; thread-safe.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/array.h"
#include "ir/collective.h"
#include "ir/op_kinds.h"
#include "ir/precision.h"
#include "ir/program.h"
#include "ir/scalar_graph.h"
#include "worker/program/access.h"
#include "worker/program/step_program.h"

namespace tessera::worker::program {

// The bound of the dims of a kernel, reduced ones included. An op that would need more becomes a
// HostItem.
inline constexpr size_t kGroupDimsMax = 16;

// The kinds of ops that can be lowered.
inline constexpr ir::Lowering kLoweredKinds[] = {
    ir::Lowering::kScalar,   ir::Lowering::kReduce,       ir::Lowering::kContract,
    ir::Lowering::kIndexMap, ir::Lowering::kDynamicIndex, ir::Lowering::kScan,
    ir::Lowering::kScatter,  ir::Lowering::kCollective,   ir::Lowering::kRegion,
    ir::Lowering::kAlias,    ir::Lowering::kBarrier,      ir::Lowering::kSort,
    ir::Lowering::kHost};

struct Value {
  ir::DType dtype = ir::DType::kF32;
  int64_t elements = 0;
  // At most one of the four is set. If none is, an item computes the value.
  int argument = -1;
  int constant = -1;
  // Part of value `of`: begins at element `offset` in the first iteration of `loop`, and `stride`
  // elements further in each later one.
  struct Subview {
    int of = 0;
    int64_t offset = 0;
    int loop = 0;
    int64_t stride = 0;
  };
  std::optional<Subview> subview;
  // -1, or the value that this one is, behind a barrier. Fuse replaces it by that.
  int same_as = -1;
};

// result[i] = graph(operands[i], ...); an operand of one element is the same for all.
struct ScalarItem {
  ir::ScalarGraph graph;
};
// The result is `view` of the operand; or, without operand, of an iota.
struct ViewItem {
  View view;
};
// Strided copies into the result, one after the other: for every index of `box`, the element
// `write` of the result is the element `read` of the operand (-1: of an iota).
struct PiecesItem {
  struct Piece {
    ir::Dims box;
    int operand = -1;
    ValueAccess read, write;
  };
  std::vector<Piece> pieces;
};
// Each element of the operand is combined with those before it along the last dim of `box`, over
// which both are accessed.
struct ScanItem {
  ir::ReduceKind kind = ir::ReduceKind::kNone;
  ir::Dims box;
  ValueAccess access;
};
// The first operands, one for each result, with elements updated, one after the other where indices
// of `box` differ in dims after the first num_parallel: at each index the element `write` of result
// k becomes that of updates[k], root k of the graph. They and the graph's inputs are values over
// the box that nothing else reads: an input is an operand, or a result as it is then, at its
// access.
struct UpdateItem {
  struct Input {
    int value = 0, operand = -1, result = -1;  // one of the latter two
    ValueAccess access;
  };
  ir::Dims box;
  int num_parallel = 0;
  std::vector<int> updates;
  ir::ScalarGraph graph;
  std::vector<Input> inputs;
  ValueAccess write;
};
// Reduces the last num_reduced dims of `box`, over which the operand is read at `access`.
struct ReduceItem {
  ir::ReduceKind kind = ir::ReduceKind::kNone;
  ir::Dims box;
  int num_reduced = 0;
  ValueAccess access;
};
// result[b, m, n] = sum over k of a[b, m, k] b[b, k, n]; each of the four may be several dims.
struct ContractItem {
  ir::Dims batch, m, n, k;
  ValueAccess a, b;  // over (batch, m, k) and (batch, k, n)
  ir::Precision precision = ir::Precision::kDefault;
};
// The results are those of the sort, and its scratch memory.
struct SortItem {
  SortShape shape;
};
struct CollectiveItem {
  CollectiveStep step;  // without slots
};
struct AxisIndexItem {
  ir::AxisList axes;
};
struct HostItem {
  ir::FunctionRef function;
};
// result = operand.
struct CopyItem {};
// Result i is same_as operand i. What reads a result comes after what computes the operands.
struct BarrierItem {};
struct Item;
// Items that read outer values directly; `updates` are written at their end, simultaneously: (value
// of the block, outer value).
struct Block {
  std::vector<Item> items;
  std::vector<std::pair<int, int>> updates;
};
// Runs the body `trip_count` times; or, if it has an operand, while that is true.
struct LoopItem {
  int loop = 0;
  int64_t trip_count = 0;
  Block body;
};
// Runs the branch that the operand names.
struct BranchItem {
  std::vector<Block> branches;
};

struct Item {
  int label = 0;
  std::vector<int> operands, results;
  std::variant<ScalarItem, ViewItem, PiecesItem, ScanItem, UpdateItem, ReduceItem, ContractItem,
               SortItem, CollectiveItem, AxisIndexItem, HostItem, CopyItem, BarrierItem, LoopItem,
               BranchItem>
      what;
};

// Calls f(block) for the body of a loop, or for each branch.
template <class ItemType, class F>
void ForEachBlock(ItemType& item, const F& f) {
  if (auto* loop = std::get_if<LoopItem>(&item.what)) f(loop->body);
  if (auto* branch = std::get_if<BranchItem>(&item.what))
    for (auto& block : branch->branches) f(block);
}

struct Lowered {
  ir::Mesh mesh;
  std::vector<Value> values;
  std::vector<Buffer> arguments;  // argument i is value i
  std::vector<ir::Array> constants;
  std::vector<Item> items;
  std::vector<Buffer> results;
  std::vector<int> result_values;
  std::vector<std::string> labels;
  int num_loops = 0;
};

// The op's name and call site: "psum (model.cc:41)".
std::string LabelOf(const ir::Function& f, size_t op);

absl::StatusOr<Lowered> Lower(const ir::Function& function, const BuildOptions& options);

}  // namespace tessera::worker::program
