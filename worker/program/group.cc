// The content of one kernel while Fuse (fuse.cc) builds it: its iteration space, nodes and stores.
// A read is a load node; fusing a producer replaces that node by the computation of the value. Dims
// are split when accesses need it, in all accesses of the kernel at once.
#include "worker/program/group.h"

#include <algorithm>
#include <limits>

#include "base/log.h"
#include "ir/derive/computation_graph.h"

namespace tessera::worker::program {
namespace {

using ir::DType;
using ir::ScalarPrim;
using Kind = codegen::Node::Kind;

using codegen::IsArgReduction;

// The least and the greatest flat element that an access without shifts reads.
struct Range {
  int64_t low = 0, high = 0;
};
Range RangeOf(const ir::Dims& box, const ValueAccess& access) {
  Range range{access.offset, access.offset};
  for (size_t d = 0; d < box.size(); ++d)
    (access.strides[d] < 0 ? range.low : range.high) += access.strides[d] * (box[d] - 1);
  return range;
}

// Returns the splits that turn `sizes` into `wanted`, in the order in which they must be made, or
// nullopt if no splits do. Dims of size 1 are ignored on both sides.
std::optional<std::vector<Split>> SplitsFor(ir::Dims sizes, const ir::Dims& wanted) {
  std::vector<Split> splits;
  size_t d = sizes.size(), w = wanted.size();
  while (d > 0 || w > 0) {
    if (d > 0 && sizes[d - 1] == 1) {
      --d;
      continue;
    }
    if (w > 0 && wanted[w - 1] == 1) {
      --w;
      continue;
    }
    if (d == 0 || w == 0) return std::nullopt;
    const int64_t have = sizes[d - 1], want = wanted[w - 1];
    if (have != want) {
      if (have % want != 0) return std::nullopt;
      const Split split{static_cast<int>(d) - 1, want};
      Apply(split, &sizes);
      splits.push_back(split);
      --w;
      continue;  // the rest of the dim is dim d - 1
    }
    --d;
    --w;
  }
  return splits;
}

// Returns the shortest list of sizes to which the dims of both boxes can be split, or nullopt if
// there is no such list.
std::optional<ir::Dims> CommonRefinement(const ir::Dims& a, const ir::Dims& b) {
  ir::Dims common;
  size_t i = a.size(), j = b.size();
  int64_t left = 1, right = 1;
  while (true) {
    while (left == 1 && i > 0) left = a[--i];
    while (right == 1 && j > 0) right = b[--j];
    if (left == 1 && right == 1) break;
    const int64_t smaller = std::min(left, right), larger = std::max(left, right);
    if (smaller == 1 || larger % smaller != 0) return std::nullopt;
    common.insert(common.begin(), smaller);
    left /= smaller;
    right /= smaller;
  }
  return common;
}

}  // namespace

int Group::weight() const {
  int weight = 0;
  for (const Node& n : nodes_)
    if (n.kind == Kind::kScalar) weight += ir::WeightOf(n.prim);
  return weight;
}

int Group::num_reads() const {
  int n = 0;
  for (size_t i = 0; i < nodes_.size(); ++i) n += IsRead(static_cast<int>(i));
  return n;
}

int Group::AddRead(const Value& v, int value, ValueAccess access) {
  if (v.elements == 1) {  // every index reads the one element
    access = ValueAccess();
    access.strides.assign(box_.size(), 0);
  }
  codegen::ForEachStrides(access, [&](ir::Dims& strides) {
    for (size_t d = 0; d < box_.size(); ++d)
      if (box_[d] == 1) strides[d] = 0;
  });
  for (size_t i = 0; i < nodes_.size(); ++i)
    if (IsRead(static_cast<int>(i)) && nodes_[i].read_value == value && nodes_[i].access == access)
      return static_cast<int>(i);
  Node node;
  node.kind = Kind::kLoad;
  node.dtype = v.dtype;
  node.read_value = value;
  node.access = std::move(access);
  return Add(std::move(node));
}

void Group::AddStore(int node, int value, ValueAccess access) {
  stores_.push_back({node, value, std::move(access)});
}

int Group::AddScan(int read, ir::ReduceKind kind, DType compute_dtype) {
  const DType dtype = nodes_[read].dtype;
  Node node;
  node.kind = Kind::kReduce;
  node.reduce = kind;
  node.dtype = compute_dtype;
  node.args = {AddConvert(read, compute_dtype)};
  return AddConvert(Add(std::move(node)), dtype);
}

bool Group::Reads(int value) const {
  return std::any_of(nodes_.begin(), nodes_.end(),
                     [&](const Node& n) { return n.kind == Kind::kLoad && n.read_value == value; });
}

std::set<int> Group::ValuesStored() const {
  std::set<int> values;
  for (const Store& store : stores_) values.insert(store.value);
  return values;
}

std::set<int> Group::ValuesRead() const {
  std::set<int> values;
  for (const Node& n : nodes_)
    if (n.kind == Kind::kLoad && n.read_value >= 0) values.insert(n.read_value);
  return values;
}

void Group::ForEachShiftValue(const std::function<void(int)>& f) const {
  for (const Node& n : nodes_) {
    if (n.kind != Kind::kLoad || n.read_value < 0) continue;
    for (const DynamicValueOffset& s : n.access.shifts) f(s.value);
  }
  for (const Store& store : stores_)
    for (const DynamicValueOffset& s : store.access.shifts) f(s.value);
}

std::vector<int> Group::MergedReadsOf(int value) {
  std::vector<int> reads;
  for (int i = 0; i < num_nodes(); ++i) {
    if (!IsRead(i) || nodes_[i].read_value != value) continue;
    const auto same = std::find_if(reads.begin(), reads.end(), [&](int other) {
      return nodes_[other].access == nodes_[i].access;
    });
    if (same == reads.end()) {
      reads.push_back(i);
      continue;
    }
    for (Node& n : nodes_) std::replace(n.args.begin(), n.args.end(), i, *same);
    for (Store& s : stores_)
      if (s.node == i) s.node = *same;
    nodes_[i].read_value = -1;
  }
  return reads;
}

bool Group::IsDenseRead(int read, int64_t elements) const {
  return NumElements(absl::MakeConstSpan(box_).subspan(0, num_parallel())) == elements &&
         IsDense(box_, num_parallel(), nodes_[read].access);
}

bool Group::MayRepeat(int read) const {
  if (IsGather(nodes_[read].access)) return true;
  for (int d = 0; d < num_parallel(); ++d)
    if (box_[d] > 1 && nodes_[read].access.strides[d] == 0) return true;
  return false;
}

bool Group::FeedsReduction(int node) const {
  std::vector<bool> uses_node(nodes_.size(), false);
  uses_node[node] = true;
  for (bool changed = true; changed;) {  // repeated, since args may be later nodes
    changed = false;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (uses_node[i] || std::none_of(nodes_[i].args.begin(), nodes_[i].args.end(),
                                       [&](int arg) { return uses_node[arg]; }))
        continue;
      if (nodes_[i].kind == Kind::kReduce) return true;
      uses_node[i] = changed = true;
    }
  }
  return false;
}

int Group::AddConvert(int node, DType to) {
  if (nodes_[node].dtype == to) return node;
  Node convert;
  convert.prim = ScalarPrim::kConvert;
  convert.dtype = to;
  convert.args = {node};
  return Add(std::move(convert));
}

// ---- Splits. -----------------------------------------------------------------------------------

bool Group::MaySplitDim(const Split& split) const {
  return box_.size() < kGroupDimsMax && !(keeps_reduced_dim_whole_ && split.dim >= num_parallel());
}

void Group::SplitDim(const Split& split) {
  if (split.dim >= num_parallel()) ++num_reduced_;
  Apply(split, &box_);
  for (Node& n : nodes_)
    if (n.kind == Kind::kLoad || n.kind == Kind::kIndex) Apply(split, &n.access);
  for (Store& s : stores_) Apply(split, &s.access);
}

std::optional<ValueAccess> Group::ComposeSplitting(const ValueAccess& access, const View& view) {
  ValueAccess current = access;
  while (true) {
    ComposeResult composed = Compose(box_, current, view);
    if (composed.access) return composed.access;
    if (!composed.split || !MaySplitDim(*composed.split)) return std::nullopt;
    Apply(*composed.split, &current);
    SplitDim(*composed.split);
  }
}

bool Group::Refine(const ir::Dims& parallel, const ir::Dims& reduced) {
  const auto parallel_end = box_.begin() + num_parallel();
  const auto splits = SplitsFor({box_.begin(), parallel_end}, parallel);
  const auto reduced_splits = SplitsFor({parallel_end, box_.end()}, reduced);
  if (!splits || !reduced_splits ||
      box_.size() + splits->size() + reduced_splits->size() > kGroupDimsMax ||
      (keeps_reduced_dim_whole_ && !reduced_splits->empty()))
    return false;
  for (Split split : *reduced_splits) {
    split.dim += num_parallel();
    SplitDim(split);
  }
  for (const Split& split : *splits) SplitDim(split);
  return true;
}

// ---- Fusing items. -----------------------------------------------------------------------------

// Replaces the reads by the item's graph. All reads have the same access, so the graph is added
// once, with its inputs read at that access. An operand of one element is the same for all indices,
// so it is read with stride 0.
void Group::FuseScalarProducer(const std::vector<std::pair<int, int>>& reads,
                               const ScalarItem& item, const std::vector<int>& operands,
                               const std::vector<Value>& values) {
  const ValueAccess access = nodes_[reads[0].first].access;
  const int64_t elements = values[nodes_[reads[0].first].read_value].elements;
  std::vector<int> added;  // for each node of the graph
  for (const ir::ScalarNode& n : item.graph.nodes) {
    if (n.prim == ScalarPrim::kInput) {
      const int operand = operands[static_cast<int>(n.value)];
      ValueAccess from = access;
      if (values[operand].elements != elements) {
        from = ValueAccess();
        from.strides.assign(box_.size(), 0);
      }
      added.push_back(AddRead(values[operand], operand, std::move(from)));
      continue;
    }
    Node node;
    node.prim = n.prim;
    node.dtype = n.dtype;
    if (n.prim == ScalarPrim::kConstant && IsFloat(n.dtype)) node.value = n.value;
    if (n.prim == ScalarPrim::kConstant && !IsFloat(n.dtype)) node.int_value = n.int_value;
    for (int arg : n.args) node.args.push_back(added[arg]);
    added.push_back(Add(std::move(node)));
  }
  for (const auto& [read, root] : reads) nodes_[read] = Node(nodes_[added[item.graph.roots[root]]]);
}

bool Group::CanFuseView(int read, const ViewItem& item) const {
  Group trial(*this);
  return trial.ComposeSplitting(nodes_[read].access, item.view).has_value();
}

// Replaces the read of a view by a read of the operand, or of an iota by the index itself. The
// index is computed in 32 bits if its range allows it. A view with shifts but without operand
// cannot be fused, since an index node has no shifts.
bool Group::FuseViewProducer(int read, const ViewItem& item, int operand,
                             const std::vector<Value>& values) {
  std::optional<ValueAccess> access = ComposeSplitting(nodes_[read].access, item.view);
  if (!access) return false;
  const DType dtype = nodes_[read].dtype;
  if (operand >= 0) {
    const int before = num_nodes();
    const int source = AddRead(values[operand], operand, *std::move(access));
    nodes_[read] = Node(nodes_[source]);
    if (source == before) nodes_.pop_back();  // the read has become the new node
    return true;
  }
  if (!access->shifts.empty()) return false;
  const Range range = RangeOf(box_, *access);
  const bool small = range.low >= std::numeric_limits<int32_t>::min() &&
                     range.high <= std::numeric_limits<int32_t>::max();
  Node index;
  index.kind = Kind::kIndex;
  index.dtype = small ? DType::kS32 : DType::kS64;
  index.access = *std::move(access);
  int iota = Add(std::move(index));
  iota = AddConvert(iota, ir::ComputeDType(dtype));
  iota = AddConvert(iota, dtype);
  nodes_[read] = Node(nodes_[iota]);
  return true;
}

// Replaces the read of a reduction by the reduction itself, whose dims become the reduced dims of
// the group. This requires that the group reads the result once per parallel index and in order, as
// otherwise the reduction would be computed several times. A group may have several reductions over
// the same reduced dims, but none that depends on another, because a kernel goes through its
// reduced dims once. An argmax needs the whole reduced dim in one piece, since its result is an
// index along it.
bool Group::FuseReduceProducer(int read, const ReduceItem& item, int operand,
                               const std::vector<Value>& values) {
  const size_t item_parallel = item.box.size() - item.num_reduced;
  const ir::Dims parallel(item.box.begin(), item.box.begin() + item_parallel);
  const ir::Dims reduced(item.box.begin() + item_parallel, item.box.end());
  if (scans_ || !IsDenseRead(read, NumElements(parallel)) || FeedsReduction(read)) return false;
  if (box_.size() + reduced.size() > kGroupDimsMax) return false;
  if (num_reduced_ > 0 && (IsArgReduction(item.kind) || keeps_reduced_dim_whole_)) return false;
  // The view is composed for the parallel dims only; the strides of the reduced dims are added
  // below.
  View view{parallel, {item.access.offset, {}, item.access.shifts}};
  view.access.strides.assign(item.access.strides.begin(),
                             item.access.strides.begin() + item_parallel);
  const std::optional<ValueAccess> composed = ComposeSplitting(nodes_[read].access, view);
  if (!composed) return false;
  ValueAccess access = *composed;
  if (num_reduced_ == 0) {
    num_reduced_ = item.num_reduced;
    box_.insert(box_.end(), reduced.begin(), reduced.end());
    const auto resize = [&](ValueAccess* a) {
      codegen::ForEachStrides(*a, [&](ir::Dims& strides) { strides.resize(box_.size(), 0); });
    };
    for (Node& n : nodes_)
      if (n.kind == Kind::kLoad || n.kind == Kind::kIndex) resize(&n.access);
    for (Store& s : stores_) resize(&s.access);
    access.strides.resize(num_parallel());
    access.strides.insert(access.strides.end(), item.access.strides.begin() + item_parallel,
                          item.access.strides.end());
  } else {
    // The group has another reduction. The dims of this one are split in the same way, if possible.
    const ir::Dims own(box_.begin() + num_parallel(), box_.end());
    const auto splits = SplitsFor(reduced, own);
    if (!splits) return false;
    ir::Dims sizes = reduced;
    ValueAccess inner;
    inner.strides.assign(item.access.strides.begin() + item_parallel, item.access.strides.end());
    for (const Split& split : *splits) {
      Apply(split, &sizes);
      Apply(split, &inner);
    }
    ir::Dims strides;
    for (size_t d = 0; d < sizes.size(); ++d)
      if (sizes[d] != 1) strides.push_back(inner.strides[d]);
    access.strides.resize(num_parallel());
    size_t next = 0;
    for (int64_t size : own) access.strides.push_back(size == 1 ? 0 : strides.at(next++));
  }
  keeps_reduced_dim_whole_ |= IsArgReduction(item.kind);
  const DType dtype = nodes_[read].dtype;
  int from = AddRead(values[operand], operand, std::move(access));
  from = AddConvert(from, ir::ComputeDType(values[operand].dtype));
  Node node;
  node.kind = Kind::kReduce;
  node.reduce = item.kind;
  node.dtype = nodes_[from].dtype;
  if (IsArgReduction(item.kind)) node.dtype = dtype == DType::kS64 ? DType::kS64 : DType::kS32;
  node.args = {from};
  const int result = AddConvert(Add(std::move(node)), dtype);
  nodes_[read] = Node(nodes_[result]);
  return true;
}

// ---- Merging. ----------------------------------------------------------------------------------

// Decides whether two groups can become one kernel, and brings both to the same box. The dims of
// both groups are split to the coarsest sizes that both can have. All this is tried on copies,
// because a refusal must not change the groups.
bool Group::PrepareMerge(Group* other) {
  if (scans_ || other->scans_) return false;
  if (num_reduced_ > 0 && other->num_reduced_ > 0 &&
      (keeps_reduced_dim_whole_ || other->keeps_reduced_dim_whole_))
    return false;
  if ((num_reduced_ > 0) != (other->num_reduced_ > 0)) return false;
  if (num_nodes() + other->num_nodes() > kNodesMax ||
      num_reads() + other->num_reads() > kReadsMax || weight() + other->weight() > kWeightMax)
    return false;
  const auto parts = [](const Group& g) {
    const auto end = g.box_.begin() + g.num_parallel();
    return std::pair(ir::Dims(g.box_.begin(), end), ir::Dims(end, g.box_.end()));
  };
  const auto [parallel, reduced] = parts(*this);
  const auto [other_parallel, other_reduced] = parts(*other);
  const auto common = CommonRefinement(parallel, other_parallel),
             common_reduced = CommonRefinement(reduced, other_reduced);
  if (!common || !common_reduced) return false;
  Group a(*this), b(*other);
  if (!a.Refine(*common, *common_reduced) || !b.Refine(*common, *common_reduced)) return false;
  a.DropUnitDims();
  b.DropUnitDims();
  if (a.box_ != b.box_ || a.num_reduced_ != b.num_reduced_) return false;
  *this = std::move(a);
  *other = std::move(b);
  return true;
}

void Group::Merge(const Group& other) {
  const int base = num_nodes();
  for (Node node : other.nodes_) {
    for (int& arg : node.args) arg += base;
    nodes_.push_back(std::move(node));
  }
  for (Store store : other.stores_) {
    store.node += base;
    stores_.push_back(std::move(store));
  }
}

void Group::DropUnitDims() {
  for (int d = static_cast<int>(box_.size()) - 1; d >= 0; --d) {
    if (box_[d] != 1) continue;
    if (d >= num_parallel()) {
      if (num_reduced_ == 1) continue;
      --num_reduced_;
    }
    box_.erase(box_.begin() + d);
    const auto drop = [d](ValueAccess* a) {
      codegen::ForEachStrides(*a, [d](ir::Dims& strides) { strides.erase(strides.begin() + d); });
    };
    for (Node& n : nodes_)
      if (n.kind == Kind::kLoad || n.kind == Kind::kIndex) drop(&n.access);
    for (Store& s : stores_) drop(&s.access);
  }
}

// ---- The kernel. -------------------------------------------------------------------------------

class Group::Builder {
 public:
  Builder(const Group& group, const std::vector<Value>& values,
          const std::vector<ir::Array>& constants)
      : group_(group), values_(values), constants_(constants), added_(group.nodes_.size(), -1) {
    kernel_.shape = group.box_;
    kernel_.num_reduced = group.num_reduced_;
    kernel_.scans = group.scans_;
  }

  BuiltKernel Build() && {
    if (group_.scans_)
      for (const Store& store : group_.stores_)
        inputs_[store.value] = AddParam(store.value, /*is_output=*/true);
    for (const Store& store : group_.stores_) AddWithArgs(store.node);
    for (const Store& store : group_.stores_) {
      codegen::Store s;
      s.node = added_[store.node];
      s.access = AccessOf(store.access);
      s.param =
          group_.scans_ ? InternInput(store.value) : AddParam(store.value, /*is_output=*/true);
      kernel_.stores.push_back(std::move(s));
    }
    return {codegen::Canonical(kernel_), std::move(param_values_)};
  }

 private:
  int AddParam(int value, bool is_output) {
    kernel_.params.push_back({values_[value].dtype, values_[value].elements, is_output});
    param_values_.push_back(value);
    return static_cast<int>(param_values_.size()) - 1;
  }
  int InternInput(int value) {
    const auto it = inputs_.find(value);
    return it != inputs_.end() ? it->second : inputs_[value] = AddParam(value, /*is_output=*/false);
  }
  codegen::Access AccessOf(const ValueAccess& access) {
    codegen::Access a{access.offset, access.strides, {}};
    for (const DynamicValueOffset& s : access.shifts)
      a.shifts.push_back({InternInput(s.value), s.max, s.stride, s.offset, s.strides});
    return a;
  }
  int Add(codegen::Node node) {
    kernel_.nodes.push_back(std::move(node));
    return static_cast<int>(kernel_.nodes.size()) - 1;
  }

  // Adds the node after the nodes that it needs.
  void AddWithArgs(int root) {
    const std::vector<Node>& nodes = group_.nodes_;
    std::vector<int> stack = {root};
    while (!stack.empty()) {
      const int id = stack.back();
      if (added_[id] >= 0) {
        stack.pop_back();
        continue;
      }
      const size_t depth = stack.size();
      for (auto arg = nodes[id].args.rbegin(); arg != nodes[id].args.rend(); ++arg)
        if (added_[*arg] < 0) stack.push_back(*arg);
      TESSERA_CHECK(stack.size() <= depth + nodes.size()) << "the nodes of a kernel form a cycle";
      if (stack.size() > depth) continue;
      stack.pop_back();
      added_[id] = AddNode(nodes[id]);
    }
  }

  // Adds one node whose args have been added. A read of a constant with one element becomes a
  // literal of the kernel instead of a param. The literal is given in the compute type and then
  // converted to the dtype of the constant, which a load would have.
  int AddNode(const Node& n) {
    codegen::Node node;
    node.kind = n.kind;
    node.dtype = n.dtype;
    node.prim = n.prim;
    node.value = n.value;
    node.int_value = n.int_value;
    node.reduce = n.reduce;
    for (int arg : n.args) node.args.push_back(added_[arg]);
    if (n.kind == Kind::kIndex) node.access = AccessOf(n.access);
    if (n.kind != Kind::kLoad) return Add(std::move(node));
    const Value& v = values_[n.read_value];
    if (v.constant < 0 || v.elements != 1) {
      node.param = InternInput(n.read_value);
      node.access = AccessOf(n.access);
      return Add(std::move(node));
    }
    const ir::Array& literal = constants_[v.constant];
    node.kind = Kind::kScalar;
    if (IsFloat(n.dtype)) node.value = literal.At(0);
    if (!IsFloat(n.dtype)) node.int_value = literal.IntAt(0);
    node.dtype = ir::ComputeDType(n.dtype);
    if (node.dtype == n.dtype) return Add(std::move(node));
    codegen::Node convert;
    convert.prim = ScalarPrim::kConvert;
    convert.dtype = n.dtype;
    convert.args = {Add(std::move(node))};
    return Add(std::move(convert));
  }

  const Group& group_;
  const std::vector<Value>& values_;
  const std::vector<ir::Array>& constants_;
  codegen::Kernel kernel_;
  std::vector<int> param_values_;
  std::map<int, int> inputs_;  // the param of each value that is loaded or shifts an access
  std::vector<int> added_;     // for each node of the group: the node of the kernel, or -1
};

Group::BuiltKernel Group::Build(const std::vector<Value>& values,
                                const std::vector<ir::Array>& constants) const {
  return Builder(*this, values, constants).Build();
}

}  // namespace tessera::worker::program
