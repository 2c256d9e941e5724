// The properties of kernels that fusion and the emitters ask for (levels, varying and injective
// accesses, in place), and the normal form. The compilers (host_code.cc, device_code.cc) bring each
// kernel into normal form first and use its text as the key of their caches, so that equal kernels
// are compiled once.
#include "worker/codegen/kernel.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <map>
#include <numeric>
#include <utility>

#include "base/log.h"

namespace tessera::worker::codegen {
namespace {

using ir::ReduceKind;

int64_t Product(const ir::Dims& dims, int begin, int end) {
  int64_t n = 1;
  for (int d = begin; d < end; ++d) n *= dims[d];
  return n;
}

bool HasAccess(const Node& node) {
  return node.kind == Node::Kind::kLoad || node.kind == Node::Kind::kIndex;
}

// ---- Normal form. ------------------------------------------------------------------------------

// Returns a key of everything that the text of a node says. Equal keys mean equal nodes.
std::vector<int64_t> KeyOf(const Node& node) {
  std::vector<int64_t> key = {static_cast<int64_t>(node.kind), static_cast<int64_t>(node.dtype)};
  const auto add_list = [&key](const auto& list) {
    key.push_back(static_cast<int64_t>(list.size()));
    key.insert(key.end(), list.begin(), list.end());
  };
  if (node.kind == Node::Kind::kReduce) key.push_back(static_cast<int64_t>(node.reduce));
  if (node.kind == Node::Kind::kScalar) {
    key.push_back(static_cast<int64_t>(node.prim));
    if (node.prim == ir::ScalarPrim::kConstant)
      key.push_back(ir::IsFloat(node.dtype) ? std::bit_cast<int64_t>(node.value) : node.int_value);
  }
  if (!HasAccess(node)) {
    add_list(node.args);
    return key;
  }
  key.insert(key.end(), {node.param, node.access.offset});
  add_list(node.access.strides);
  for (const DynamicOffset& shift : node.access.shifts) {
    key.insert(key.end(), {shift.param, shift.max, shift.stride, shift.offset});
    add_list(shift.strides);
  }
  return key;
}

// Keeps the nodes that the stores need, in depth-first order from the first store. Equal nodes
// become one node.
class Renumbering {
 public:
  explicit Renumbering(const Kernel& from) : from_(from), new_ids_(from.nodes.size(), -1) {}

  // Returns the new number of a node. It keeps a stack of its own instead of recursing, because
  // chains of nodes may be long.
  int Visit(int root) {
    std::vector<int> stack = {root};
    while (!stack.empty()) {
      const int id = stack.back();
      if (new_ids_[id] >= 0) {
        stack.pop_back();
        continue;
      }
      const Node& node = from_.nodes[id];
      const size_t depth = stack.size();
      for (auto arg = node.args.rbegin(); arg != node.args.rend(); ++arg)
        if (new_ids_[*arg] < 0) stack.push_back(*arg);
      if (stack.size() > depth) continue;
      stack.pop_back();
      new_ids_[id] = Add(node);
    }
    return new_ids_[root];
  }
  std::vector<Node> Take() { return std::move(nodes_); }

 private:
  int Add(Node node) {
    for (int& arg : node.args) arg = new_ids_[arg];
    const auto [it, is_new] = known_.try_emplace(KeyOf(node), static_cast<int>(nodes_.size()));
    if (is_new) nodes_.push_back(std::move(node));
    return it->second;
  }

  const Kernel& from_;
  std::vector<int> new_ids_;
  std::map<std::vector<int64_t>, int> known_;
  std::vector<Node> nodes_;
};

void RenumberNodes(Kernel* kernel) {
  Renumbering renumbering(*kernel);
  for (Store& store : kernel->stores) store.node = renumbering.Visit(store.node);
  kernel->nodes = renumbering.Take();
}

std::vector<Access*> AccessesOf(Kernel* kernel) {
  std::vector<Access*> all;
  for (Node& node : kernel->nodes)
    if (HasAccess(node)) all.push_back(&node.access);
  for (Store& store : kernel->stores) all.push_back(&store.access);
  return all;
}

void DropDim(int d, Kernel* kernel) {
  if (d >= kernel->num_parallel()) --kernel->num_reduced;
  kernel->shape.erase(kernel->shape.begin() + d);
  for (Access* access : AccessesOf(kernel))
    ForEachStrides(*access, [d](ir::Dims& strides) { strides.erase(strides.begin() + d); });
}

// Drops the dims of size 1, except that a kernel with reductions or a scan keeps one reduced dim. A
// kernel without either loses all reduced dims.
void DropUnitDims(Kernel* kernel) {
  const bool reduces = kernel->scans || std::any_of(kernel->nodes.begin(), kernel->nodes.end(),
                                                    [](const Node& node) {
                                                      return node.kind == Node::Kind::kReduce;
                                                    });
  for (int d = kernel->rank() - 1; d >= 0; --d) {
    const bool reduced = d >= kernel->num_parallel();
    if (reduced && !reduces) {
      DropDim(d, kernel);
    } else if (kernel->shape[d] == 1 && !(reduced && kernel->num_reduced == 1)) {
      DropDim(d, kernel);
    }
  }
  // The reduced dim that was kept may have size 1. Accesses then get stride 0 along it.
  if (kernel->num_reduced == 1 && kernel->shape.back() == 1)
    for (Access* access : AccessesOf(kernel))
      ForEachStrides(*access, [](ir::Dims& strides) { strides.back() = 0; });
}

// Drops the strides of shifts that are the same for all points.
void DropZeroStrides(Kernel* kernel) {
  for (Access* access : AccessesOf(kernel))
    for (DynamicOffset& shift : access->shifts)
      if (std::all_of(shift.strides.begin(), shift.strides.end(),
                      [](int64_t stride) { return stride == 0; }))
        shift.strides.clear();
}

bool CanMergeDims(int d, Kernel* kernel) {
  if (d + 1 == kernel->num_parallel()) return false;
  const int64_t inner_size = kernel->shape[d + 1];
  bool can = true;
  for (Access* access : AccessesOf(kernel))
    ForEachStrides(*access, [&](const ir::Dims& strides) {
      int64_t stride;
      can = can && !__builtin_mul_overflow(strides[d + 1], inner_size, &stride) &&
            strides[d] == stride;
    });
  return can;
}

void MergeDims(Kernel* kernel) {
  for (int d = kernel->rank() - 2; d >= 0; --d) {
    if (!CanMergeDims(d, kernel)) continue;
    const int64_t merged = kernel->shape[d] * kernel->shape[d + 1];
    DropDim(d, kernel);
    kernel->shape[d] = merged;
  }
}

}  // namespace

int64_t Kernel::num_elements() const { return Product(shape, 0, rank()); }
int64_t Kernel::num_iterations() const { return Product(shape, 0, num_parallel()); }
int64_t Kernel::num_reduced_elements() const { return Product(shape, num_parallel(), rank()); }

bool VariesOver(const DynamicOffset& shift, int dim) {
  return !shift.strides.empty() && shift.strides[dim] != 0;
}
bool ShiftsVaryOver(const Access& access, int dim) {
  return std::any_of(access.shifts.begin(), access.shifts.end(),
                     [dim](const DynamicOffset& shift) { return VariesOver(shift, dim); });
}
bool VariesOver(const Access& access, int dim) {
  return access.strides[dim] != 0 || ShiftsVaryOver(access, dim);
}
bool VariesOverReduced(const Kernel& kernel, const Access& access) {
  for (int d = kernel.num_parallel(); d < kernel.rank(); ++d)
    if (VariesOver(access, d)) return true;
  return false;
}

// Each term (stride * index) is seen as a digit of the element's number, from the smallest stride
// on. Each of the first `num_dims` dims is a digit of its own, and the other terms between two such
// dims form one digit together. Two numbers differ where the digit of a dim differs, as long as the
// smaller digits together do not reach as far as one step of that digit.
bool IsInjective(const Kernel& kernel, const Access& access, int num_dims) {
  struct Term {
    int64_t stride, max;
    bool is_dim;
  };
  std::vector<Term> terms;
  const auto add = [&](int64_t stride, int64_t max, bool is_dim) {
    if (max > 0 && (is_dim || stride != 0)) terms.push_back({std::abs(stride), max, is_dim});
  };
  for (int d = 0; d < kernel.rank(); ++d) add(access.strides[d], kernel.shape[d] - 1, d < num_dims);
  for (const DynamicOffset& shift : access.shifts)
    if (std::any_of(shift.strides.begin(), shift.strides.end(),
                    [](int64_t stride) { return stride != 0; }))
      add(shift.stride, shift.max, false);
  std::sort(terms.begin(), terms.end(),
            [](const Term& x, const Term& y) { return x.stride < y.stride; });
  int64_t reach = 0;
  for (size_t i = 0; i < terms.size();) {
    size_t end = i + 1;
    int64_t step = terms[i].stride;
    while (!terms[i].is_dim && end < terms.size() && !terms[end].is_dim)
      step = std::gcd(step, terms[end++].stride);
    if (step <= reach) return false;
    for (; i < end; ++i) {
      int64_t more;
      if (__builtin_mul_overflow(terms[i].stride, terms[i].max, &more) ||
          __builtin_add_overflow(reach, more, &reach))
        return false;
    }
  }
  return true;
}

Level LevelOf(const Kernel& kernel, const Node& node, const std::vector<Level>& earlier) {
  if (node.kind == Node::Kind::kReduce) return kernel.scans ? Level::kInner : Level::kAfter;
  if (HasAccess(node) && VariesOverReduced(kernel, node.access)) return Level::kInner;
  if (kernel.scans && node.kind == Node::Kind::kLoad && kernel.params[node.param].output)
    return Level::kInner;
  Level level = Level::kBefore;
  for (int arg : node.args) level = std::max(level, earlier[arg]);
  return level;
}

std::vector<Level> LevelsOf(const Kernel& kernel) {
  std::vector<Level> levels;
  for (const Node& node : kernel.nodes) levels.push_back(LevelOf(kernel, node, levels));
  return levels;
}

Kernel Canonical(const Kernel& kernel) {
  Kernel out = kernel;
  RenumberNodes(&out);
  DropUnitDims(&out);
  DropZeroStrides(&out);
  MergeDims(&out);
  // Nodes have become equal if their accesses differed only along dims that were dropped.
  RenumberNodes(&out);
  return out;
}

bool MayGoInPlace(const Kernel& kernel, int in, int out) {
  const Store* store = nullptr;
  const auto is_shifted_by_in = [&](const Access& access) {
    return std::any_of(access.shifts.begin(), access.shifts.end(),
                       [&](const DynamicOffset& shift) { return shift.param == in; });
  };
  for (const Store& s : kernel.stores) {
    if (s.param == out && store != nullptr) return false;
    if (s.param == out) store = &s;
    if (is_shifted_by_in(s.access)) return false;
  }
  if (store != nullptr && kernel.scans && !IsInjective(kernel, store->access, kernel.rank()))
    return false;
  if (store == nullptr || kernel.params[in].dtype != kernel.params[out].dtype ||
      kernel.params[in].size != kernel.params[out].size)
    return false;
  return std::none_of(kernel.nodes.begin(), kernel.nodes.end(), [&](const Node& node) {
    return is_shifted_by_in(node.access) ||
           (node.kind == Node::Kind::kLoad && node.param == in && !(node.access == store->access));
  });
}

}  // namespace tessera::worker::codegen
