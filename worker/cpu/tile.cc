#include "worker/cpu/tile.h"

#include <cstdlib>
#include <utility>
#include <vector>

#include "worker/program/access.h"

namespace tessera::worker {
namespace {

using codegen::Access;
using codegen::Kernel;
using codegen::Node;

// Smaller ones lie in the cache anyway.
constexpr int64_t kTiledElements = 1 << 15;
// A cache line of the narrowest numbers that matter, of f32.
constexpr int64_t kLine = 16;
constexpr int64_t kTileRows = 8, kTileColumns = 64;

std::vector<Access*> AccessesOf(Kernel* kernel) {
  std::vector<Access*> all;
  for (Node& node : kernel->nodes)
    if (node.kind == Node::Kind::kLoad || node.kind == Node::Kind::kIndex)
      all.push_back(&node.access);
  for (codegen::Store& store : kernel->stores) all.push_back(&store.access);
  return all;
}

// The dim along which the access walks from element to element, or -1.
int Along(const Kernel& kernel, const Access& access) {
  for (int d = kernel.num_parallel() - 1; d >= 0; --d)
    if (kernel.shape[d] >= kLine && std::abs(access.strides[d]) == 1) return d;
  return -1;
}

// The largest divisor of `size` that is at most `max`.
int64_t Divisor(int64_t size, int64_t most) {
  while (size % most != 0) --most;
  return most;
}

// Cuts dim d in two, (size / inner, inner), and moves the second to the end of the kept dims.
void CutAndMove(int d, int64_t inner, Kernel* kernel) {
  const int last = kernel->num_parallel() - 1;
  const auto move = [&](ir::Dims* list, int64_t outer, int64_t minor) {
    (*list)[d] = outer;
    list->insert(list->begin() + last + 1, minor);
  };
  for (Access* access : AccessesOf(kernel))
    move(&access->strides, access->strides[d] * inner, access->strides[d]);
  move(&kernel->shape, kernel->shape[d] / inner, inner);
}

}  // namespace

Kernel Tiled(Kernel kernel) {
  if (kernel.num_reduced > 0 || kernel.num_elements() < kTiledElements) return kernel;
  const int columns = Along(kernel, kernel.stores[0].access);
  if (columns < 0) return kernel;
  int rows = -1;
  for (const Node& node : kernel.nodes) {
    if (node.kind != Node::Kind::kLoad) continue;
    const int along = Along(kernel, node.access);
    if (along >= 0 && along != columns && std::abs(node.access.strides[columns]) >= kLine)
      rows = along;
  }
  if (rows < 0) return kernel;
  const int64_t tile_rows = Divisor(kernel.shape[rows], kTileRows);
  const int64_t tile_columns = Divisor(kernel.shape[columns], kTileColumns);
  if (tile_rows < 4 || tile_columns < 4) return kernel;
  CutAndMove(rows, tile_rows, &kernel);
  CutAndMove(columns, tile_columns, &kernel);
  return kernel;
}

}  // namespace tessera::worker
