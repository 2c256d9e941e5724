// Lowers ops with regions: calls are inlined, branches and loops become items with blocks. The
// carries of a loop live in the values of its results, so that an iteration can update them in
// place.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_exception.h"
#include "worker/program/lowerer.h"

namespace tessera::worker::program {
namespace {

// The largest depth to which while loops may be nested in the predicates of other while loops.
constexpr int kPredicateDepthMax = 4;

}  // namespace

std::vector<int> Lowerer::LowerRegions(const OpContext& ctx) {
  const ir::DataFlow flow = ir::DataFlowOf(ctx.f, ctx.op);
  if (!flow.manual_axes.empty()) return LowerToHost(ctx);
  if (ctx.def().RoleOf(0) == ir::RegionRole::kBranch) return LowerBranches(ctx, flow);
  if (ctx.def().RoleOf(0) == ir::RegionRole::kPredicate) return LowerWhile(ctx, flow);
  return ir::IsCall(ctx.def(), flow) ? LowerCall(ctx, flow.regions[0], *ctx.op.regions[0])
                                     : LowerLoop(ctx, flow);
}

// Returns the lowered operands in the order of the region's params.
std::vector<int> Lowerer::ArgsOf(const OpContext& ctx, const ir::RegionDataFlow& edges,
                                 const ir::Function& region) {
  std::vector<int> args(region.num_params, -1);
  for (const ir::DataFlowEdge& edge : edges.operands) args[edge.inner] = ctx.operands[edge.outer];
  return args;
}

std::vector<int> Lowerer::LowerCall(const OpContext& ctx, const ir::RegionDataFlow& edges,
                                    const ir::Function& region) {
  const std::vector<int> inner = LowerFunction(region, ArgsOf(ctx, edges, region));
  std::vector<int> results(ctx.op.results.size(), -1);
  for (const ir::DataFlowEdge& edge : edges.results) results[edge.outer] = inner[edge.inner];
  return results;
}

// Adds the updates (from, to) to the block. They take effect simultaneously. So if an update reads
// a value that another update writes, it reads a copy of that value instead.
void Lowerer::AddUpdates(const std::vector<std::pair<int, int>>& from_to, Block* block) {
  for (const auto& [from, to] : from_to)
    if (from != to && out_.values[to].elements > 0) block->updates.emplace_back(from, to);
  for (auto& [from, to] : block->updates) {
    const int source = BeforeBarrier(from);
    if (std::none_of(block->updates.begin(), block->updates.end(),
                     [&](const auto& update) { return update.second == source; }))
      continue;
    const int read =
        std::exchange(from, NewValue(out_.values[source].dtype, out_.values[source].elements));
    Add({read}, {from}, CopyItem{});
  }
}

std::vector<int> Lowerer::LowerBranches(const OpContext& ctx, const ir::DataFlow& flow) {
  if (ctx.op.regions.size() == 1) return LowerCall(ctx, flow.regions[0], *ctx.op.regions[0]);
  const std::vector<int> results = NewResults(ctx);
  BranchItem item;
  for (size_t k = 0; k < ctx.op.regions.size(); ++k) {
    Block& block = item.branches.emplace_back();
    std::vector<Item>* const outer_items = std::exchange(items_, &block.items);
    const std::vector<int> inner = LowerCall(ctx, flow.regions[k], *ctx.op.regions[k]);
    std::vector<std::pair<int, int>> updates;
    for (size_t r = 0; r < results.size(); ++r) updates.emplace_back(inner[r], results[r]);
    AddUpdates(updates, &block);
    items_ = outer_items;
  }
  Add({ctx.operands[flow.branch_index]}, results, std::move(item));
  return results;
}

// Lowers a while loop. The predicate is lowered twice: before the loop, and at the end of each
// iteration on the new carries. The predicate of a loop that is itself part of a predicate is
// therefore lowered four times.
std::vector<int> Lowerer::LowerWhile(const OpContext& ctx, const ir::DataFlow& flow) {
  const ir::Function &predicate = *ctx.op.regions[0], &body = *ctx.op.regions[1];
  const std::vector<int> results = NewResults(ctx);
  std::vector<int> args = ArgsOf(ctx, flow.regions[1], body);
  std::vector<int> predicate_args = ArgsOf(ctx, flow.regions[0], predicate);
  const int condition = NewValue(ir::DType::kBool, 1);
  Add({LowerPredicate(predicate, predicate_args)}, {condition}, CopyItem{});
  std::map<int, int> carried;  // from an operand of the op to a result of the body
  for (const auto& [param, result] : flow.regions[1].carries) {
    if (out_.values[args[param]].elements > 0) Add({args[param]}, {results[result]}, CopyItem{});
    args[param] = results[result];
  }
  for (const ir::DataFlowEdge& edge : flow.regions[1].operands)
    for (const auto& [param, result] : flow.regions[1].carries)
      if (edge.inner == param) carried[edge.outer] = result;

  LoopItem item;
  item.number = out_.num_loops++;
  std::vector<Item>* const outer_items = std::exchange(items_, &item.body.items);
  const std::vector<int> inner = LowerFunction(body, args);
  for (const ir::DataFlowEdge& edge : flow.regions[0].operands)
    if (const auto at_carry = carried.find(edge.outer); at_carry != carried.end())
      predicate_args[edge.inner] = inner[at_carry->second];
  std::vector<std::pair<int, int>> updates;
  for (size_t r = 0; r < results.size(); ++r) updates.emplace_back(inner[r], results[r]);
  updates.emplace_back(LowerPredicate(predicate, predicate_args), condition);
  AddUpdates(updates, &item.body);
  items_ = outer_items;
  Add({condition}, results, std::move(item));
  return results;
}

int Lowerer::LowerPredicate(const ir::Function& predicate, const std::vector<int>& args) {
  if (++predicate_depth_ > kPredicateDepthMax)
    Throw(
        ErrorKind::kNotImplemented,
        absl::StrCat(out_.labels[label_], ": while loops are nested more than ", kPredicateDepthMax,
                     " deep in the predicates of other loops; compute a predicate in the body and "
                     "carry its result"));
  const int holds = LowerFunction(predicate, args)[0];
  --predicate_depth_;
  return holds;
}

// Adds a value that is one row of `whole` in each iteration.
int Lowerer::AddSubview(int whole, const ir::Type& row, int loop, const ir::DataFlow& flow) {
  const int value = NewValue(row);
  const int64_t n = out_.values[value].elements;
  out_.values[value].subview = Value::Subview{whole, flow.reverse ? (flow.trip_count - 1) * n : 0,
                                              loop, flow.reverse ? -n : n};
  return value;
}

// Lowers a loop with a known number of iterations. Values that the loop goes through row by row are
// not cut or joined: the body reads and writes subviews, which move along the whole value with the
// loop. Initial values are copied to the carries, even if there are no iterations, because the
// carries are the results.
std::vector<int> Lowerer::LowerLoop(const OpContext& ctx, const ir::DataFlow& flow) {
  const ir::Function& body = *ctx.op.regions[0];
  const ir::RegionDataFlow& edges = flow.regions[0];
  LoopItem item;
  item.number = out_.num_loops++;
  item.trip_count = flow.trip_count;
  const std::vector<int> results = NewResults(ctx);
  std::vector<int> args(body.num_params, -1);
  for (const ir::DataFlowEdge& edge : edges.operands)
    args[edge.inner] = edge.leading_dim ? AddSubview(ctx.operands[edge.outer],
                                                     body.types[edge.inner], item.number, flow)
                                        : ctx.operands[edge.outer];
  // A carry is kept in the value of its result, to which the initial value is copied.
  for (const auto& [param, inner_result] : edges.carries)
    for (const ir::DataFlowEdge& edge : edges.results) {
      if (edge.inner != inner_result || edge.leading_dim) continue;
      if (out_.values[args[param]].elements > 0)
        Add({args[param]}, {results[edge.outer]}, CopyItem{});
      args[param] = results[edge.outer];
    }
  if (flow.trip_count == 0) return results;

  std::vector<Item>* const outer_items = std::exchange(items_, &item.body.items);
  const std::vector<int> inner = LowerFunction(body, args);
  std::vector<std::pair<int, int>> updates;
  for (const ir::DataFlowEdge& edge : edges.results)
    updates.emplace_back(inner[edge.inner],
                         edge.leading_dim
                             ? AddSubview(results[edge.outer], body.type(body.results[edge.inner]),
                                          item.number, flow)
                             : results[edge.outer]);
  AddUpdates(updates, &item.body);
  items_ = outer_items;
  Add({}, results, std::move(item));
  return results;
}

}  // namespace tessera::worker::program
