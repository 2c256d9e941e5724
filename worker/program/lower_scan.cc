// Lowers scans (cumulative ops) and scatters, which both become kernels that go through some dims
// in order. Where the backend has no such kernels, or the scanned dims are too long, the op is left
// to the host.
#include <algorithm>

#include "worker/program/lowerer.h"

namespace tessera::worker::program {
namespace {

using ir::Dims;

// The largest weight of a computation that a thread may scan over ir::kScannedMax elements. For a
// heavier computation the limit of the elements is lower by the same factor.
constexpr int64_t kScannedWeight = 16;

}  // namespace

bool Lowerer::HasScan(const OpContext& ctx) const {
  if (options_.has_scan == nullptr) return false;
  const ir::ScanSize size = ir::ScanSizeOf(ctx.f, ctx.op);
  return ir::HasCode(size) && options_.has_scan(size);
}

std::optional<std::vector<int>> Lowerer::LowerScan(const OpContext& ctx) {
  const ir::Type& x = ctx.in(0);
  if (!HasScan(ctx) || x.shape.size() > kGroupDimsMax) return std::nullopt;
  const auto dim = static_cast<int>(ctx.op.attrs.Int("dimension"));
  const bool reverse = ctx.op.attrs.Bool("reverse");
  const Dims strides = ir::StridesOf(x.shape);
  ScanItem item;
  item.kind = ctx.def().reduce;
  item.box = x.shape;
  item.access.strides = strides;
  for (Dims* dims : {&item.box, &item.access.strides})
    std::rotate(dims->begin() + dim, dims->begin() + dim + 1, dims->end());
  if (reverse) {
    item.access.offset = (x.shape[dim] - 1) * strides[dim];
    item.access.strides.back() = -strides[dim];
  }
  const int result = NewValue(ctx.out(0));
  Add({ctx.operands[0]}, {result}, std::move(item));
  return std::vector<int>{result};
}

// Lowers a scatter to updates of a copy of each operand. The updates are scanned in the order of
// their positions, and the dims that no index moves are parallel. The result therefore has the
// evaluator's bits for any number of threads. If the op drops updates outside of the bounds, such
// an update writes the old element back. An old element is read only if it is combined or may be
// written back.
std::optional<std::vector<int>> Lowerer::LowerScatter(const OpContext& ctx) {
  const size_t n = ctx.op.results.size();  // operands, then the indices, then as many updates
  if (ctx.in(static_cast<int>(n) + 1).num_elements() == 0)
    return std::vector<int>(ctx.operands.begin(), ctx.operands.begin() + n);
  std::optional<ir::ScalarGraph> computation;
  if (ir::HasComputation(ctx.def())) {
    computation = ComputationOf(ctx);
    if (!computation) return std::nullopt;
  }
  const bool combines = computation || ctx.def().reduce != ir::ReduceKind::kNone;
  const Carrier carrier = CarrierOf(ctx.out(0).dtype);
  if (!HasScan(ctx) || (combines && carrier.dtype != ctx.out(0).dtype)) return std::nullopt;
  const std::vector<ir::Type> in = ctx.in_types();
  ir::ScatterMap map =
      ctx.def().scatter_map({ctx.def(), ctx.f.scope, in, ctx.op.attrs, ctx.op.regions});
  AddCarrierDim(carrier.carriers_per_element, &map);
  if (map.num_parallel == static_cast<int>(map.shape.size())) {  // a scan needs a dim to scan
    map.shape.push_back(1);
    map.read.push_back(0);
    map.write.push_back(0);
    for (ir::DynamicOffset& s : map.shifts)
      if (!s.strides.empty()) s.strides.push_back(0);
  }
  if (map.shape.size() > kGroupDimsMax || map.shifts.size() > kShiftsMax) return std::nullopt;
  const Dims scanned(map.shape.begin() + map.num_parallel, map.shape.end());
  const int64_t weight = computation ? ir::WeightOf(*computation) : 0;
  if (NumElements(scanned) > ir::kScannedMax / std::max<int64_t>(1, weight / kScannedWeight))
    return std::nullopt;
  const std::vector<int> results = NewResults(ctx);
  UpdateItem item;
  item.box = map.shape;
  item.num_parallel = map.num_parallel;
  item.write = {0, map.write, ShiftsOf(ctx, map.shifts)};
  const int64_t points = NumElements(item.box);
  GraphBuilder graph;
  const auto add_input = [&](UpdateItem::Input input, ir::DType dtype) {
    input.value = NewValue(dtype, points);
    item.inputs.push_back(std::move(input));
    return graph.Input(static_cast<int>(item.inputs.size()) - 1, dtype);
  };
  std::vector<int> before, updates;
  for (size_t k = 0; k < n && (combines || map.drops); ++k)
    before.push_back(add_input({.result = static_cast<int>(k), .access = item.write},
                               out_.values[results[k]].dtype));
  for (size_t k = 0; k < n; ++k)
    updates.push_back(
        add_input({.operand = static_cast<int>(n + 1 + k), .access = {0, map.read, {}}},
                  out_.values[results[k]].dtype));
  std::vector<int> after = updates;
  if (computation) {
    after = graph.Apply(*computation, Joined({before, updates}));
  } else if (combines) {
    after = {graph.Combine(ctx.def().reduce, before[0], updates[0])};
  }
  int inside = -1;
  for (const ir::DynamicOffset& s : map.shifts) {
    if (!map.drops) break;
    Dims strides = s.strides;
    strides.resize(item.box.size(), 0);
    inside = graph.AndInside(
        inside,
        add_input({.operand = s.operand, .access = {s.offset, std::move(strides), {}}},
                  out_.values[ctx.operands[s.operand]].dtype),
        s.max);
  }
  for (size_t k = 0; k < n && inside >= 0; ++k)
    after[k] = graph.Select(inside, after[k], before[k]);
  item.graph = std::move(graph).WithRoots(after);
  for (int v : results) item.updates.push_back(NewValue(out_.values[v].dtype, points));
  Add(ctx.operands, results, std::move(item));
  return results;
}

// Gives the map another dim if an element is carried by several elements.
void Lowerer::AddCarrierDim(int64_t n, ir::ScatterMap* map) {
  if (n == 1) return;
  const int at = map->num_parallel++;
  const auto insert = [&](Dims* dims, int64_t scale, int64_t entry) {
    for (int64_t& d : *dims) d *= scale;
    dims->insert(dims->begin() + at, entry);
  };
  insert(&map->shape, 1, n);
  insert(&map->read, n, 1);
  insert(&map->write, n, 1);
  for (ir::DynamicOffset& s : map->shifts) {
    s.stride *= n;
    if (!s.strides.empty()) insert(&s.strides, 1, 0);
  }
}

}  // namespace tessera::worker::program
