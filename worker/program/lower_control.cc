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

std::vector<int> Lowerer::LowerRegions(const At& at) {
  const ir::DataFlow flow = ir::DataFlowOf(at.f, at.op);
  if (!flow.manual_axes.empty()) return LowerToHost(at);
  if (at.def().RoleOf(0) == ir::RegionRole::kBranch) return LowerBranches(at, flow);
  if (at.def().RoleOf(0) == ir::RegionRole::kPredicate) return LowerWhile(at, flow);
  return ir::IsCall(at.def(), flow) ? LowerCall(at, flow.regions[0], *at.op.regions[0])
                                    : LowerLoop(at, flow);
}

// Returns the lowered operands in the order of the region's params.
std::vector<int> Lowerer::ArgsOf(const At& at, const ir::RegionDataFlow& edges,
                                 const ir::Function& region) {
  std::vector<int> args(region.num_params, -1);
  for (const ir::DataFlowEdge& edge : edges.operands) args[edge.inner] = at.operands[edge.outer];
  return args;
}

std::vector<int> Lowerer::LowerCall(const At& at, const ir::RegionDataFlow& edges,
                                    const ir::Function& region) {
  const std::vector<int> inner = LowerFunction(region, ArgsOf(at, edges, region));
  std::vector<int> results(at.op.results.size(), -1);
  for (const ir::DataFlowEdge& edge : edges.results) results[edge.outer] = inner[edge.inner];
  return results;
}

// Adds the updates (from, to) to the block. They take effect simultaneously. So if an update reads
// a value that another update writes, it reads a copy of that value instead.
void Lowerer::AddUpdates(const std::vector<std::pair<int, int>>& from_to, Block* block) {
  for (const auto& [from, to] : from_to)
    if (from != to && out_.values[to].elements > 0) block->updates.emplace_back(from, to);
  for (auto& [from, to] : block->updates) {
    const int source = RootOf(from);
    if (std::none_of(block->updates.begin(), block->updates.end(),
                     [&](const auto& update) { return update.second == source; }))
      continue;
    const int read =
        std::exchange(from, NewValue(out_.values[source].dtype, out_.values[source].elements));
    Add({read}, {from}, CopyItem{});
  }
}

std::vector<int> Lowerer::LowerBranches(const At& at, const ir::DataFlow& flow) {
  if (at.op.regions.size() == 1) return LowerCall(at, flow.regions[0], *at.op.regions[0]);
  const std::vector<int> results = NewResults(at);
  BranchItem item;
  for (size_t k = 0; k < at.op.regions.size(); ++k) {
    Block& block = item.branches.emplace_back();
    std::vector<Item>* const outer = std::exchange(items_, &block.items);
    const std::vector<int> inner = LowerCall(at, flow.regions[k], *at.op.regions[k]);
    std::vector<std::pair<int, int>> updates;
    for (size_t r = 0; r < results.size(); ++r) updates.emplace_back(inner[r], results[r]);
    AddUpdates(updates, &block);
    items_ = outer;
  }
  Add({at.operands[flow.branch_index]}, results, std::move(item));
  return results;
}

// Lowers a while loop. The predicate is computed before the loop, and at the end of each iteration
// from the new carries. A predicate inside the predicate of another loop is therefore lowered twice
// as often.
std::vector<int> Lowerer::LowerWhile(const At& at, const ir::DataFlow& flow) {
  const ir::Function &predicate = *at.op.regions[0], &body = *at.op.regions[1];
  const std::vector<int> results = NewResults(at);
  std::vector<int> args = ArgsOf(at, flow.regions[1], body);
  std::vector<int> predicate_args = ArgsOf(at, flow.regions[0], predicate);
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
  item.loop = out_.num_loops++;
  std::vector<Item>* const outer = std::exchange(items_, &item.body.items);
  const std::vector<int> inner = LowerFunction(body, args);
  for (const ir::DataFlowEdge& edge : flow.regions[0].operands)
    if (const auto at_carry = carried.find(edge.outer); at_carry != carried.end())
      predicate_args[edge.inner] = inner[at_carry->second];
  std::vector<std::pair<int, int>> updates;
  for (size_t r = 0; r < results.size(); ++r) updates.emplace_back(inner[r], results[r]);
  updates.emplace_back(LowerPredicate(predicate, predicate_args), condition);
  AddUpdates(updates, &item.body);
  items_ = outer;
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
std::vector<int> Lowerer::LowerLoop(const At& at, const ir::DataFlow& flow) {
  const ir::Function& body = *at.op.regions[0];
  const ir::RegionDataFlow& edges = flow.regions[0];
  LoopItem item;
  item.loop = out_.num_loops++;
  item.trip_count = flow.trip_count;
  const std::vector<int> results = NewResults(at);
  std::vector<int> args(body.num_params, -1);
  for (const ir::DataFlowEdge& edge : edges.operands)
    args[edge.inner] = edge.leading_dim ? AddSubview(at.operands[edge.outer],
                                                     body.types[edge.inner], item.loop, flow)
                                        : at.operands[edge.outer];
  // A carry is kept in the value of its result, to which the initial value is copied.
  for (const auto& [param, inner_result] : edges.carries)
    for (const ir::DataFlowEdge& edge : edges.results) {
      if (edge.inner != inner_result || edge.leading_dim) continue;
      if (out_.values[args[param]].elements > 0)
        Add({args[param]}, {results[edge.outer]}, CopyItem{});
      args[param] = results[edge.outer];
    }
  if (flow.trip_count == 0) return results;

  std::vector<Item>* const outer = std::exchange(items_, &item.body.items);
  const std::vector<int> inner = LowerFunction(body, args);
  std::vector<std::pair<int, int>> updates;
  for (const ir::DataFlowEdge& edge : edges.results)
    updates.emplace_back(
        inner[edge.inner],
        edge.leading_dim
            ? AddSubview(results[edge.outer], body.type(body.results[edge.inner]), item.loop, flow)
            : results[edge.outer]);
  AddUpdates(updates, &item.body);
  items_ = outer;
  Add({}, results, std::move(item));
  return results;
}

}  // namespace tessera::worker::program
