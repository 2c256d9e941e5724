// The lowered form of a function: a list of items of a few kinds, and the values that they read and
// compute. Lower (lower.h) makes it, Fuse (fuse.h) reads it, and Assign takes the values.
//
// A value is a dense row-major array with a number of elements and no shape, so a reshape of a
// value is the value itself. The types are plain values.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "ir/array.h"
#include "ir/collective.h"
#include "ir/precision.h"
#include "ir/program.h"
#include "ir/scalar_graph.h"
#include "worker/program/access.h"
#include "worker/program/step_program.h"

namespace tessera::worker::program {

// The largest number of dims of a kernel, including reduced dims. An op whose kernel would need
// more becomes a HostItem.
inline constexpr size_t kGroupDimsMax = 16;

// An array that an item computes or reads.
struct Value {
  ir::DType dtype = ir::DType::kF32;
  int64_t elements = 0;
  // At most one of the next four fields is set: `argument` and `constant` (an index, or -1),
  // `subview` and `same_as`. If none is set, an item computes the value.
  int argument = -1;
  int constant = -1;
  // A part of value `whole`, such as the row that a loop over rows reads or writes. The part begins
  // at element `offset` in the first iteration of loop number `loop`, and moves on by `stride`
  // elements in each iteration.
  struct Subview {
    int whole = 0;
    int64_t offset = 0;
    int loop = 0;
    int64_t stride = 0;
  };
  std::optional<Subview> subview;
  // If this value is the result of a barrier, the value in front of the barrier, which has the same
  // elements; otherwise -1. Fuse replaces this value by that one.
  int same_as = -1;
};

// result[i] = graph(operands[0][i], operands[1][i], ...) for each element i. An operand of one
// element is the same for all i.
struct ScalarItem {
  ir::ScalarGraph graph;
};
// The result is `view` of the operand. If there is no operand, it is `view` of an iota, the value
// whose element i is i.
struct ViewItem {
  View view;
};
// Strided copies into the result, one after the other. For every index of `box`, the element
// `write` of the result becomes the element `read` of the operand, or of an iota if `operand` is
// -1.
struct PiecesItem {
  struct Piece {
    ir::Dims box;
    int operand = -1;
    ValueAccess read, write;
  };
  std::vector<Piece> pieces;
};
// Combines each element of the operand with the elements before it along the last dim of `box`.
// `access` is the access of both the operand and the result.
struct ScanItem {
  ir::ReduceKind kind = ir::ReduceKind::kNone;
  ir::Dims box;
  ValueAccess access;
};
// Copies the first operands, one for each result, to the results, and then updates elements of the
// results. At each index of `box`, the element `write` of result k becomes updates[k], which is
// root k of the graph. The dims after the first num_parallel are scanned: their indices are handled
// one after the other. The updates and the graph's inputs are values over the box that no other
// item reads. An input reads, at its access, an operand or the current state of a result.
struct UpdateItem {
  struct Input {
    int value = 0, operand = -1, result = -1;  // one of `operand` and `result` is set
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
// result[i, m, n] = sum over k of a[i, m, k] * b[i, k, n], where i is the index of the batch. Each
// of the batch, m, n and k may be several dims, or none.
struct ContractItem {
  ir::Dims batch, m, n, k;
  ValueAccess a, b;  // over (batch, m, k) and (batch, k, n)
  ir::Precision precision = ir::Precision::kDefault;
};
// The results of the item are those of the sort, followed by its scratch memory.
struct SortItem {
  SortShape shape;
};
struct CollectiveItem {
  CollectiveStep step;  // its slots are not set
};
struct AxisIndexItem {
  ir::AxisList axes;
};
struct HostItem {
  ir::FunctionRef function;
  bool is_long = false;  // HostStep::is_long
  std::optional<SortShape> sort = std::nullopt;
};
// Copies the operand to the result.
struct CopyItem {};
// Result i has operand i as its `same_as`. A reader of a result comes after the items that compute
// the operands.
struct BarrierItem {};
struct Item;
// The items of a loop's body or of a branch. They may also read values from outside the block.
// `updates` are pairs (from, to). At the end of the block, each value `to`, which comes from
// outside the block, gets the elements of `from`, all pairs at once.
struct Block {
  std::vector<Item> items;
  std::vector<std::pair<int, int>> updates;
};
// Runs the body `trip_count` times or, if the item has an operand, while that operand is true.
struct LoopItem {
  int number = 0;
  int64_t trip_count = 0;
  Block body;
};
// Runs the branch whose index is the operand's element, clamped to the existing branches.
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

// A lowered function.
struct LoweredFunction {
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

}  // namespace tessera::worker::program
