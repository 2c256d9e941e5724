// BlockLoops: rewrites kernels that transpose, so that both sides of the transposition use whole
// cache lines. program_run.cc calls it for every kernel of a program before the kernels are
// compiled.
#include "worker/cpu/loop_blocking.h"

#include <cstdlib>
#include <utility>
#include <vector>

#include "worker/program/access.h"

namespace tessera::worker {
namespace {

using codegen::Access;
using codegen::Kernel;
using codegen::Node;

// The operands of a kernel with fewer elements fit into the cache, so blocks would not help.
constexpr int64_t kBlockedElementsMin = 1 << 15;
constexpr int64_t kLineElements = 16;  // number of f32s in a cache line
constexpr int64_t kLoopBlockRows = 8, kLoopBlockColumns = 64;
// Blocks smaller than this are not worth their loops.
constexpr int64_t kLoopBlockSizeMin = 4;

std::vector<Access*> AccessesOf(Kernel* kernel) {
  std::vector<Access*> all;
  for (Node& node : kernel->nodes)
    if (node.kind == Node::Kind::kLoad || node.kind == Node::Kind::kIndex)
      all.push_back(&node.access);
  for (codegen::Store& store : kernel->stores) all.push_back(&store.access);
  return all;
}

// Returns the last dim along which the access is contiguous for at least a cache line, or -1.
int ContiguousDim(const Kernel& kernel, const Access& access) {
  for (int d = kernel.num_parallel() - 1; d >= 0; --d)
    if (kernel.shape[d] >= kLineElements && std::abs(access.strides[d]) == 1) return d;
  return -1;
}

// Returns the largest divisor of `size` that is at most `max`.
int64_t LargestDivisor(int64_t size, int64_t max) {
  while (size % max != 0) --max;
  return max;
}

// Splits dim d into (size / inner, inner), and moves the second part to the end of the parallel
// dims.
void SplitAndMove(int d, int64_t inner, Kernel* kernel) {
  const int last = kernel->num_parallel() - 1;
  const auto replace = [&](ir::Dims* list, int64_t outer_entry, int64_t inner_entry) {
    (*list)[d] = outer_entry;
    list->insert(list->begin() + last + 1, inner_entry);
  };
  for (Access* access : AccessesOf(kernel))
    codegen::ForEachStrides(
        *access, [&](ir::Dims& strides) { replace(&strides, strides[d] * inner, strides[d]); });
  replace(&kernel->shape, kernel->shape[d] / inner, inner);
}

}  // namespace

Kernel BlockLoops(Kernel kernel) {
  if (kernel.num_reduced > 0 || kernel.num_elements() < kBlockedElementsMin) return kernel;
  const int column_dim = ContiguousDim(kernel, kernel.stores[0].access);
  if (column_dim < 0) return kernel;
  int row_dim = -1;
  for (const Node& node : kernel.nodes) {
    if (node.kind != Node::Kind::kLoad) continue;
    const int dim = ContiguousDim(kernel, node.access);
    if (dim >= 0 && dim != column_dim && std::abs(node.access.strides[column_dim]) >= kLineElements)
      row_dim = dim;
  }
  if (row_dim < 0) return kernel;
  const int64_t block_rows = LargestDivisor(kernel.shape[row_dim], kLoopBlockRows);
  const int64_t block_columns = LargestDivisor(kernel.shape[column_dim], kLoopBlockColumns);
  if (block_rows < kLoopBlockSizeMin || block_columns < kLoopBlockSizeMin) return kernel;
  SplitAndMove(row_dim, block_rows, &kernel);
  SplitAndMove(column_dim, block_columns, &kernel);
  return kernel;
}

}  // namespace tessera::worker
