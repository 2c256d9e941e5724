// Lowers the ops of a function to items. Build (build.cc) calls Lower first, and passes the result
// to Fuse. This file has the values, the walk over functions, and the ops that are scalar graphs,
// index maps or sorts; the lower_*.cc files have the others. An op without code becomes a HostItem,
// which the reference evaluator runs.
#include "worker/program/lower.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "base/status_exception.h"
#include "ir/any_op.h"
#include "ir/eval/uninterrupted.h"
#include "worker/codegen/scalar_fn.h"
#include "worker/program/lowerer.h"

namespace tessera::worker::program {
namespace {

using ir::Dims;
using ir::Lowering;

bool HasCollective(const ir::Function& f) {
  return ir::AnyOp(f, [](const ir::Function&, const ir::Op& op) {
    return op.def->lowering == Lowering::kCollective;
  });
}

// Returns the graph with the dtypes that elements have in slots (CarrierOf), or nullopt if there is
// no code for one of its primitives.
std::optional<ir::ScalarGraph> WithScalarFns(ir::ScalarGraph graph) {
  if (!ir::HasKernels(graph)) return std::nullopt;
  for (ir::ScalarNode& node : graph.nodes) {
    node.dtype = CarrierOf(node.dtype).dtype;
    if (node.prim == ir::ScalarPrim::kInput || node.prim == ir::ScalarPrim::kConstant) continue;
    const ir::DType operand = graph.nodes[node.args.back()].dtype;
    if (codegen::FindScalarFn(node.prim, operand, node.dtype) == nullptr) return std::nullopt;
  }
  return graph;
}

}  // namespace

void Lowerer::Run(const ir::Function& f) {
  out_.mesh = f.scope.mesh;
  std::vector<int> args;
  for (int i = 0; i < f.num_params; ++i) {
    const ir::Type& t = f.types[i];
    args.push_back(NewValue(t.dtype, t.num_elements()));
    out_.values.back().argument = i;
    out_.arguments.push_back({t.dtype, t.shape});
  }
  items_ = &out_.items;
  out_.result_values = LowerFunction(f, args);
  for (const ir::Type& t : f.result_types()) out_.results.push_back({t.dtype, t.shape});
}

absl::StatusOr<LoweredFunction> Lowerer::Take() && {
  TESSERA_RETURN_IF_ERROR(refusal_);
  return std::move(out_);
}

int Lowerer::NewValue(ir::DType dtype, int64_t elements) {
  const Carrier carrier = CarrierOf(dtype);
  Value value;
  value.dtype = carrier.dtype;
  value.elements = elements * carrier.carriers_per_element;
  out_.values.push_back(std::move(value));
  return static_cast<int>(out_.values.size()) - 1;
}

int Lowerer::NewValue(const ir::Type& type) { return NewValue(type.dtype, type.num_elements()); }

int Lowerer::NewConstant(const ir::Array& literal) {
  const int value = NewValue(literal.dtype(), literal.num_elements());
  out_.values[value].constant = static_cast<int>(out_.constants.size());
  const Value& carried = out_.values[value];
  out_.constants.push_back(carried.dtype == literal.dtype()
                               ? literal
                               : ir::Array(carried.dtype, {carried.elements}, literal.bytes()));
  return value;
}

// Adds the items of `f`, called with `args`, and returns the values of its results.
std::vector<int> Lowerer::LowerFunction(const ir::Function& f, const std::vector<int>& args) {
  std::vector<int> env(f.types.size(), -1);
  std::copy(args.begin(), args.end(), env.begin());
  for (size_t i = 0; i < f.ops.size(); ++i) {
    const ir::Op& op = f.ops[i];
    const int outer_label = label_;
    label_ = static_cast<int>(out_.labels.size());
    out_.labels.push_back(LabelOf(f, i));
    OpContext ctx{f, op, {}};
    for (ir::ValueId v : op.operands) ctx.operands.push_back(env[v]);
    const std::vector<int> results = LowerOp(ctx);
    for (size_t r = 0; r < results.size(); ++r) env[op.results[r]] = results[r];
    label_ = outer_label;
  }
  std::vector<int> results;
  for (ir::ValueId v : f.results) results.push_back(env[v]);
  return results;
}

std::vector<int> Lowerer::LowerOp(const OpContext& ctx) {
  if (ctx.def().lowering == Lowering::kAlias) return ctx.operands;
  if (ctx.def().lowering == Lowering::kBarrier) return LowerBarrier(ctx);
  if (ctx.def().lowering == Lowering::kRegion) return LowerRegions(ctx);
  const std::vector<ir::Type> result_types = ctx.out_types();
  if (std::all_of(result_types.begin(), result_types.end(),
                  [](const ir::Type& t) { return t.num_elements() == 0; })) {
    std::vector<int> values;  // never read
    for (const ir::Type& t : result_types) values.push_back(NewValue(t));
    return values;
  }
  const std::optional<std::vector<int>> results = LowerToCode(ctx);
  return results ? *results : LowerToHost(ctx);
}

std::vector<int> Lowerer::LowerBarrier(const OpContext& ctx) {
  std::vector<int> in, barrier_results, results = ctx.operands;
  for (int& v : results) {
    if (out_.values[v].constant >= 0 || out_.values[v].elements == 0) continue;
    const int result = static_cast<int>(out_.values.size());
    Value value;
    value.dtype = out_.values[v].dtype;
    value.elements = out_.values[v].elements;
    value.same_as = BeforeBarrier(v);
    out_.values.push_back(std::move(value));
    in.push_back(v);
    barrier_results.push_back(result);
    v = result;
  }
  Add(std::move(in), std::move(barrier_results), BarrierItem{});
  return results;
}

// Returns the value in front of the barrier if `v` is a result of a barrier. Returns `v` if it is
// not.
int Lowerer::BeforeBarrier(int v) const {
  return out_.values[v].same_as >= 0 ? out_.values[v].same_as : v;
}

// Lowers the op to items that backends have code for, or returns nullopt if there is no code.
std::optional<std::vector<int>> Lowerer::LowerToCode(const OpContext& ctx) {
  switch (ctx.def().lowering) {
    case Lowering::kScalar:
      return LowerScalar(ctx);
    case Lowering::kIndexMap:
    case Lowering::kDynamicIndex:
      return LowerIndexMap(ctx);
    case Lowering::kScan:
      return LowerScan(ctx);
    case Lowering::kScatter:
      return LowerScatter(ctx);
    case Lowering::kReduce:
      return LowerReduce(ctx);
    case Lowering::kContract:
      return LowerContract(ctx);
    case Lowering::kSort:
      return LowerSort(ctx);
    case Lowering::kCollective:
      return LowerCollective(ctx);
    default:
      return std::nullopt;
  }
}

std::vector<int> Lowerer::LowerToHost(const OpContext& ctx) {
  auto f = std::make_shared<ir::Function>();
  for (const ir::FunctionRef& region : ctx.op.regions)
    if (HasCollective(*region)) Refuse("collectives inside it are not planned");
  f->name = "host";
  f->scope = ctx.f.scope;
  f->types = ctx.in_types();
  f->num_params = static_cast<int>(f->types.size());
  ir::Op op = ctx.op;
  for (size_t i = 0; i < op.operands.size(); ++i) op.operands[i] = static_cast<ir::ValueId>(i);
  std::vector<int> results;
  for (ir::ValueId& r : op.results) {
    results.push_back(NewValue(ctx.f.type(r)));
    f->types.push_back(ctx.f.type(r));
    r = static_cast<ir::ValueId>(f->types.size()) - 1;
    f->results.push_back(r);
  }
  f->ops.push_back(std::move(op));
  f->sites.emplace_back();
  const bool is_long = ir::UninterruptedOperations(*f) > options_.uninterrupted_operations_max;
  HostItem item{std::move(f), is_long};
  if (ctx.def().lowering == Lowering::kSort) item.sort = SortShapeOf(ctx);
  Add(ctx.operands, results, std::move(item));
  return results;
}

// Makes Take return NOT_IMPLEMENTED with the label of the current op. Only the first refusal is
// reported.
void Lowerer::Refuse(absl::string_view why) {
  if (!refusal_.ok()) return;
  refusal_ = MakeError(ErrorKind::kNotImplemented, absl::StrCat(out_.labels[label_], ": ", why));
}

std::optional<std::vector<int>> Lowerer::LowerScalar(const OpContext& ctx) {
  const std::optional<ir::ScalarGraph> graph = WithScalarFns(ctx.def().scalar.record(
      ctx.op.attrs, ctx.in(static_cast<int>(ctx.operands.size()) - 1).dtype, ctx.out(0).dtype));
  if (!graph) return std::nullopt;
  std::vector<int> results;
  for (const ir::Type& t : ctx.out_types()) results.push_back(NewValue(t));
  Add(ctx.operands, results, ScalarItem{ir::Canonical(*graph)});
  return results;
}

std::vector<DynamicValueOffset> Lowerer::ShiftsOf(const OpContext& ctx,
                                                  const std::vector<ir::DynamicOffset>& shifts) {
  std::vector<DynamicValueOffset> value_offsets;
  for (const ir::DynamicOffset& s : shifts)
    if (s.max > 0)
      value_offsets.push_back({ctx.operands[s.operand], s.max, s.stride, s.offset, s.strides});
  return value_offsets;
}

// Returns the value from which the piece reads, or -1 for an iota. Adds the map's literal as a
// constant if the piece reads it.
int Lowerer::AddSource(const OpContext& ctx, const ir::IndexMap& map, const ir::IndexPiece& piece) {
  if (piece.source == ir::IndexPiece::kIota) return -1;
  if (piece.source == ir::IndexPiece::kLiteral) return NewConstant(*map.literal);
  return ctx.operands[piece.source];
}

// Returns the copy that `piece` makes into an array with these strides, without shifts.
PiecesItem::Piece Lowerer::PieceInto(const Dims& strides, const ir::IndexPiece& piece) {
  PiecesItem::Piece placed;
  placed.box = piece.shape;
  placed.read = {piece.offset, piece.strides, {}};
  for (size_t d = 0; d < strides.size(); ++d) {
    placed.write.offset += piece.start[d] * strides[d];
    placed.write.strides.push_back(piece.step[d] * strides[d]);
  }
  return placed;
}

// Lowers an op that moves data, by its index map. If one piece writes the whole result, the op is a
// view of the source, or the source itself if the piece is the whole source in order. If there are
// several pieces, they are copied one after the other into the result. An op with more shifts than
// an access can have is left to the host.
std::optional<std::vector<int>> Lowerer::LowerIndexMap(const OpContext& ctx) {
  const std::vector<ir::Type> in = ctx.in_types(), out = ctx.out_types();
  ir::IndexMap map =
      ctx.def().index_map({ctx.def(), ctx.f.scope, in, ctx.op.attrs, ctx.op.regions}, out);
  for (const ir::IndexPiece& piece : map.pieces)
    if (piece.read.size() > kShiftsMax) return std::nullopt;
  const ir::Type slot_type = AddCarrierDim(out[0], &map);
  const Dims dense = ir::StridesOf(slot_type.shape);
  if (map.pieces.size() == 1 && WritesWholeResult(map.pieces[0], slot_type)) {
    const ir::IndexPiece& piece = map.pieces[0];
    const int source = AddSource(ctx, map, piece);
    if (source >= 0 && ir::IsWhole(piece, slot_type) &&
        out_.values[source].elements == slot_type.num_elements())
      return std::vector<int>{source};
    const int result = NewValue(out[0]);
    std::vector<int> operands;
    if (source >= 0) operands.push_back(source);
    const int read = piece.fills ? NewValue(out[0]) : result;
    Add(operands, {read},
        ViewItem{{piece.shape, {piece.offset, piece.strides, ShiftsOf(ctx, piece.read)}}});
    if (piece.fills) AddFill(ctx, piece, read, NewConstant(*map.literal), result);
    return std::vector<int>{result};
  }
  PiecesItem pieces;
  std::vector<int> operands;
  for (const ir::IndexPiece& piece : map.pieces) {
    if (NumElements(piece.shape) == 0) continue;
    PiecesItem::Piece p = PieceInto(dense, piece);
    p.read.shifts = ShiftsOf(ctx, piece.read);
    p.write.shifts = ShiftsOf(ctx, piece.write);
    const int source = AddSource(ctx, map, piece);
    if (source >= 0) {
      p.operand = static_cast<int>(operands.size());
      operands.push_back(source);
    }
    pieces.pieces.push_back(std::move(p));
  }
  const int result = NewValue(out[0]);
  Add(operands, {result}, std::move(pieces));
  return std::vector<int>{result};
}

// Returns the graph of the op's computation, or nullopt if there is no code for it.
std::optional<ir::ScalarGraph> Lowerer::ComputationOf(const OpContext& ctx) {
  std::optional<ir::ScalarGraph> graph = ir::GraphOf(*ctx.op.regions[0]);
  return graph ? WithScalarFns(*std::move(graph)) : std::nullopt;
}

// Adds the items that compute `result`. An element of the result is the element of `read` if all
// numbers by which the piece is shifted are within their bounds. If they are not, it is `fill`,
// which is a single element.
void Lowerer::AddFill(const OpContext& ctx, const ir::IndexPiece& piece, int read, int fill,
                      int result) {
  const ir::DType dtype = out_.values[result].dtype;
  const auto add_view = [&](int value, int64_t offset, Dims strides) {
    strides.resize(piece.shape.size(), 0);
    const int view = NewValue(out_.values[value].dtype, NumElements(piece.shape));
    Add({value}, {view}, ViewItem{{piece.shape, {offset, std::move(strides), {}}}});
    return view;
  };
  // A complex element is carried by two elements, along a last dim of size two.
  Dims fill_strides(piece.shape.size(), 0);
  if (out_.values[fill].elements > 1) fill_strides.back() = 1;
  std::vector<int> operands = {read, add_view(fill, 0, fill_strides)};
  GraphBuilder graph;
  int inside = -1;
  for (const ir::DynamicOffset& s : piece.read) {
    const int index = ctx.operands[s.operand];
    operands.push_back(add_view(index, s.offset, s.strides));
    const int number = graph.Input(static_cast<int>(operands.size()) - 1, out_.values[index].dtype);
    inside = graph.AndInside(inside, number, s.max);
  }
  int value = graph.Input(0, dtype);
  if (inside >= 0) {
    const int otherwise = graph.Input(1, dtype);
    value = graph.Select(inside, value, otherwise);
  }
  Add(std::move(operands), {result}, ScalarItem{std::move(graph).WithRoots({value})});
}

// Returns the type of a result of index map `map` as it lies in its slot. An element that is
// carried by two elements gets a last dim of size two, also in the map.
ir::Type Lowerer::AddCarrierDim(const ir::Type& out, ir::IndexMap* map) {
  const Carrier carrier = CarrierOf(out.dtype);
  ir::Type slot_type = ir::MakeType(carrier.dtype, out.shape);
  const int64_t n = carrier.carriers_per_element;
  if (n == 1) return slot_type;
  slot_type.shape.push_back(n);
  if (map->indexes_complex_parts) return slot_type;
  for (ir::IndexPiece& piece : map->pieces) {
    piece.start.push_back(0);
    piece.step.push_back(1);
    piece.shape.push_back(n);
    piece.offset *= n;
    for (int64_t& stride : piece.strides) stride *= n;
    piece.strides.push_back(1);
    for (auto* shifts : {&piece.read, &piece.write})
      for (ir::DynamicOffset& shift : *shifts) {
        shift.stride *= n;
        if (!shift.strides.empty()) shift.strides.push_back(0);
      }
  }
  return slot_type;
}

// Returns whether the piece writes the whole result, in order.
bool Lowerer::WritesWholeResult(const ir::IndexPiece& piece, const ir::Type& out) {
  if (piece.shape != out.shape || !piece.write.empty()) return false;
  for (int d = 0; d < out.rank(); ++d)
    if (piece.start[d] != 0 || (piece.step[d] != 1 && out.shape[d] > 1)) return false;
  return true;
}

std::optional<SortShape> Lowerer::SortShapeOf(const OpContext& ctx) {
  const ir::SortRule rule = ctx.def().sort(ctx.op.attrs);
  const Dims& shape = ctx.in(0).shape;
  SortShape sort;
  sort.n = shape[rule.dimension];
  if (sort.n < 1 || sort.n > SortShape::kRowMax) return std::nullopt;
  sort.outer = ElementsBefore(shape, rule.dimension);
  sort.inner = ElementsFrom(shape, rule.dimension) / sort.n;
  sort.kept = rule.kept.value_or(sort.n);
  for (size_t i = 0; i < ctx.operands.size(); ++i)
    sort.dtypes.push_back(ctx.in(static_cast<int>(i)).dtype);
  sort.num_keys = rule.num_keys;
  sort.descending = rule.descending;
  sort.has_indices = rule.returns_indices;
  return sort;
}

std::optional<std::vector<int>> Lowerer::LowerSort(const OpContext& ctx) {
  if (options_.sort_scratch_bytes == nullptr) return std::nullopt;
  std::optional<SortShape> shape = SortShapeOf(ctx);
  if (!shape) return std::nullopt;
  SortShape& sort = *shape;
  const std::vector<int> results = NewResults(ctx);
  std::vector<int> written = results;
  written.push_back(NewValue(ir::DType::kU8, options_.sort_scratch_bytes(sort)));
  Add(ctx.operands, std::move(written), SortItem{std::move(sort)});
  return results;
}

std::vector<int> Lowerer::NewResults(const OpContext& ctx) {
  std::vector<int> results;
  for (const ir::Type& t : ctx.out_types()) results.push_back(NewValue(t));
  return results;
}

std::string LabelOf(const ir::Function& f, size_t op_index) {
  const std::string site = op_index < f.sites.size() ? f.sites[op_index].ToString() : "";
  return absl::StrCat(ToAbsl(f.ops[op_index].def->lax_name), site.empty() ? "" : " (", site,
                      site.empty() ? "" : ")");
}

absl::StatusOr<LoweredFunction> Lower(const ir::Function& function, const BuildOptions& options) {
  Lowerer lowerer(options);
  TESSERA_RETURN_IF_ERROR(CatchStatus([&] { lowerer.Run(function); }));  // rules of ops throw
  return std::move(lowerer).Take();
}

}  // namespace tessera::worker::program
