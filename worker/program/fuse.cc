// Decides which items share a kernel, and in which order the steps run. Build (build.cc) calls Fuse
// on the lowered program and passes the steps to Assign. The items of each block are visited from
// the last to the first, because an item is fused into the kernels that read it, which must exist
// by then. group.cc does the work within one kernel.
#include "worker/program/fuse.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <queue>
#include <set>

#include "base/log.h"
#include "ir/derive/computation_graph.h"
#include "worker/program/graph_builder.h"
#include "worker/program/group.h"
#include "worker/program/matmul_operands.h"
#include "worker/program/order.h"

namespace tessera::worker::program {
namespace {

// An item is cheap if its weight (ir::WeightOf) is at most kCheapWeight and it reads at most one
// large operand. An item of a single element is cheap up to kCheapScalarWeight. A cheap item is
// computed by each of its readers instead of being stored. An operand is large unless it has a
// single element, or is a broadcast of a value that has fewer elements than the item by the factor
// kBroadcastMin.
constexpr int kCheapWeight = 2;
constexpr int64_t kBroadcastMin = 8;
constexpr int kCheapScalarWeight = 8;
// Kernels that read the same value of at least kSharedElementsMin elements are merged, at most
// kMergedMax at once.
constexpr int64_t kSharedElementsMin = 256;
constexpr size_t kMergedMax = 12;
// Such kernels are not merged if the merged kernel would store kKeptBytesMin or more at least
// kKeptStepsMin steps earlier than before, because these bytes would then be kept in memory all
// that time.
constexpr int64_t kKeptBytesMin = 1 << 20;
constexpr int kKeptStepsMin = 64;

// Returns whether the item is, or contains, a collective. Collectives keep their order.
bool IsOrdered(const Item& item) {
  bool ordered = std::holds_alternative<CollectiveItem>(item.what);
  ForEachBlock(item, [&](const Block& block) {
    ordered = ordered || std::any_of(block.items.begin(), block.items.end(), IsOrdered);
  });
  return ordered;
}

// Fuses the items of one block: of the function, of a loop's body, or of a branch.
class BlockFuser {
 public:
  BlockFuser(LoweredFunction* lowered, std::vector<Item>& items, KernelTable* kernels)
      : lowered_(*lowered), items_(items), kernels_(*kernels) {}

  // Returns the steps of the block. The values `read_after` are read from memory after the block.
  std::vector<Step> Run(const std::vector<int>& read_after) {
    const int end = NewNode(kNoItem, /*label=*/-1);
    for (int v : read_after) AddMemoryReader(v, end);
    for (const Item& item : items_)
      if (std::holds_alternative<ViewItem>(item.what) && !item.operands.empty())
        view_operand_[item.results[0]] = item.operands[0];
    for (int i = static_cast<int>(items_.size()) - 1; i >= 0; --i) Visit(i);
    ShareReads();
    return OrderedSteps();
  }

 private:
  static constexpr int kNoItem = -1;

  // A future step: a group of items that becomes one kernel, or a single item.
  struct Node {
    int item = kNoItem;
    int group = -1;
    int merged_into = -1;
    // Whether the node copies an operand of an UpdateItem, which then updates the copy. The copy
    // should come late, so it is not merged with other readers of the operand.
    bool copies_for_update = false;
    std::vector<int> labels;
  };
  const Value& value(int v) const { return lowered_.values[v]; }
  int NewNode(int item, int label) {
    Node node;
    node.item = item;
    if (label >= 0) node.labels = {label};
    nodes_.push_back(std::move(node));
    return order_.AddFirst();
  }
  int NewNode(const Item& item, Group group) {
    const int node = NewNode(kNoItem, item.label);
    nodes_[node].group = static_cast<int>(groups_.size());
    groups_.push_back(std::move(group));
    return node;
  }
  int NewGroup(const Item& item, ir::Dims parallel) {
    return NewNode(item, Group(std::move(parallel)));
  }
  // Returns the node of which `node` is now a part.
  int Find(int node) const {
    while (nodes_[node].merged_into >= 0) node = nodes_[node].merged_into;
    return node;
  }
  Group& group(int node) { return groups_[nodes_[node].group]; }

  // Records that `node` reads the value from memory.
  void AddMemoryReader(int v, int node) {
    const std::optional<Value::Subview>& subview = value(v).subview;
    if (subview) AddMemoryReader(subview->whole, node);
    memory_readers_[v].insert(node);
  }
  // Records that the group `node` reads its values. Entries may become stale, so GroupReaders
  // checks again whether the group still reads a value.
  void NoteReads(int node) {
    for (int v : group(node).ValuesRead()) {
      group_readers_[v].insert(node);
      if (value(v).subview) AddMemoryReader(value(v).subview->whole, node);
    }
    group(node).ForEachShiftValue([&](int v) { AddMemoryReader(v, node); });
  }
  std::vector<int> GroupReaders(int v) {
    std::set<int> found;
    for (int node : group_readers_[v])
      if (group(Find(node)).Reads(v)) found.insert(Find(node));
    return {found.begin(), found.end()};
  }
  std::set<int> MemoryReaders(int v) {
    std::set<int> found;
    for (int node : memory_readers_[v]) found.insert(Find(node));
    return found;
  }
  void AddLabel(int node, int label) {
    std::vector<int>& labels = nodes_[node].labels;
    if (std::find(labels.begin(), labels.end(), label) == labels.end()) labels.push_back(label);
  }

  // ---- Order. ----

  void AddEdge(int first, int second) {
    if (first != second) order_.AddEdge(first, second);
  }
  // Orders the nodes that read the value after `node`, which writes it, and forgets these readers.
  void OrderReadersAfter(int v, int node) {
    for (int reader : GroupReaders(v)) AddEdge(node, reader);
    for (int reader : MemoryReaders(v)) AddEdge(node, reader);
    group_readers_.erase(v);
    memory_readers_.erase(v);
  }
  bool IsRead(int v) { return !MemoryReaders(v).empty() || !GroupReaders(v).empty(); }

  // ---- Items. ----

  // Handles one item: by fusion, if its kind allows it, or else as a node that becomes one step.
  // Items whose results nobody reads are dropped, except collectives and items that contain
  // collectives, which all devices must run in the same order. Every node is ordered before the
  // readers of its results, and collectives among themselves.
  void Visit(int index) {
    const Item& item = items_[index];
    const bool is_read =
        std::any_of(item.results.begin(), item.results.end(), [&](int v) { return IsRead(v); });
    if (!is_read && !IsOrdered(item)) return;  // dead code
    if (const auto* scalar = std::get_if<ScalarItem>(&item.what)) return VisitScalar(item, *scalar);
    if (const auto* view = std::get_if<ViewItem>(&item.what)) return VisitView(item, *view);
    if (const auto* reduce = std::get_if<ReduceItem>(&item.what)) return VisitReduce(item, *reduce);
    if (const auto* pieces = std::get_if<PiecesItem>(&item.what)) return VisitPieces(item, *pieces);
    if (std::holds_alternative<BarrierItem>(item.what)) return VisitBarrier(item, index);
    if (const auto* scan = std::get_if<ScanItem>(&item.what)) return VisitScan(item, *scan);
    if (const auto* update = std::get_if<UpdateItem>(&item.what)) return VisitUpdate(item, *update);
    const int node = NewNode(index, item.label);
    for (int v : item.results) OrderReadersAfter(v, node);
    if (IsOrdered(item)) {
      if (first_ordered_ >= 0) AddEdge(node, first_ordered_);
      first_ordered_ = node;
    }
    if (const auto* contract = std::get_if<ContractItem>(&item.what)) {
      VisitContraction(item, *contract, node);
      return;
    }
    for (int v : item.operands) AddMemoryReader(v, node);
    ForEachBlock(item, [&](const Block& block) {
      std::set<int> outside;
      ValuesFromOutside(block, &outside);
      for (int v : outside) AddMemoryReader(v, node);
    });
    if (std::holds_alternative<LoopItem>(item.what))
      for (int v : item.results) AddMemoryReader(v, node);  // carries are written before the loop
  }

  // Orders the nodes around a barrier, without making a step. A reader of a result reads the
  // operand's memory, but comes after the nodes that write the operands of all results that are
  // read.
  void VisitBarrier(const Item& item, int index) {
    const int node = NewNode(index, item.label);
    for (size_t i = 0; i < item.results.size(); ++i) {
      if (!IsRead(item.results[i])) continue;
      OrderReadersAfter(item.results[i], node);
      AddMemoryReader(item.operands[i], node);
    }
  }

  // Collects the values that a block reads and does not compute.
  void ValuesFromOutside(const Block& block, std::set<int>* values) const {
    const auto reads = [&](const ValueAccess& access) {
      for (const DynamicValueOffset& s : access.shifts) values->insert(s.value);
    };
    for (const Item& item : block.items) {
      values->insert(item.operands.begin(), item.operands.end());
      if (const auto* view = std::get_if<ViewItem>(&item.what)) reads(view->view.access);
      if (const auto* pieces = std::get_if<PiecesItem>(&item.what))
        for (const PiecesItem::Piece& p : pieces->pieces) {
          reads(p.read);
          reads(p.write);
        }
      if (const auto* update = std::get_if<UpdateItem>(&item.what)) reads(update->write);
      ForEachBlock(item, [&](const Block& inner) { ValuesFromOutside(inner, values); });
    }
    for (const auto& [from, to] : block.updates) values->insert(from);
    for (const Item& item : block.items)
      for (int v : item.results) values->erase(v);
  }

  // Returns whether the kernel `node`, which reads the values, can instead compute and write them.
  // It cannot if it needs one of them in memory, or if another reader of one must run before it.
  bool MayWrite(int node, const std::vector<int>& values) {
    for (int v : values) {
      const std::set<int> in_memory = MemoryReaders(v);
      if (in_memory.count(node) > 0) return false;
      for (int other : in_memory)
        if (order_.Precedes(other, node)) return false;
      for (int other : GroupReaders(v))
        if (other != node && order_.Precedes(other, node)) return false;
    }
    return true;
  }

  // Returns whether the kernel may grow by these numbers of nodes and reads, and by this weight. A
  // kernel whose own item is heavier than the limit may still take items without weight.
  bool HasRoom(int node, int nodes, int reads, int weight = 0) {
    return group(node).num_nodes() + nodes <= Group::kNodesMax &&
           group(node).num_reads() + reads <= Group::kReadsMax &&
           (weight == 0 || group(node).weight() + weight <= Group::kWeightMax);
  }

  void FuseScalarInto(int node, const Item& item, const ScalarItem& scalar) {
    std::vector<std::vector<std::pair<int, int>>> reads;  // grouped by access
    for (size_t r = 0; r < item.results.size(); ++r)
      for (int read : group(node).MergedReadsOf(item.results[r])) {
        const auto same = std::find_if(reads.begin(), reads.end(), [&](const auto& others) {
          return group(node).access(others[0].first) == group(node).access(read);
        });
        if (same == reads.end()) {
          reads.push_back({{read, static_cast<int>(r)}});
        } else {
          same->emplace_back(read, static_cast<int>(r));
        }
      }
    for (const auto& list : reads)
      group(node).FuseScalarProducer(list, scalar, item.operands, lowered_.values);
    AddLabel(node, item.label);
    NoteReads(node);
  }

  // Returns from how many elements in memory the value is read. A view counts as its operand, if
  // the operand has fewer elements.
  int64_t ElementsRead(int v) const {
    const auto producer = view_operand_.find(v);
    return producer == view_operand_.end()
               ? value(v).elements
               : std::min(value(v).elements, ElementsRead(producer->second));
  }

  // Fuses an elementwise item into its readers, or stores it. It is computed by its only reader or,
  // if it is cheap, by each reader, because recomputing then costs less than writing the result to
  // memory and reading it back. Readers are merged first, since one kernel that computes the item
  // once is better than several that do. If a reader needs the result in memory, or a kernel would
  // grow too large, the item is stored (StoreScalar).
  void VisitScalar(const Item& item, const ScalarItem& scalar) {
    MergeReaders(item);
    const int64_t elements = value(item.results[0]).elements;
    const int weight = ir::WeightOf(scalar.graph);
    std::set<int> readers;
    bool has_memory_reader = false;
    for (int v : item.results) {
      for (int node : GroupReaders(v)) readers.insert(node);
      has_memory_reader |= !MemoryReaders(v).empty();
    }
    int instances = 0;
    bool may_repeat = false, has_room = true;
    for (int node : readers) {
      std::set<std::vector<int64_t>> accesses;
      for (int v : item.results)
        for (int read : group(node).MergedReadsOf(v)) {
          const ValueAccess& a = group(node).access(read);
          std::vector<int64_t> key = a.strides;
          key.push_back(a.offset);
          for (const DynamicValueOffset& s : a.shifts) {
            key.insert(key.end(), {s.value, s.max, s.stride, s.offset});
            key.insert(key.end(), s.strides.begin(), s.strides.end());
          }
          accesses.insert(std::move(key));
          may_repeat |= group(node).MayRepeat(read);
        }
      instances += static_cast<int>(accesses.size());
      has_room &= HasRoom(node, static_cast<int>(accesses.size() * scalar.graph.nodes.size()),
                          static_cast<int>(accesses.size() * item.operands.size()),
                          static_cast<int>(accesses.size()) * weight);
    }
    int large_operands = 0;
    for (int v : std::set<int>(item.operands.begin(), item.operands.end()))
      large_operands += value(v).elements > 1 && ElementsRead(v) * kBroadcastMin > elements;
    const bool is_cheap = elements == 1 ? weight <= kCheapScalarWeight
                                        : weight <= kCheapWeight && large_operands <= 1;
    const bool runs_once = instances == 1 && (!may_repeat || is_cheap);
    if (!has_memory_reader && has_room && (runs_once || is_cheap)) {
      for (int node : readers) FuseScalarInto(node, item, scalar);
      for (int v : item.results) group_readers_.erase(v);
      return;
    }
    StoreScalar(item, scalar, readers);
  }

  // Computes and stores the item's results: in one of its readers, if one reads them densely, or
  // else in a kernel of their own.
  void StoreScalar(const Item& item, const ScalarItem& scalar, const std::set<int>& readers) {
    const int64_t elements = value(item.results[0]).elements;
    const auto fits = [&](int node) {
      bool is_dense = HasRoom(node, static_cast<int>(scalar.graph.nodes.size()),
                              static_cast<int>(item.operands.size()), ir::WeightOf(scalar.graph));
      for (int v : item.results) {
        const std::vector<int> reads = group(node).MergedReadsOf(v);
        is_dense &= reads.size() <= 1;
        for (int read : reads) is_dense &= group(node).IsDenseRead(read, elements);
      }
      return is_dense && MayWrite(node, item.results);
    };
    const auto reader = std::find_if(readers.begin(), readers.end(), fits);
    const int writer = reader != readers.end() ? *reader : NewGroup(item, {elements});
    Group& g = group(writer);
    std::vector<std::pair<int, int>> stored;  // pairs of a read and its value
    for (int v : item.results) {
      bool has_other_readers = !MemoryReaders(v).empty();
      for (int node : GroupReaders(v)) has_other_readers |= node != writer;
      if (!has_other_readers) continue;
      const int read = g.AddRead(value(v), v, DenseAccess(g.box(), g.num_parallel()));
      stored.emplace_back(read, v);
    }
    FuseScalarInto(writer, item, scalar);
    for (const auto& [read, v] : stored)
      g.AddStore(read, v, DenseAccess(g.box(), g.num_parallel()));
    for (int v : item.results) OrderReadersAfter(v, writer);
  }

  // Lets the readers of a view read its operand instead. Each reading kernel or matmul does so if
  // the accesses compose. A gather is fused only into a single read, since its elements lie far
  // apart and are better gathered once. If some reader needs the value in memory, a kernel stores
  // it. The other readers then read it too, unless the operand is smaller than the view, as it is
  // for a broadcast.
  void VisitView(const Item& item, const ViewItem& view) {
    const int result = item.results[0];
    const int operand = item.operands.empty() ? -1 : item.operands[0];
    bool needed = false;  // whether the result is needed in memory
    for (int node : MemoryReaders(result))
      needed |= !FuseViewIntoMatmul(node, result, operand, view);
    const std::vector<int> readers = GroupReaders(result);
    std::vector<int> direct_readers;
    for (int node : readers) {
      bool can_fuse = HasRoom(node, 2, 1);
      for (int read : group(node).MergedReadsOf(result))
        can_fuse &= group(node).CanFuseView(read, view);
      if (can_fuse) direct_readers.push_back(node);
    }
    // If several reads need the values, they are gathered once and stored.
    if (IsGather(view.view.access) &&
        std::any_of(direct_readers.begin(), direct_readers.end(), [&](int node) {
          const std::vector<int> reads = group(node).MergedReadsOf(result);
          return readers.size() > 1 || reads.size() > 1 || group(node).MayRepeat(reads[0]);
        }))
      direct_readers.clear();
    needed |= direct_readers.size() != readers.size();
    // A value that is stored anyway is read from memory, unless its source is smaller.
    const bool operand_is_smaller = operand < 0 || value(operand).elements < value(result).elements;
    for (int node : direct_readers) {
      if (needed && !operand_is_smaller) continue;
      for (int read : group(node).MergedReadsOf(result)) {
        if (group(node).FuseViewProducer(read, view, operand, lowered_.values)) continue;
        needed = true;
      }
      AddLabel(node, item.label);
      NoteReads(node);
    }
    if (!needed) {
      group_readers_.erase(result);
      memory_readers_.erase(result);
      return;
    }
    const int node = NewGroup(item, view.view.shape);
    Materialize(node, result, [&](int read) { FuseBoxView(node, read, view, operand); });
  }

  // Makes the group `node` store `v` densely. `fuse` replaces the read of `v` by its computation.
  void Materialize(int node, int v, const std::function<void(int)>& fuse) {
    Group& g = group(node);
    const int read = g.AddRead(value(v), v, DenseAccess(g.box(), g.num_parallel()));
    fuse(read);
    g.AddStore(read, v, DenseAccess(g.box(), g.num_parallel()));
    NoteReads(node);
    OrderReadersAfter(v, node);
  }

  // Fuses the reduction into the first group that reads its result and can take it. If there is no
  // such group, the reduction becomes a group of its own.
  void VisitReduce(const Item& item, const ReduceItem& reduce) {
    MergeReaders(item);
    const int result = item.results[0], operand = item.operands[0];
    const std::vector<int> readers = GroupReaders(result);
    for (int node : readers) {
      const bool is_only_reader =
          readers.size() == 1 && MemoryReaders(result).empty();  // needs no store
      if (!is_only_reader && !MayWrite(node, {result})) continue;
      const std::vector<int> reads = group(node).MergedReadsOf(result);
      if (reads.size() != 1 || !HasRoom(node, 4, 1) ||
          !group(node).FuseReduceProducer(reads[0], reduce, operand, lowered_.values))
        continue;
      if (!is_only_reader)
        group(node).AddStore(reads[0], result,
                             DenseAccess(group(node).box(), group(node).num_parallel()));
      AddLabel(node, item.label);
      NoteReads(node);
      OrderReadersAfter(result, node);
      return;
    }
    const int node = NewGroup(item, {reduce.box.begin(), reduce.box.end() - reduce.num_reduced});
    Materialize(node, result, [&](int read) {
      TESSERA_CHECK(group(node).FuseReduceProducer(read, reduce, operand, lowered_.values))
          << "a reduction does not fit its own kernel";
    });
  }

  void VisitPieces(const Item& item, const PiecesItem& pieces) {
    const int result = item.results[0];
    int later_node = -1;
    std::vector<int> nodes;
    for (auto piece = pieces.pieces.rbegin(); piece != pieces.pieces.rend(); ++piece) {
      const int node = NewGroup(item, piece->box);
      Group& g = group(node);
      const int operand = piece->operand < 0 ? -1 : item.operands[piece->operand];
      const int read = g.AddRead(value(result), result, DenseAccess(g.box(), g.num_parallel()));
      const ViewItem view{{piece->box, piece->read}};
      g.AddStore(read, result, piece->write);
      FuseBoxView(node, read, view, operand);
      NoteReads(node);
      if (later_node >= 0) AddEdge(node, later_node);
      later_node = node;
      nodes.push_back(node);
    }
    std::set<int> readers = MemoryReaders(result);
    for (int node : GroupReaders(result)) readers.insert(node);
    for (int node : nodes)
      for (int reader : readers)
        if (std::find(nodes.begin(), nodes.end(), reader) == nodes.end()) AddEdge(node, reader);
    group_readers_.erase(result);
    memory_readers_.erase(result);
  }

  // ---- Scans and updates. ----

  // Makes a kernel that scans. Floats are added and multiplied in f64, and each result is rounded
  // once, as in the reference evaluator.
  void VisitScan(const Item& item, const ScanItem& scan) {
    const int result = item.results[0], operand = item.operands[0];
    const int node = NewNode(item, Group(scan.box, 1));
    Group& g = group(node);
    const ViewItem view{{scan.box, scan.access}};
    const int read = AddBoxRead(node, result, view, operand);
    const ir::DType dtype = value(result).dtype;
    g.AddStore(
        g.AddScan(read, scan.kind, ir::IsFloat(dtype) ? ir::DType::kF64 : ir::ComputeDType(dtype)),
        result, scan.access);
    NoteReads(node);
    OrderReadersAfter(result, node);
  }

  // Makes copies of the operands, and then the scan that updates them.
  void VisitUpdate(const Item& item, const UpdateItem& update) {
    const int node =
        NewNode(item, Group(update.box, static_cast<int>(update.box.size()) - update.num_parallel));
    Group& g = group(node);
    std::vector<std::pair<int, int>> roots;
    for (size_t k = 0; k < item.results.size(); ++k) {
      const int root = g.AddRead(value(update.updates[k]), update.updates[k],
                                 DenseAccess(update.box, static_cast<int>(update.box.size())));
      g.AddStore(root, item.results[k], update.write);
      roots.emplace_back(root, static_cast<int>(k));
    }
    std::vector<int> inputs;
    for (const UpdateItem::Input& input : update.inputs) inputs.push_back(input.value);
    g.FuseScalarProducer(roots, {update.graph}, inputs, lowered_.values);
    for (const UpdateItem::Input& input : update.inputs) {
      const int operand =
          input.result >= 0 ? item.results[input.result] : item.operands[input.operand];
      for (const int read : g.MergedReadsOf(input.value))
        FuseBoxView(node, read, {{update.box, input.access}}, operand);
    }
    NoteReads(node);
    for (size_t k = 0; k < item.results.size(); ++k)
      CopyForUpdate(item, item.operands[k], item.results[k], node);
  }

  // Copies the operand to the result, which the group `node` then updates.
  void CopyForUpdate(const Item& item, int operand, int result, int node) {
    const int64_t elements = value(result).elements;
    const int copy = NewGroup(item, ir::Dims{elements});
    nodes_[copy].copies_for_update = true;
    const ViewItem all{{{elements}, {0, {1}, {}}}};
    group(copy).AddStore(AddBoxRead(copy, result, all, operand), result, all.view.access);
    NoteReads(copy);
    AddEdge(copy, node);
    std::set<int> readers = MemoryReaders(result);
    for (int reader : GroupReaders(result)) readers.insert(reader);
    readers.erase(node);
    for (int reader : readers) AddEdge(node, reader);
    group_readers_.erase(result);
    memory_readers_.erase(result);
  }

  // Adds a read of `v` over the whole box, and replaces it by a read of `operand` through the
  // `view`.
  int AddBoxRead(int node, int v, const ViewItem& view, int operand) {
    const ir::Dims& box = group(node).box();
    const int read =
        group(node).AddRead(value(v), v, DenseAccess(box, static_cast<int>(box.size())));
    FuseBoxView(node, read, view, operand);
    return read;
  }
  // Fuses a view over the group's own box, which always composes.
  void FuseBoxView(int node, int read, const ViewItem& view, int operand) {
    TESSERA_CHECK(group(node).FuseViewProducer(read, view, operand, lowered_.values))
        << "a view does not compose with its own box";
  }

  // ---- Matmuls. ----

  void VisitContraction(const Item& item, const ContractItem& contract, int node) {
    MatmulOperands operands(contract, item.operands);
    while (const std::optional<int> operand = operands.OperandToPack()) {
      const int source = operands.value(*operand);
      const int copy = static_cast<int>(lowered_.values.size());
      const ViewItem view{operands.Pack(*operand, copy)};
      Value packed;
      packed.dtype = value(source).dtype;
      packed.elements = NumElements(view.view.shape);
      lowered_.values.push_back(packed);
      AddMemoryReader(copy, node);
      const int pack_node = NewGroup(item, view.view.shape);
      Materialize(pack_node, copy, [&](int read) { FuseBoxView(pack_node, read, view, source); });
    }
    for (int operand : {0, 1}) AddMemoryReader(operands.value(operand), node);
    matmuls_.emplace(node, std::move(operands));
  }

  // Makes a matmul read `operand` directly instead of `v`, which is a view of `operand`. Returns
  // whether the matmul can do that.
  bool FuseViewIntoMatmul(int node, int v, int operand, const ViewItem& view) {
    const auto found = matmuls_.find(node);
    if (found == matmuls_.end() || operand < 0) return false;
    if (!found->second.FuseView(v, operand, view.view)) return false;
    memory_readers_[v].erase(node);
    AddMemoryReader(operand, node);
    return true;
  }

  // ---- Sharing. ----

  // Merges the kernels that read the item's results, so that the results need not be stored.
  void MergeReaders(const Item& item) {
    for (int v : item.results) MergeAll(GroupReaders(v));
  }

  // Merges kernels that read the same large values from memory.
  void ShareReads() {
    std::map<int, std::set<int>> by_value;
    for (int i = 0; i < static_cast<int>(nodes_.size()); ++i) {
      if (nodes_[i].group < 0 || nodes_[i].merged_into >= 0) continue;
      for (int v : group(i).ValuesRead())
        if (value(v).elements >= kSharedElementsMin) by_value[v].insert(i);
    }
    for (const auto& [v, all] : by_value) {
      std::vector<int> readers;
      for (int node : all)
        if (std::find(readers.begin(), readers.end(), Find(node)) == readers.end())
          readers.push_back(Find(node));
      MergeAll(std::move(readers), /*may_keep_longer=*/false);
    }
  }

  // Returns whether merging two kernels would keep large values in memory for long, because the
  // earlier kernel would then store what the later one stores now. Nodes are numbered from the last
  // to the first.
  bool KeepsLargeValuesLonger(int a, int b) {
    const int later = std::min(a, b);
    if (std::abs(a - b) < kKeptStepsMin) return false;
    int64_t bytes = 0;
    for (int v : group(later).ValuesStored())
      bytes += value(v).elements * ir::ByteWidth(value(v).dtype);
    return bytes >= kKeptBytesMin;
  }

  // Merges as many of the first kMergedMax kernels as possible. If `may_keep_longer` is false,
  // leaves out merges for which KeepsLargeValuesLonger is true.
  void MergeAll(std::vector<int> kernels, bool may_keep_longer = true) {
    if (kernels.size() > kMergedMax) kernels.resize(kMergedMax);
    for (size_t a = 0; a < kernels.size(); ++a)
      for (size_t b = a + 1; b < kernels.size();) {
        if ((may_keep_longer || !KeepsLargeValuesLonger(kernels[a], kernels[b])) &&
            TryMerge(kernels[a], kernels[b])) {
          kernels.erase(kernels.begin() + b);
        } else {
          ++b;
        }
      }
  }

  // Merges the kernel `b` into `a`, if possible.
  bool TryMerge(int a, int b) {
    if (nodes_[a].group < 0 || nodes_[b].group < 0 || a == b) return false;
    if (nodes_[a].copies_for_update || nodes_[b].copies_for_update) return false;
    if (order_.Precedes(a, b) || order_.Precedes(b, a)) return false;
    if (!group(a).PrepareMerge(&group(b))) return false;
    group(a).Merge(group(b));
    nodes_[b].merged_into = a;
    order_.Merge(b, a);
    for (int label : nodes_[b].labels) AddLabel(a, label);
    NoteReads(a);
    return true;
  }

  // ---- Steps. ----

  std::vector<Step> OrderedSteps() {
    std::vector<int> num_waits(nodes_.size(), 0);  // how many nodes each node waits for
    for (size_t i = 0; i < nodes_.size(); ++i)
      for (int after : order_.next(static_cast<int>(i))) ++num_waits[after];
    // Nodes were made from the last item to the first. So of the nodes that are ready, the one with
    // the highest number comes next.
    std::priority_queue<int> ready;
    int left = 0;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].merged_into >= 0) continue;
      ++left;
      if (num_waits[i] == 0) ready.push(static_cast<int>(i));
    }
    std::vector<Step> steps;
    while (!ready.empty()) {
      const int node = ready.top();
      ready.pop();
      --left;
      AddStep(node, &steps);
      for (int after : order_.next(node))
        if (--num_waits[after] == 0) ready.push(after);
    }
    TESSERA_CHECK_EQ(left, 0) << "steps wait for each other";
    return steps;
  }

  // Appends the step of the node, if it has one.
  void AddStep(int node, std::vector<Step>* steps) {
    const Node& n = nodes_[node];
    if (n.group < 0 && n.item == kNoItem) return;
    if (n.item != kNoItem && std::holds_alternative<BarrierItem>(items_[n.item].what)) return;
    Step step;
    step.fused_labels = n.labels;
    std::sort(step.fused_labels.begin(), step.fused_labels.end());
    step.label = step.fused_labels.empty() ? 0 : step.fused_labels[0];
    if (n.group >= 0) {
      Group::BuiltKernel built = group(node).Build(lowered_.values, lowered_.constants);
      if (IsCopy(built)) {
        // Takes the params from the load and the store, because in a scan written params precede
        // the params that are read.
        step.what = CopyStep{built.values[built.kernel.nodes[0].param],
                             built.values[built.kernel.stores[0].param]};
      } else {
        step.what = KernelStep{kernels_.Add(std::move(built.kernel)), std::move(built.values)};
      }
    } else {
      step.what = StepOf(items_[n.item], node);
    }
    steps->push_back(std::move(step));
  }

  bool IsCopy(const Group::BuiltKernel& built) const {
    const codegen::Kernel& k = built.kernel;
    if (k.nodes.size() != 1 || k.stores.size() != 1 || built.values.size() != 2) return false;
    if (k.nodes[0].kind != codegen::Node::Kind::kLoad || !(k.nodes[0].access == k.stores[0].access))
      return false;
    // In normal form, an access to a whole value in order has one dim.
    const int64_t n = value(built.values[0]).elements;
    return n == value(built.values[1]).elements && k.num_elements() == n &&
           k.nodes[0].access.shifts.empty() && k.nodes[0].access.offset == 0 && k.rank() <= 1;
  }

  // Makes the step of an item that is no kernel. The step refers to values, which Assign replaces
  // by slots. The blocks of a loop or of branches are fused here, each on its own, since no kernel
  // reaches across the border of a block.
  decltype(Step::what) StepOf(Item& item, int node) {
    if (auto* collective = std::get_if<CollectiveItem>(&item.what)) {
      CollectiveStep step = collective->step;
      step.in = item.operands[0];
      step.out = item.results[0];
      return step;
    }
    if (auto* position = std::get_if<AxisIndexItem>(&item.what))
      return AxisIndexStep{position->axes, item.results[0]};
    if (auto* sort = std::get_if<SortItem>(&item.what)) {
      std::vector<int> out = item.results;
      const int scratch = out.back();
      out.pop_back();
      return SortStep{sort->shape, item.operands, std::move(out), scratch};
    }
    if (auto* host = std::get_if<HostItem>(&item.what))
      return HostStep{host->function, item.operands, item.results, host->is_long,
                      std::move(host->sort)};
    if (std::holds_alternative<CopyItem>(item.what))
      return CopyStep{item.operands[0], item.results[0]};
    if (std::holds_alternative<ContractItem>(item.what))
      return matmuls_.at(node).MakeStep(lowered_.values, item.results[0]);
    if (auto* branch = std::get_if<BranchItem>(&item.what)) {
      BranchStep step{item.operands[0], {}};
      for (Block& block : branch->branches) step.branches.push_back(StepsOf(block, item.label));
      return step;
    }
    LoopItem& loop = std::get<LoopItem>(item.what);
    return LoopStep{loop.number, loop.trip_count, item.operands.empty() ? -1 : item.operands[0],
                    StepsOf(loop.body, item.label)};
  }

  // Returns the steps of a block that belongs to an item with this label.
  std::vector<Step> StepsOf(Block& block, int label) {
    std::vector<int> kept;
    for (const auto& [from, to] : block.updates) kept.push_back(from);
    std::vector<Step> steps = BlockFuser(&lowered_, block.items, &kernels_).Run(kept);
    for (const auto& [from, to] : block.updates) {
      Step copy;
      copy.label = label;
      copy.fused_labels = {label};
      copy.what = CopyStep{from, to};
      steps.push_back(std::move(copy));
    }
    return steps;
  }

  LoweredFunction& lowered_;
  std::vector<Item>& items_;
  KernelTable& kernels_;
  std::vector<Node> nodes_;
  PartialOrder order_;        // order of the nodes
  std::deque<Group> groups_;  // a deque, since references must stay valid
  // By value: the nodes of groups that read the value, into which its producer can be fused, and
  // the nodes that need the value in memory.
  std::map<int, std::set<int>> group_readers_, memory_readers_;
  std::map<int, int> view_operand_;  // the operand of each view
  std::map<int, MatmulOperands> matmuls_;
  int first_ordered_ = -1;
};

}  // namespace

int KernelTable::Add(codegen::Kernel kernel) {
  const auto [it, is_new] =
      by_text_.try_emplace(kernel.ToString(), static_cast<int>(kernels_.size()));
  if (is_new) kernels_.push_back(std::move(kernel));
  return it->second;
}

FusedFunction Fuse(LoweredFunction* lowered) {
  FusedFunction fused;
  fused.steps = BlockFuser(lowered, lowered->items, &fused.kernels).Run(lowered->result_values);
  // Replaces a result of a barrier by the value in front of the barrier.
  const auto skip_barrier = [&](int& v) {
    if (lowered->values[v].same_as >= 0) v = lowered->values[v].same_as;
  };
  ForEachStep(fused.steps, [&](Step& step) {
    ForEachSlot(step, fused.kernels.kernels(), skip_barrier, skip_barrier);
  });
  for (int& v : lowered->result_values) skip_barrier(v);
  for (Value& v : lowered->values)
    if (v.subview) skip_barrier(v.subview->whole);
  return fused;
}

}  // namespace tessera::worker::program
