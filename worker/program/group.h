// A kernel under construction: built from its stores backwards, with a read for each value whose
// producer has not been fused into it.
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
  // Larger kernels compile slowly and run out of registers.
  static constexpr int kNodesMax = 192;
  static constexpr int kReadsMax = 24;
  static constexpr int kWeightMax = 320;

  // `parallel` are the parallel dims; fusing a reduction adds its dims.
  explicit Group(ir::Dims parallel) : box_(std::move(parallel)) {}
  // One that scans the last dims of `box`. Reads of what it stores are of what it has stored so
  // far.
  Group(ir::Dims box, int num_scanned)
      : box_(std::move(box)), num_reduced_(num_scanned), scans_(true) {}

  int AddRead(const Value& v, int value, ValueAccess access);
  void AddStore(int node, int value, ValueAccess access);
  // In a scan: what `read` and those before it come to, computed in dtype `as`, of the read's
  // dtype.
  int AddScan(int read, ir::ReduceKind kind, ir::DType as);

  const ir::Dims& box() const { return box_; }
  int num_parallel() const { return static_cast<int>(box_.size()) - num_reduced_; }
  int num_nodes() const { return static_cast<int>(nodes_.size()); }
  int num_reads() const;
  int weight() const;

  // The reads of `value`, after merging those with the same access.
  std::vector<int> ReadsOf(int value);
  bool Reads(int value) const;
  std::set<int> ValuesRead() const;
  std::set<int> ValuesStored() const;
  // Calls f(value) for the values that are shifts of accesses.
  void ForEachShift(const std::function<void(int)>& f) const;
  const ValueAccess& access(int read) const { return nodes_[read].access; }
  // Whether the read walks all `elements` of its value in order, one at each point of the parallel
  // dims.
  bool IsDenseRead(int read, int64_t elements) const;
  // Whether some element is read, or may be, at several points of the parallel dims.
  bool Repeats(int read) const;

  // These replace a read by the computation of what it reads, and return whether they could; if
  // not, nothing has changed but how the dims of the box are split. `reads` are (read, the item's
  // result that it reads), all with the same access.
  void FuseScalarProducer(const std::vector<std::pair<int, int>>& reads, const ScalarItem& item,
                          const std::vector<int>& operands, const std::vector<Value>& values);
  bool FuseViewProducer(int read, const ViewItem& item, int operand,
                        const std::vector<Value>& values);
  bool FuseReduceProducer(int read, const ReduceItem& item, int operand,
                          const std::vector<Value>& values);
  // Whether FuseViewProducer would succeed.
  bool CanFuseView(int read, const ViewItem& item) const;

  // Whether the two have the same box, if need be after splits of dims, which are made.
  bool CanMerge(Group* other);
  // Adds the computation of the other. Requires: CanMerge.
  void Merge(const Group& other);

  struct Built {
    codegen::Kernel kernel;   // in normal form
    std::vector<int> values;  // of each param
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
    std::vector<int> args;  // unlike in a Kernel, these may be later nodes
    int read = -1;          // kLoad: the value; -1: no node uses this one
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
    return nodes_[node].kind == codegen::Node::Kind::kLoad && nodes_[node].read >= 0;
  }
  void SplitDim(const Split& split);
  bool MaySplitDim(const Split& split) const;
  void DropUnitDims();  // of size 1
  // Splits the dims to these sizes, if it can.
  bool Refine(const ir::Dims& parallel, const ir::Dims& reduced);
  // Compose, with the splits that it needs.
  std::optional<ValueAccess> ComposeSplitting(const ValueAccess& access, const View& view);
  // Whether a reduction needs the node.
  bool FeedsReduction(int node) const;

  ir::Dims box_;
  int num_reduced_ = 0;
  bool scans_ = false;          // the dims that else were reduced
  bool whole_reduced_ = false;  // an argmax or argmin: the reduced dim may not be split
  std::vector<Node> nodes_;
  std::vector<Store> stores_;
};

}  // namespace tessera::worker::program
