// A kernel under construction. It is built backwards from its stores. A read is a node that loads a
// value from memory. A group has reads of the values that it needs and whose producers have not
// been fused into it.
//
// Only Fuse (fuse.cc) uses groups, and decides what is fused. A Group knows neither the order of
// steps nor other kernels. Value semantics; thread-compatible.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "ir/array.h"
#include "worker/codegen/kernel.h"
#include "worker/program/access.h"
#include "worker/program/items.h"

namespace tessera::worker::program {

class Group {
 public:
  // The limits of the number of nodes, of the number of reads, and of the cost of all scalar ops
  // (ir::WeightOf). Larger kernels compile slowly and run out of registers.
  static constexpr int kNodesMax = 192;
  static constexpr int kReadsMax = 24;
  static constexpr int kWeightMax = 320;

  // Makes a kernel over the parallel dims `parallel`. Fusing a reduction adds the reduced dims to
  // the box.
  explicit Group(ir::Dims parallel) : box_(std::move(parallel)) {}
  // Makes a kernel that scans the last `num_scanned` dims of `box`. If the kernel also reads a
  // value that it stores, each point reads what the points before it have stored.
  Group(ir::Dims box, int num_scanned)
      : box_(std::move(box)), num_reduced_(num_scanned), scans_(true) {}

  // AddRead adds a load of `v`, which is value number `value`, unless there is the same load
  // already, and returns its node. AddStore adds a store of `node` to value number `value`.
  int AddRead(const Value& v, int value, ValueAccess access);
  void AddStore(int node, int value, ValueAccess access);
  // In a scan: adds the combination of `read` with the reads of all points before, computed in
  // `compute_dtype`. Returns the node of the result, which has the dtype of the read.
  int AddScan(int read, ir::ReduceKind kind, ir::DType compute_dtype);

  const ir::Dims& box() const { return box_; }
  int num_parallel() const { return static_cast<int>(box_.size()) - num_reduced_; }
  int num_nodes() const { return static_cast<int>(nodes_.size()); }
  int num_reads() const;
  int weight() const;

  // Merges the reads of `value` that have the same access, and returns the remaining reads of it.
  std::vector<int> MergedReadsOf(int value);
  bool Reads(int value) const;
  std::set<int> ValuesRead() const;
  std::set<int> ValuesStored() const;
  // Calls f(value) for each value from which a shift of an access reads its number.
  void ForEachShiftValue(const std::function<void(int)>& f) const;
  const ValueAccess& access(int read) const { return nodes_[read].access; }
  // Returns whether the read goes through all `elements` of its value in order, one at each point
  // of the parallel dims.
  bool IsDenseRead(int read, int64_t elements) const;
  // Returns whether some element is read, or may be read, at several points of the parallel dims.
  bool MayRepeat(int read) const;

  // The next three functions replace a read by the computation of the value that it reads. Two of
  // them return whether they could. If they could not, nothing has changed except perhaps how the
  // dims of the box are split. `reads` are pairs of a read and the number of the item's result that
  // it reads. All of them have the same access.
  void FuseScalarProducer(const std::vector<std::pair<int, int>>& reads, const ScalarItem& item,
                          const std::vector<int>& operands, const std::vector<Value>& values);
  bool FuseViewProducer(int read, const ViewItem& item, int operand,
                        const std::vector<Value>& values);
  bool FuseReduceProducer(int read, const ReduceItem& item, int operand,
                          const std::vector<Value>& values);
  // Returns whether FuseViewProducer would succeed.
  bool CanFuseView(int read, const ViewItem& item) const;

  // Splits dims of both groups if that makes their boxes equal. Returns whether the groups can then
  // become one kernel: neither scans, together they keep the limits above, and they have the same
  // box. Changes neither group if it returns false.
  bool PrepareMerge(Group* other);
  // Adds the computation of the other group. Requires that PrepareMerge returned true.
  void Merge(const Group& other);

  struct BuiltKernel {
    codegen::Kernel kernel;   // in normal form
    std::vector<int> values;  // the value of each param
  };
  BuiltKernel Build(const std::vector<Value>& values,
                    const std::vector<ir::Array>& constants) const;

 private:
  struct Node {
    codegen::Node::Kind kind = codegen::Node::Kind::kScalar;  // kLoad for a read
    ir::DType dtype = ir::DType::kF32;
    ir::ScalarPrim prim = ir::ScalarPrim::kConstant;
    double value = 0;
    int64_t int_value = 0;
    ir::ReduceKind reduce = ir::ReduceKind::kNone;
    std::vector<int> args;  // unlike in a Kernel, these may be later nodes
    // For kLoad: the value, or -1 if MergedReadsOf replaced this load by another.
    int read_value = -1;
    ValueAccess access;
  };
  struct Store {
    int node = 0;
    int value = 0;
    ValueAccess access;
  };

  class Builder;

  int Add(Node node) {
    nodes_.push_back(std::move(node));
    return static_cast<int>(nodes_.size()) - 1;
  }
  int AddConvert(int node, ir::DType to);
  bool IsRead(int node) const {
    return nodes_[node].kind == codegen::Node::Kind::kLoad && nodes_[node].read_value >= 0;
  }
  void SplitDim(const Split& split);
  bool MaySplitDim(const Split& split) const;
  void DropUnitDims();  // removes the dims of size 1
  // Splits the parallel and the reduced dims to these sizes. Returns whether that is possible.
  bool Refine(const ir::Dims& parallel, const ir::Dims& reduced);
  // Like Compose over the group's box, but makes the splits of the box that Compose returns.
  // Returns nullopt if the two do not compose.
  std::optional<ValueAccess> ComposeSplitting(const ValueAccess& access, const View& view);
  // Returns whether a reduction depends on the node.
  bool FeedsReduction(int node) const;

  ir::Dims box_;
  int num_reduced_ = 0;
  bool scans_ = false;  // the last dims are scanned instead of reduced
  // Whether there is an argmax or argmin, so that the reduced dim may not be split.
  bool keeps_reduced_dim_whole_ = false;
  std::vector<Node> nodes_;
  std::vector<Store> stores_;
};

}  // namespace tessera::worker::program
