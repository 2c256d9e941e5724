// A kernel under construction: built from its stores backwards, with a read for each value whose
// producer has not been fused yet.
//
// Used by Fuse alone, which decides what is fused; a Group knows neither the order of steps nor
// other kernels. Value semantics; thread-compatible.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "ir/array.h"
#include "worker/codegen/kernel.h"
#include "worker/program/access.h"
#include "worker/program/lower.h"

namespace tessera::worker::program {

class Group {
 public:
  // Bounds of a kernel: larger ones compile slowly and run out of registers.
  static constexpr int kNodesMax = 192;
  static constexpr int kReadsMax = 24;
  static constexpr int kWeightMax = 320;

  // `kept` are the parallel dims; reductions add theirs.
  explicit Group(ir::Dims kept) : box_(std::move(kept)) {}

  int AddRead(const Value& v, int value, ValueAccess access);
  void AddStore(int node, int value, ValueAccess access);

  const ir::Dims& box() const { return box_; }
  int num_parallel() const { return static_cast<int>(box_.size()) - num_reduced_; }
  int num_nodes() const { return static_cast<int>(nodes_.size()); }
  int num_reads() const;
  int weight() const;

  // The reads of `value`, one node for each access.
  std::vector<int> ReadsOf(int value);
  bool Reads(int value) const;
  std::set<int> ValuesRead() const;
  // The values that shift an access.
  void ForEachShift(const std::function<void(int)>& f) const;
  const ValueAccess& access(int read) const { return nodes_[read].access; }
  // The read takes each element of a value of that size once, in order, at the kept dims.
  bool IsDenseRead(int read, int64_t elements) const;
  // Whether some element is read at several points of the parallel dims.
  bool Repeats(int read) const;

  // Each replaces a read by the computation of what it reads, and returns whether it could; if not,
  // nothing has changed but how the dims of the box are split.
  // `reads` have one access: (read, which result of the item it is).
  void FuseScalarProducer(const std::vector<std::pair<int, int>>& reads, const ScalarItem& item,
                          const std::vector<int>& operands, const std::vector<Value>& values);
  bool FuseViewProducer(int read, const ViewItem& item, int operand,
                        const std::vector<Value>& values);
  bool WriteReduce(int read, const ReduceItem& item, int operand, const std::vector<Value>& values);
  // Whether FuseViewProducer would succeed.
  bool Views(int read, const ViewItem& item) const;

  // Adds the computation of the other. Requires: CanMerge.
  void Merge(const Group& other);
  // Whether the boxes agree, if need be after splits of dims, which are made.
  bool CanMerge(Group* other);

  // In normal form, with the value of each param.
  struct Built {
    codegen::Kernel kernel;
    std::vector<int> values;
  };
  Built Build(const std::vector<Value>& values, const std::vector<ir::Array>& constants) const;

 private:
  struct Node {
    codegen::Node::Kind kind = codegen::Node::Kind::kScalar;  // kLoad: a read
    ir::DType dtype = ir::DType::kF32;
    ir::ScalarPrim prim = ir::ScalarPrim::kConstant;
    double value = 0;
    int64_t int_value = 0;
    ir::ReduceKind reduce = ir::ReduceKind::kNone;
    std::vector<int> args;  // of any order
    int read = -1;          // the value; -1: dead
    ValueAccess access;
  };
  struct Store {
    int node = 0;
    int value = 0;
    ValueAccess access;
  };

  int Add(Node node) {
    nodes_.push_back(std::move(node));
    return static_cast<int>(nodes_.size()) - 1;
  }
  int AddConvert(int node, ir::DType to);
  bool IsRead(int node) const {
    return nodes_[node].kind == codegen::Node::Kind::kLoad && nodes_[node].read >= 0;
  }
  void SplitDim(const Split& split);
  bool MaySplitDim(const Split& split) const;
  void DropUnits();
  bool Refine(const ir::Dims& kept, const ir::Dims& reduced);
  std::optional<ValueAccess> ComposeSplitting(const ValueAccess& access, const View& view);
  // Some reduction needs the node.
  bool FeedsReduction(int node) const;

  ir::Dims box_;
  int num_reduced_ = 0;
  bool whole_reduced_ = false;  // the reduced dim may not be cut
  std::vector<Node> nodes_;
  std::vector<Store> stores_;
};

// The cost of one element of the item's results, in simple operations.
int WeightOf(const ir::ScalarGraph& graph);

}  // namespace tessera::worker::program
