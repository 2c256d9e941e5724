#include "worker/program/lower.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "base/status_exception.h"
#include "ir/any_op.h"
#include "ir/derive/computation_graph.h"
#include "ir/derive/factors.h"
#include "ir/eval/eval.h"
#include "worker/codegen/scalar_fn.h"
#include "worker/program/graph_builder.h"

namespace tessera::worker::program {
namespace {

using ir::CollectiveKind;
using ir::Dims;
using ir::Lowering;

// A reduction of at least this many elements per result, to fewer than half of kPartialsMax
// results, is done in two stages; the first makes up to kPartialsMax partial results. One of
// columns reads whole rows, so that it has no work for two threads before there are parts.
constexpr int64_t kLongReductionMin = 1 << 15, kLongColumnMin = 1 << 12;
constexpr int64_t kPartialsMax = 1024;
constexpr int64_t kPartElementsMin = 1024;  // that each partial result reduces

// A scan's iteration does all of its elements in one call, which no cancel ends; the evaluator goes
// through longer ones. Of a computation of more than so many simple operations it does fewer.
constexpr int64_t kScannedMax = 1 << 24;
constexpr int64_t kScannedWeight = 16;

// How deep while loops stand in the predicates of others.
constexpr int kPredicateDepthMax = 4;

bool HasCollective(const ir::Function& f) {
  return ir::AnyOp(f, [](const ir::Function&, const ir::Op& op) {
    return op.def->lowering == Lowering::kCollective;
  });
}

// The graph on elements as they lie in slots; nullopt if there is no code for it.
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

// The entries of `from` at `dims`.
Dims Pick(const Dims& from, const std::vector<int>& dims) {
  Dims picked;
  for (int d : dims) picked.push_back(from[d]);
  return picked;
}

// Views of pre x n x post elements as n blocks of pre x post, and of these as pre x n x post.
View BlocksFirst(int64_t pre, int64_t n, int64_t post) {
  return {{n, pre, post}, {0, {post, n * post, 1}, {}}};
}
View BlocksInPlace(int64_t pre, int64_t n, int64_t post) {
  return {{pre, n, post}, {0, {post, pre * post, 1}, {}}};
}
// The number of elements of the dims before `dim`, and of those from `dim` on.
int64_t ElementsBefore(const Dims& shape, int64_t dim) {
  return NumElements(absl::MakeConstSpan(shape).subspan(0, dim));
}
int64_t ElementsFrom(const Dims& shape, int64_t dim) {
  return NumElements(absl::MakeConstSpan(shape).subspan(dim));
}

class Lowerer {
 public:
  explicit Lowerer(const BuildOptions& options) : options_(options) {}

  void Run(const ir::Function& f) {
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
  absl::StatusOr<Lowered> Take() && {
    TESSERA_RETURN_IF_ERROR(refused_);
    return std::move(out_);
  }

 private:
  // The op to lower, and the lowered values of its operands.
  struct At {
    const ir::Function& f;
    const ir::Op& op;
    std::vector<int> operands;

    const ir::OpDef& def() const { return *op.def; }
    const ir::Type& in(int i) const { return f.type(op.operands[i]); }
    const ir::Type& out(int i) const { return f.type(op.results[i]); }
    std::vector<ir::Type> in_types() const { return TypesOf(op.operands); }
    std::vector<ir::Type> out_types() const { return TypesOf(op.results); }
    std::vector<ir::Type> TypesOf(const std::vector<ir::ValueId>& ids) const {
      std::vector<ir::Type> types;
      for (ir::ValueId v : ids) types.push_back(f.type(v));
      return types;
    }
  };

  int NewValue(ir::DType dtype, int64_t elements) {
    const Carrier carrier = CarrierOf(dtype);
    Value value;
    value.dtype = carrier.dtype;
    value.elements = elements * carrier.per_element;
    out_.values.push_back(std::move(value));
    return static_cast<int>(out_.values.size()) - 1;
  }
  int NewValue(const ir::Type& type) { return NewValue(type.dtype, type.num_elements()); }
  int NewConstant(const ir::Array& literal) {
    const int value = NewValue(literal.dtype(), literal.num_elements());
    out_.values[value].constant = static_cast<int>(out_.constants.size());
    const Value& carried = out_.values[value];
    out_.constants.push_back(carried.dtype == literal.dtype()
                                 ? literal
                                 : ir::Array(carried.dtype, {carried.elements}, literal.bytes()));
    return value;
  }
  template <class What>
  void Add(std::vector<int> operands, std::vector<int> results, What what) {
    items_->push_back({label_, std::move(operands), std::move(results), std::move(what)});
  }

  // Adds the items of `f`, called with `args`; returns the values of its results.
  std::vector<int> LowerFunction(const ir::Function& f, const std::vector<int>& args) {
    std::vector<int> env(f.types.size(), -1);
    std::copy(args.begin(), args.end(), env.begin());
    for (size_t i = 0; i < f.ops.size(); ++i) {
      const ir::Op& op = f.ops[i];
      const int outer_label = label_;
      label_ = static_cast<int>(out_.labels.size());
      out_.labels.push_back(LabelOf(f, i));
      At at{f, op, {}};
      for (ir::ValueId v : op.operands) at.operands.push_back(env[v]);
      const std::vector<int> results = LowerOp(at);
      for (size_t r = 0; r < results.size(); ++r) env[op.results[r]] = results[r];
      label_ = outer_label;
    }
    std::vector<int> results;
    for (ir::ValueId v : f.results) results.push_back(env[v]);
    return results;
  }

  std::vector<int> LowerOp(const At& at) {
    if (at.def().lowering == Lowering::kAlias) return at.operands;
    if (at.def().lowering == Lowering::kBarrier) return LowerBarrier(at);
    if (at.def().lowering == Lowering::kRegion) return LowerRegions(at);
    const std::vector<ir::Type> results = at.out_types();
    if (std::all_of(results.begin(), results.end(),
                    [](const ir::Type& t) { return t.num_elements() == 0; })) {
      std::vector<int> values;  // unused
      for (const ir::Type& t : results) values.push_back(NewValue(t));
      return values;
    }
    const std::optional<std::vector<int>> done = LowerToCode(at);
    return done ? *done : LowerToHost(at);
  }

  std::vector<int> LowerBarrier(const At& at) {
    std::vector<int> in, behind, results = at.operands;
    for (int& v : results) {
      if (out_.values[v].constant >= 0 || out_.values[v].elements == 0) continue;
      const int same = static_cast<int>(out_.values.size());
      Value value;
      value.dtype = out_.values[v].dtype;
      value.elements = out_.values[v].elements;
      value.same_as = RootOf(v);
      out_.values.push_back(std::move(value));
      in.push_back(v);
      behind.push_back(same);
      v = same;
    }
    Add(std::move(in), std::move(behind), BarrierItem{});
    return results;
  }
  // The value itself, of one behind a barrier.
  int RootOf(int v) const { return out_.values[v].same_as >= 0 ? out_.values[v].same_as : v; }

  // nullopt if the op has no kernel.
  std::optional<std::vector<int>> LowerToCode(const At& at) {
    switch (at.def().lowering) {
      case Lowering::kScalar:
        return LowerScalar(at);
      case Lowering::kIndexMap:
      case Lowering::kDynamicIndex:
        return LowerIndexMap(at);
      case Lowering::kScan:
        return LowerScan(at);
      case Lowering::kScatter:
        return LowerScatter(at);
      case Lowering::kReduce:
        return LowerReduce(at);
      case Lowering::kContract:
        return LowerContract(at);
      case Lowering::kSort:
        return LowerSort(at);
      case Lowering::kCollective:
        return LowerCollective(at);
      default:
        return std::nullopt;
    }
  }

  std::vector<int> LowerToHost(const At& at) {
    auto f = std::make_shared<ir::Function>();
    for (const ir::FunctionRef& region : at.op.regions)
      if (HasCollective(*region)) Refuse("collectives inside it are not planned");
    f->name = "host";
    f->scope = at.f.scope;
    f->types = at.in_types();
    f->num_params = static_cast<int>(f->types.size());
    ir::Op op = at.op;
    for (size_t i = 0; i < op.operands.size(); ++i) op.operands[i] = static_cast<ir::ValueId>(i);
    std::vector<int> results;
    for (ir::ValueId& r : op.results) {
      results.push_back(NewValue(at.f.type(r)));
      f->types.push_back(at.f.type(r));
      r = static_cast<ir::ValueId>(f->types.size()) - 1;
      f->results.push_back(r);
    }
    f->ops.push_back(std::move(op));
    f->sites.emplace_back();
    Add(at.operands, results, HostItem{std::move(f)});
    return results;
  }

  // Makes Take fail. Only the first refusal is reported.
  void Refuse(absl::string_view why) {
    if (!refused_.ok()) return;
    refused_ = MakeError(ErrorKind::kNotImplemented, absl::StrCat(out_.labels[label_], ": ", why));
  }

  std::optional<std::vector<int>> LowerScalar(const At& at) {
    const std::optional<ir::ScalarGraph> graph = WithScalarFns(at.def().scalar.record(
        at.op.attrs, at.in(static_cast<int>(at.operands.size()) - 1).dtype, at.out(0).dtype));
    if (!graph) return std::nullopt;
    std::vector<int> results;
    for (const ir::Type& t : at.out_types()) results.push_back(NewValue(t));
    Add(at.operands, results, ScalarItem{ir::Canonical(*graph)});
    return results;
  }

  // ---- Index maps. ----

  static std::vector<DynamicValueOffset> ShiftsOf(const At& at,
                                                  const std::vector<ir::DynamicOffset>& shifts) {
    std::vector<DynamicValueOffset> by;
    for (const ir::DynamicOffset& s : shifts)
      if (s.max > 0) by.push_back({at.operands[s.operand], s.max, s.stride, s.offset, s.strides});
    return by;
  }

  int SourceOf(const At& at, const ir::IndexMap& map, const ir::IndexPiece& piece) {
    if (piece.source == ir::IndexPiece::kIota) return -1;
    if (piece.source == ir::IndexPiece::kLiteral) return NewConstant(*map.literal);
    return at.operands[piece.source];
  }

  std::optional<std::vector<int>> LowerIndexMap(const At& at) {
    const std::vector<ir::Type> in = at.in_types(), out = at.out_types();
    ir::IndexMap map =
        at.def().index_map({at.def(), at.f.scope, in, at.op.attrs, at.op.regions}, out);
    for (const ir::IndexPiece& piece : map.pieces)
      if (piece.read.size() > kShiftsMax) return std::nullopt;
    const ir::Type written = OfCarriers(out[0], &map);
    const Dims dense = ir::StridesOf(written.shape);
    if (map.pieces.size() == 1 && IsAllOf(map.pieces[0], written)) {
      const ir::IndexPiece& piece = map.pieces[0];
      const int source = SourceOf(at, map, piece);
      if (source >= 0 && ir::IsWhole(piece, written) &&
          out_.values[source].elements == written.num_elements())
        return std::vector<int>{source};
      const int result = NewValue(out[0]);
      std::vector<int> operands;
      if (source >= 0) operands.push_back(source);
      const int read = piece.fills ? NewValue(out[0]) : result;
      Add(operands, {read},
          ViewItem{{piece.shape, {piece.offset, piece.strides, ShiftsOf(at, piece.read)}}});
      if (piece.fills) AddFill(at, piece, read, NewConstant(*map.literal), result);
      return std::vector<int>{result};
    }
    PiecesItem pieces;
    std::vector<int> operands;
    for (const ir::IndexPiece& piece : map.pieces) {
      if (NumElements(piece.shape) == 0) continue;
      PiecesItem::Piece p;
      p.box = piece.shape;
      p.read = {piece.offset, piece.strides, ShiftsOf(at, piece.read)};
      p.write.shifts = ShiftsOf(at, piece.write);
      for (int d = 0; d < written.rank(); ++d) {
        p.write.offset += piece.start[d] * dense[d];
        p.write.strides.push_back(piece.step[d] * dense[d]);
      }
      const int source = SourceOf(at, map, piece);
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

  // ---- Scans and scatters. ----

  bool HasScan(const At& at) const {
    return options_.has_scan && options_.has_scan(ir::ScanSizeOf(at.f, at.op));
  }

  std::optional<std::vector<int>> LowerScan(const At& at) {
    const ir::Type& x = at.in(0);
    if (!HasScan(at) || x.shape.size() > kGroupDimsMax) return std::nullopt;
    const auto dim = static_cast<int>(at.op.attrs.Int("dimension"));
    if (x.shape[dim] > kScannedMax) return std::nullopt;
    const bool reverse = at.op.attrs.Bool("reverse");
    const Dims strides = ir::StridesOf(x.shape);
    ScanItem item;
    item.kind = at.def().reduce;
    item.box = x.shape;
    item.access.strides = strides;
    for (Dims* dims : {&item.box, &item.access.strides})
      std::rotate(dims->begin() + dim, dims->begin() + dim + 1, dims->end());
    if (reverse) {
      item.access.offset = (x.shape[dim] - 1) * strides[dim];
      item.access.strides.back() = -strides[dim];
    }
    const int result = NewValue(at.out(0));
    Add({at.operands[0]}, {result}, std::move(item));
    return std::vector<int>{result};
  }

  // What the op's computation is; nullopt if there is no code for it.
  static std::optional<ir::ScalarGraph> ComputationOf(const At& at) {
    std::optional<ir::ScalarGraph> graph = ir::GraphOf(*at.op.regions[0]);
    return graph ? WithScalarFns(*std::move(graph)) : std::nullopt;
  }

  std::optional<std::vector<int>> LowerScatter(const At& at) {
    const size_t n = at.op.results.size();  // operands, then the indices, then as many updates
    if (at.in(static_cast<int>(n) + 1).num_elements() == 0)
      return std::vector<int>(at.operands.begin(), at.operands.begin() + n);
    std::optional<ir::ScalarGraph> computation;
    if (ir::HasComputation(at.def())) {
      computation = ComputationOf(at);
      if (!computation) return std::nullopt;
    }
    const bool combines = computation || at.def().reduce != ir::ReduceKind::kNone;
    const Carrier carrier = CarrierOf(at.out(0).dtype);
    if (!HasScan(at) || (combines && carrier.dtype != at.out(0).dtype)) return std::nullopt;
    const std::vector<ir::Type> in = at.in_types();
    ir::ScatterMap map =
        at.def().scatter_map({at.def(), at.f.scope, in, at.op.attrs, at.op.regions});
    OfCarriers(carrier.per_element, &map);
    if (map.num_parallel == static_cast<int>(map.shape.size())) {  // A scan has a dim to scan.
      map.shape.push_back(1);
      map.read.push_back(0);
      map.write.push_back(0);
      for (ir::DynamicOffset& s : map.shifts)
        if (!s.strides.empty()) s.strides.push_back(0);
    }
    if (map.shape.size() > kGroupDimsMax || map.shifts.size() > kShiftsMax) return std::nullopt;
    const Dims scanned(map.shape.begin() + map.num_parallel, map.shape.end());
    const int64_t weight = computation ? ir::WeightOf(*computation) : 0;
    if (NumElements(scanned) > kScannedMax / std::max<int64_t>(1, weight / kScannedWeight))
      return std::nullopt;
    const std::vector<int> results = NewResults(at);
    UpdateItem item;
    item.box = map.shape;
    item.num_parallel = map.num_parallel;
    item.write = {0, map.write, ShiftsOf(at, map.shifts)};
    const int64_t points = NumElements(item.box);
    GraphBuilder graph;
    const auto input = [&](UpdateItem::Input what, ir::DType of) {
      what.value = NewValue(of, points);
      item.inputs.push_back(std::move(what));
      return graph.Input(static_cast<int>(item.inputs.size()) - 1, of);
    };
    std::vector<int> before, updates;
    for (size_t k = 0; k < n && (combines || map.drops); ++k)
      before.push_back(input({.result = static_cast<int>(k), .access = item.write},
                             out_.values[results[k]].dtype));
    for (size_t k = 0; k < n; ++k)
      updates.push_back(input({.operand = static_cast<int>(n + 1 + k), .access = {0, map.read, {}}},
                              out_.values[results[k]].dtype));
    std::vector<int> after = updates;
    if (computation) {
      after = graph.Apply(*computation, Joined({before, updates}));
    } else if (combines) {
      after = {graph.Combine(at.def().reduce, before[0], updates[0])};
    }
    int inside = -1;
    for (const ir::DynamicOffset& s : map.shifts) {
      if (!map.drops) break;
      Dims strides = s.strides;
      strides.resize(item.box.size(), 0);
      inside = graph.AndInside(
          inside,
          input({.operand = s.operand, .access = {s.offset, std::move(strides), {}}},
                out_.values[at.operands[s.operand]].dtype),
          s.max);
    }
    for (size_t k = 0; k < n && inside >= 0; ++k)
      after[k] = graph.Select(inside, after[k], before[k]);
    item.graph = std::move(graph).WithRoots(after);
    for (int v : results) item.updates.push_back(NewValue(out_.values[v].dtype, points));
    Add(at.operands, results, std::move(item));
    return results;
  }

  // An element that is carried by several gets a dim of them.
  static void OfCarriers(int64_t n, ir::ScatterMap* map) {
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

  // `result` is `read` where all numbers that the piece reads by are in their bounds, else `fill`,
  // one element.
  void AddFill(const At& at, const ir::IndexPiece& piece, int read, int fill, int result) {
    const ir::DType dtype = out_.values[result].dtype;
    const auto view = [&](int value, int64_t offset, Dims strides) {
      strides.resize(piece.shape.size(), 0);
      const int all = NewValue(out_.values[value].dtype, NumElements(piece.shape));
      Add({value}, {all}, ViewItem{{piece.shape, {offset, std::move(strides), {}}}});
      return all;
    };
    // An element that is carried by two has a last dim of two.
    Dims fill_strides(piece.shape.size(), 0);
    if (out_.values[fill].elements > 1) fill_strides.back() = 1;
    std::vector<int> operands = {read, view(fill, 0, fill_strides)};
    GraphBuilder graph;
    int inside = -1;
    for (const ir::DynamicOffset& s : piece.read) {
      const int by = at.operands[s.operand];
      operands.push_back(view(by, s.offset, s.strides));
      const int number = graph.Input(static_cast<int>(operands.size()) - 1, out_.values[by].dtype);
      inside = graph.AndInside(inside, number, s.max);
    }
    int value = graph.Input(0, dtype);
    if (inside >= 0) {
      const int otherwise = graph.Input(1, dtype);
      value = graph.Select(inside, value, otherwise);
    }
    Add(std::move(operands), {result}, ScalarItem{std::move(graph).WithRoots({value})});
  }

  // The type of a result of index map `map` as it lies in its slot. An element that is carried by
  // two gets a last dim of two, in the map too.
  static ir::Type OfCarriers(const ir::Type& out, ir::IndexMap* map) {
    const Carrier carrier = CarrierOf(out.dtype);
    ir::Type written = ir::MakeType(carrier.dtype, out.shape);
    const int64_t n = carrier.per_element;
    if (n == 1) return written;
    written.shape.push_back(n);
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
    return written;
  }

  // Whether the piece writes all of the result, in order.
  static bool IsAllOf(const ir::IndexPiece& piece, const ir::Type& out) {
    if (piece.shape != out.shape || !piece.write.empty()) return false;
    for (int d = 0; d < out.rank(); ++d)
      if (piece.start[d] != 0 || (piece.step[d] != 1 && out.shape[d] > 1)) return false;
    return true;
  }

  // ---- Reductions and contractions. The op's factors tell which dims belong together. ----

  static ir::Signature SignatureOf(const At& at) {
    const std::vector<ir::Type> in = at.in_types(), out = at.out_types();
    return at.def().factors({at.def(), at.f.scope, in, at.op.attrs, at.op.regions}, out);
  }
  static std::set<int> FactorsIn(const ir::TensorFactors& dims) {
    std::set<int> all;
    for (const ir::FactorList& dim : dims) all.insert(dim.begin(), dim.end());
    return all;
  }
  static bool Has(const std::set<int>& factors, const ir::FactorList& dim) {
    return std::all_of(dim.begin(), dim.end(), [&](int f) { return factors.count(f) > 0; });
  }
  static bool IsEmpty(const At& at) {
    const std::vector<ir::Type> in = at.in_types();
    return std::any_of(in.begin(), in.end(),
                       [](const ir::Type& t) { return t.num_elements() == 0; });
  }

  // The result of an op on empty operands is a constant, which the evaluator computes.
  std::optional<std::vector<int>> LowerEmpty(const At& at) {
    std::vector<ir::Array> nothing;
    for (const ir::Type& t : at.in_types()) nothing.emplace_back(t.dtype, t.shape);
    const absl::StatusOr<std::vector<ir::Array>> values =
        ir::EvaluateOp(at.def(), at.f.scope, nothing, at.op.attrs);
    if (!values.ok()) return std::nullopt;
    return std::vector<int>{NewConstant((*values)[0])};
  }

  // The dims of operand 0 that results have, and the others.
  struct ReducedDims {
    std::vector<int> kept, reduced;
  };
  static ReducedDims ReducedDimsOf(const At& at) {
    const ir::Signature s = SignatureOf(at);
    const std::set<int> kept_factors = FactorsIn(s.results[0]);
    ReducedDims dims;
    for (int d = 0; d < at.in(0).rank(); ++d)
      (Has(kept_factors, s.operands[0][d]) ? dims.kept : dims.reduced).push_back(d);
    return dims;
  }

  std::optional<std::vector<int>> LowerReduce(const At& at) {
    if (ir::HasComputation(at.def())) return LowerReduceBy(at);
    if (IsEmpty(at)) return LowerEmpty(at);
    const auto [kept, reduced] = ReducedDimsOf(at);
    if (reduced.empty()) return std::vector<int>{at.operands[0]};
    const Dims strides = ir::StridesOf(at.in(0).shape);
    ReduceItem item;
    item.kind = at.def().reduce;
    item.box = Joined({Pick(at.in(0).shape, kept), Pick(at.in(0).shape, reduced)});
    item.num_reduced = static_cast<int>(reduced.size());
    item.access.strides = Joined({Pick(strides, kept), Pick(strides, reduced)});
    if (codegen::IsArgReduction(item.kind) && item.num_reduced != 1) return std::nullopt;
    // AddReduction may add a dim.
    if (item.box.size() >= kGroupDimsMax) return std::nullopt;
    const int result = NewValue(at.out(0));
    AddReduction(at.operands[0], result, std::move(item));
    return std::vector<int>{result};
  }

  // A long reduction to few elements is split in two stages: to partial results, then of these.
  // That gives work to many threads, and rounds less.
  void AddReduction(int operand, int result, ReduceItem item) {
    const int num_parallel = static_cast<int>(item.box.size()) - item.num_reduced;
    const absl::Span<const int64_t> box = item.box;
    const int64_t kept = NumElements(box.subspan(0, num_parallel));
    const int64_t reduced = NumElements(box.subspan(num_parallel));
    // Whether neighbouring results are of neighbouring elements.
    const bool columns =
        num_parallel > 0 && item.box[num_parallel - 1] > 1 &&
        std::abs(item.access.strides[num_parallel - 1]) < std::abs(item.access.strides.back());
    if (codegen::IsArgReduction(item.kind) ||
        reduced < (columns ? kLongColumnMin : kLongReductionMin) || kept >= kPartialsMax / 2) {
      Add({operand}, {result}, std::move(item));
      return;
    }
    // The parts are whole dims, major ones first, then a divisor of the next dim.
    const int64_t wanted = std::min(kPartialsMax / kept, reduced / kPartElementsMin);
    int64_t parts = 1;
    int d = num_parallel;
    while (parts * item.box[d] <= wanted) parts *= item.box[d++];
    int64_t cut = wanted / parts;
    while (item.box[d] % cut != 0) --cut;
    if (cut > 1) {
      const Split split{d, item.box[d] / cut};
      Apply(split, &item.box);
      Apply(split, &item.access);
      parts *= cut;
      ++d;
    }
    if (parts < 2) {
      Add({operand}, {result}, std::move(item));
      return;
    }
    item.num_reduced = static_cast<int>(item.box.size()) - d;
    const ir::DType accumulator = ir::ComputeDType(out_.values[result].dtype);
    ReduceItem rest;
    rest.kind = item.kind;
    rest.box.assign(item.box.begin(), item.box.begin() + num_parallel);
    rest.box.push_back(parts);
    rest.num_reduced = 1;
    rest.access = Dense(rest.box, static_cast<int>(rest.box.size()));
    if (columns) {
      // The parts come first, so that columns stay next to each other.
      const auto parts_first = [&](Dims* dims) {
        std::rotate(dims->begin(), dims->begin() + num_parallel, dims->begin() + d);
      };
      parts_first(&item.box);
      parts_first(&item.access.strides);
      rest.access = Dense(rest.box, num_parallel);
      rest.access.strides.back() = kept;
    }
    const int partial = NewValue(accumulator, kept * parts);
    Add({operand}, {partial}, std::move(item));
    Add({partial}, {result}, std::move(rest));
  }

  // Neighbours along a dim are combined in pairs, minor dims first, which are the evaluator's: each
  // kernel does the pairs of some levels, from a run of neighbours to one. At last come the initial
  // values, the second half of the operands.
  std::optional<std::vector<int>> LowerReduceBy(const At& at) {
    const size_t n = at.op.results.size();
    const std::optional<ir::ScalarGraph> computation = ComputationOf(at);
    if (!computation) return std::nullopt;
    std::vector<int> xs(at.operands.begin(), at.operands.begin() + n);
    const std::vector<int> inits(at.operands.begin() + n, at.operands.end());
    const std::vector<int> results = NewResults(at);
    if (at.in(0).num_elements() == 0) {
      for (size_t k = 0; k < n; ++k)
        Add({inits[k]}, {results[k]}, ViewItem{{{out_.values[results[k]].elements}, {0, {0}, {}}}});
      return results;
    }
    Dims shape = at.in(0).shape;
    std::vector<int> reduced = ReducedDimsOf(at).reduced;
    std::sort(reduced.rbegin(), reduced.rend());
    for (const int d : reduced) {
      const int64_t outer = ElementsBefore(shape, d), inner = ElementsFrom(shape, d + 1);
      for (; shape[d] > 1; shape[d] = ir::NumRuns(shape[d], *computation))
        xs = CombineRuns(*computation, xs, {outer, shape[d], inner});
    }
    GraphBuilder graph;
    std::vector<int> in;
    std::vector<int> operands = Joined({inits, xs});
    for (const int v : operands)
      in.push_back(graph.Input(static_cast<int>(in.size()), out_.values[v].dtype));
    Add(std::move(operands), results,
        ScalarItem{std::move(graph).WithRoots(graph.Apply(*computation, in))});
    return results;
  }

  // Of values of shape (outer, rows, inner), each run of rows combined to one.
  std::vector<int> CombineRuns(const ir::ScalarGraph& computation, const std::vector<int>& xs,
                               const Dims& shape) {
    const int64_t outer = shape[0], rows = shape[1], inner = shape[2];
    const int64_t length = ir::RunLength(rows, computation), runs = rows / length,
                  rest = rows % length;
    if (runs == 0) return CombineRun(computation, xs, shape, {0, 1, rest});
    const std::vector<int> whole = CombineRun(computation, xs, shape, {0, runs, length});
    if (rest == 0) return whole;
    const std::vector<int> last = CombineRun(computation, xs, shape, {runs * length, 1, rest});
    std::vector<int> results;
    const auto piece = [&](int operand, int64_t from, int64_t count) {
      const Dims strides = {(runs + 1) * inner, inner, 1};
      return PiecesItem::Piece{{outer, count, inner},
                               operand,
                               {0, {count * inner, inner, 1}, {}},
                               {from * inner, strides, {}}};
    };
    for (size_t k = 0; k < xs.size(); ++k) {
      results.push_back(NewValue(out_.values[xs[k]].dtype, outer * (runs + 1) * inner));
      Add({whole[k], last[k]}, {results[k]}, PiecesItem{{piece(0, 0, runs), piece(1, runs, 1)}});
    }
    return results;
  }

  // `count` runs of `length` rows from row `first` on, each combined to one.
  struct Runs {
    int64_t first, count, length;
  };
  std::vector<int> CombineRun(const ir::ScalarGraph& computation, const std::vector<int>& xs,
                              const Dims& shape, const Runs& runs) {
    const int64_t rows = shape[1], inner = shape[2];
    const Dims box = {shape[0], runs.count, inner};
    const Dims strides = {rows * inner, runs.length * inner, 1};
    GraphBuilder graph;
    std::vector<int> views;
    std::vector<std::vector<int>> elements;  // nodes of each row of a run
    for (int64_t row = 0; row < runs.length; ++row) {
      std::vector<int>& element = elements.emplace_back();
      for (const int x : xs) {
        const ir::DType dtype = out_.values[x].dtype;
        element.push_back(graph.Input(static_cast<int>(views.size()), dtype));
        views.push_back(NewValue(dtype, NumElements(box)));
        Add({x}, {views.back()}, ViewItem{{box, {(runs.first + row) * inner, strides, {}}}});
      }
    }
    while (elements.size() > 1) {
      std::vector<std::vector<int>> combined;
      for (size_t i = 0; i + 1 < elements.size(); i += 2)
        combined.push_back(graph.Apply(computation, Joined({elements[i], elements[i + 1]})));
      if (elements.size() % 2 != 0) combined.push_back(elements.back());
      elements = std::move(combined);
    }
    std::vector<int> results;
    for (const int x : xs) results.push_back(NewValue(out_.values[x].dtype, NumElements(box)));
    Add(std::move(views), results, ScalarItem{std::move(graph).WithRoots(elements[0])});
    return results;
  }

  std::optional<std::vector<int>> LowerContract(const At& at) {
    if (IsEmpty(at)) return LowerEmpty(at);
    if (at.def().reduce != ir::ReduceKind::kSum) return std::nullopt;
    const ir::Signature s = SignatureOf(at);
    const std::set<int> a = FactorsIn(s.operands[0]), b = FactorsIn(s.operands[1]);
    const std::set<int> c = FactorsIn(s.results[0]);
    // The dims of each operand by their role. Batch and free dims are in the order of the result's,
    // contracted ones in that of the lhs.
    std::vector<int> batch[2], free[2], contracted[2];
    const auto find = [](const ir::TensorFactors& dims, const ir::FactorList& dim) {
      return static_cast<int>(std::find(dims.begin(), dims.end(), dim) - dims.begin());
    };
    int part = 0;  // the result's dims must be batch (0), then m (1), then n (2)
    for (const ir::FactorList& dim : s.results[0]) {
      const bool in_a = Has(a, dim), in_b = Has(b, dim);
      const int next = in_a && in_b ? 0 : in_a ? 1 : 2;
      if (next < part) return std::nullopt;
      part = next;
      if (part == 0) {
        batch[0].push_back(find(s.operands[0], dim));
        batch[1].push_back(find(s.operands[1], dim));
      } else {
        free[part - 1].push_back(find(s.operands[part - 1], dim));
      }
    }
    for (int d = 0; d < at.in(0).rank(); ++d) {
      if (Has(c, s.operands[0][d])) continue;
      const int other = find(s.operands[1], s.operands[0][d]);
      if (other >= at.in(1).rank()) return std::nullopt;
      contracted[0].push_back(d);
      contracted[1].push_back(other);
    }
    const Dims &x = at.in(0).shape, &y = at.in(1).shape;
    const Dims xs = ir::StridesOf(x), ys = ir::StridesOf(y);
    ContractItem item;
    item.batch = Pick(x, batch[0]);
    item.m = Pick(x, free[0]);
    item.k = Pick(x, contracted[0]);
    item.n = Pick(y, free[1]);
    item.a.strides = Joined({Pick(xs, batch[0]), Pick(xs, free[0]), Pick(xs, contracted[0])});
    item.b.strides = Joined({Pick(ys, batch[1]), Pick(ys, contracted[1]), Pick(ys, free[1])});
    // One product alone is no sum, which would make 0 of -0.
    const bool alone = NumElements(item.k) == 1;
    if (alone) {
      item.a.strides.resize(item.batch.size() + item.m.size());
      item.b.strides.erase(item.b.strides.begin() + item.batch.size(),
                           item.b.strides.begin() + item.batch.size() + item.k.size());
      item.k.clear();
    }
    const size_t dims = item.batch.size() + item.m.size() + item.n.size() + item.k.size();
    const auto has_matmul = [&](ir::DType in, ir::DType out) {
      const bool small = out == ir::DType::kF32 && dims < kGroupDimsMax && IsSmallMatmul(item);
      return options_.has_matmul && options_.has_matmul(in, out) && !small && !alone;
    };
    const ir::DType in = at.in(0).dtype, out = at.out(0).dtype;
    const ir::DType wide_in = ir::ComputeDType(in), wide_out = ir::ComputeDType(out);
    if (has_matmul(in, out)) {
      const int result = NewValue(at.out(0));
      Add(at.operands, {result}, std::move(item));
      return std::vector<int>{result};
    }
    // A library that does not take the narrow floats may take wide ones.
    if (has_matmul(wide_in, wide_out)) {
      const int wide = NewValue(wide_out, at.out(0).num_elements());
      const int a = AddConvert(at.operands[0], wide_in), b = AddConvert(at.operands[1], wide_in);
      Add({a, b}, {wide}, std::move(item));
      return std::vector<int>{AddConvert(wide, out)};
    }
    if (dims >= kGroupDimsMax) return std::nullopt;
    const int result = NewValue(at.out(0));
    AddContractionAsReduction(at, item, result);
    return std::vector<int>{result};
  }

  // The value in another dtype.
  int AddConvert(int value, ir::DType to) {
    const ir::DType from = out_.values[value].dtype;
    if (from == to) return value;
    const int converted = NewValue(to, out_.values[value].elements);
    Add({value}, {converted}, ScalarItem{ir::Canonical(ConvertGraph(from, to))});
    return converted;
  }

  bool IsSmallMatmul(const ContractItem& item) const {
    // At least as many columns as a kernel's vectors have lanes, in memory one after the other.
    constexpr int64_t kColumnsMin = 16;
    return !item.n.empty() && item.n.back() >= kColumnsMin && item.b.strides.back() == 1 &&
           NumElements(Joined({item.batch, item.m, item.n, item.k})) <= options_.small_matmul;
  }

  // Multiplies two views over (batch, m, n, k), and sums the products over k in f32 or wider.
  void AddContractionAsReduction(const At& at, const ContractItem& item, int result) {
    const Dims box = Joined({item.batch, item.m, item.n, item.k});
    const size_t nb = item.batch.size(), nm = item.m.size(), nn = item.n.size(), nk = item.k.size();
    ir::DType accumulator = at.out(0).dtype;
    if (ir::IsFloat(accumulator))
      accumulator = at.in(0).dtype == ir::DType::kF64 || accumulator == ir::DType::kF64
                        ? ir::DType::kF64
                        : ir::DType::kF32;
    View a{box, item.a}, b{box, item.b};
    a.access.strides.insert(a.access.strides.begin() + nb + nm, nn, 0);
    Dims b_strides(item.b.strides.begin(), item.b.strides.begin() + nb);
    b_strides.insert(b_strides.end(), nm, 0);
    b_strides.insert(b_strides.end(), item.b.strides.begin() + nb + nk, item.b.strides.end());
    b_strides.insert(b_strides.end(), item.b.strides.begin() + nb,
                     item.b.strides.begin() + nb + nk);
    b.access.strides = b_strides;
    const int64_t n = NumElements(box);
    const int x = NewValue(at.in(0).dtype, n), y = NewValue(at.in(1).dtype, n);
    Add({at.operands[0]}, {x}, ViewItem{std::move(a)});
    Add({at.operands[1]}, {y}, ViewItem{std::move(b)});
    const bool converts = accumulator != at.out(0).dtype;
    const int xy = nk == 0 && !converts ? result : NewValue(accumulator, n);
    Add({x, y}, {xy}, ScalarItem{MultiplyGraph(at.in(0).dtype, accumulator)});
    if (nk == 0) {
      if (converts) Add({xy}, {result}, ScalarItem{ConvertGraph(accumulator, at.out(0).dtype)});
      return;
    }
    ReduceItem sum;
    sum.kind = ir::ReduceKind::kSum;
    sum.box = box;
    sum.num_reduced = static_cast<int>(nk);
    sum.access = Dense(box, static_cast<int>(box.size()));
    if (!converts) return AddReduction(xy, result, std::move(sum));
    const int total = NewValue(accumulator, out_.values[result].elements);
    AddReduction(xy, total, std::move(sum));
    Add({total}, {result}, ScalarItem{ConvertGraph(accumulator, at.out(0).dtype)});
  }

  static ir::ScalarGraph ConvertGraph(ir::DType from, ir::DType to) {
    ir::ScalarGraph graph;
    graph.nodes = {{ir::ScalarPrim::kInput, from, {}}, {ir::ScalarPrim::kConvert, to, {0}}};
    graph.roots = {1};
    return graph;
  }
  static ir::ScalarGraph MultiplyGraph(ir::DType in, ir::DType accumulator) {
    ir::ScalarGraph graph;
    graph.nodes = {{ir::ScalarPrim::kInput, in, {}, 0}, {ir::ScalarPrim::kInput, in, {}, 1}};
    int x = 0, y = 1;
    if (in != accumulator) {
      graph.nodes.push_back({ir::ScalarPrim::kConvert, accumulator, {0}});
      graph.nodes.push_back({ir::ScalarPrim::kConvert, accumulator, {1}});
      x = 2;
      y = 3;
    }
    graph.nodes.push_back({ir::ScalarPrim::kMul, accumulator, {x, y}});
    graph.roots = {static_cast<int>(graph.nodes.size()) - 1};
    return graph;
  }

  // ---- Sorts. ----

  std::optional<std::vector<int>> LowerSort(const At& at) {
    const ir::SortRule rule = at.def().sort(at.op.attrs);
    const Dims& shape = at.in(0).shape;
    SortShape sort;
    sort.n = shape[rule.dimension];
    if (!options_.sort_scratch || sort.n > SortShape::kRowMax) return std::nullopt;
    sort.outer = ElementsBefore(shape, rule.dimension);
    sort.inner = ElementsFrom(shape, rule.dimension) / sort.n;
    sort.kept = rule.first.value_or(sort.n);
    for (size_t i = 0; i < at.operands.size(); ++i)
      sort.dtypes.push_back(at.in(static_cast<int>(i)).dtype);
    sort.num_keys = rule.num_keys;
    sort.descending = rule.descending;
    sort.indices = rule.indices;
    const std::vector<int> results = NewResults(at);
    std::vector<int> written = results;
    written.push_back(NewValue(ir::DType::kU8, options_.sort_scratch(sort)));
    Add(at.operands, std::move(written), SortItem{std::move(sort)});
    return results;
  }

  // ---- Collectives. ----

  // A collective works on contiguous blocks: its operand is packed to them before, its result is
  // unpacked after. nullopt: as it is.
  struct Packing {
    std::optional<View> pack, unpack;
  };
  static Packing PackingOf(const At& at, int64_t n, int64_t per_element) {
    const Dims& x = at.in(0).shape;
    const auto chunks = [&](int64_t dim) {  // n chunks along the dim
      return BlocksFirst(ElementsBefore(x, dim), n, ElementsFrom(x, dim) * per_element / n);
    };
    const auto concat = [n, per_element](const Dims& block, int64_t dim) {
      return BlocksInPlace(ElementsBefore(block, dim), n, ElementsFrom(block, dim) * per_element);
    };
    switch (at.def().collective) {
      case CollectiveKind::kAllGather:
        return {std::nullopt, concat(x, at.op.attrs.Int("all_gather_dimension"))};
      case CollectiveKind::kReduceScatter:
        return {chunks(at.op.attrs.Int("scatter_dimension")), std::nullopt};
      case CollectiveKind::kAllToAll: {
        const int64_t split = at.op.attrs.Int("split_dimension");
        Dims block = x;
        block[split] /= n;
        if (!at.op.attrs.Bool("tiled")) block.erase(block.begin() + split);
        return {chunks(split), concat(block, at.op.attrs.Int("concat_dimension"))};
      }
      default:
        return {};
    }
  }

  int AddView(int operand, const View& view) {
    if (view.shape[0] == 1 || view.shape[1] == 1) return operand;  // The order stays the same.
    const int result = NewValue(out_.values[operand].dtype, out_.values[operand].elements);
    Add({operand}, {result}, ViewItem{view});
    return result;
  }

  std::vector<int> LowerCollective(const At& at) {
    const ir::AxisList& axes = at.op.attrs.Strings("axes");
    const CollectiveKind kind = at.def().collective;
    if (kind == CollectiveKind::kAxisIndex) {
      const int result = NewValue(at.out(0));
      Add({}, {result}, AxisIndexItem{axes});
      return {result};
    }
    const int64_t n = at.f.scope.mesh.SizeOf(axes);
    if (n == 1 && !ir::InfoOf(kind).paired) {
      return {at.operands[0]};  // The group is this device alone.
    }
    CollectiveStep step;
    step.kind = kind;
    step.reduce = at.def().reduce;
    step.axes = axes;
    step.group_size = static_cast<int>(n);
    const Carrier carrier = CarrierOf(at.in(0).dtype);
    step.dtype = carrier.dtype;
    step.elements = at.in(0).num_elements() * carrier.per_element;
    const Packing packing = PackingOf(at, n, carrier.per_element);
    int in = at.operands[0];
    if (packing.pack) {
      in = AddView(in, *packing.pack);
      step.elements /= n;
    }
    if (kind == CollectiveKind::kPermute) {
      const std::vector<int64_t>& perm = at.op.attrs.Ints("perm");
      for (size_t i = 0; i + 1 < perm.size(); i += 2)
        step.pairs.emplace_back(static_cast<int>(perm[i]), static_cast<int>(perm[i + 1]));
    }
    if (ir::InfoOf(kind).combines && options_.has_reduction &&
        !options_.has_reduction(step.reduce, step.dtype)) {
      return LowerByGathering(in, std::move(step));
    }
    const bool each = ir::InfoOf(kind).out == ir::BlockCount::kEach;
    int out = NewValue(step.dtype, each ? step.elements * n : step.elements);
    Add({in}, {out}, CollectiveItem{std::move(step)});
    if (packing.unpack) out = AddView(out, *packing.unpack);
    return {out};
  }

  // Does an all_reduce by an all_gather and a reduction, in the order of the group, and a
  // reduce_scatter by an all_to_all and one.
  std::vector<int> LowerByGathering(int in, CollectiveStep step) {
    ReduceItem reduce;
    reduce.kind = step.reduce;
    reduce.box = {step.elements, step.group_size};
    reduce.num_reduced = 1;
    reduce.access.strides = {1, step.elements};
    step.kind = step.kind == CollectiveKind::kAllReduce ? CollectiveKind::kAllGather
                                                        : CollectiveKind::kAllToAll;
    step.reduce = ir::ReduceKind::kNone;
    const int blocks = NewValue(step.dtype, step.elements * step.group_size);
    const int result = NewValue(step.dtype, step.elements);
    Add({in}, {blocks}, CollectiveItem{std::move(step)});
    Add({blocks}, {result}, std::move(reduce));
    return {result};
  }

  // ---- Regions. ----

  std::vector<int> LowerRegions(const At& at) {
    const ir::DataFlow flow = ir::DataFlowOf(at.f, at.op);
    if (!flow.manual_axes.empty()) return LowerToHost(at);
    if (at.def().RoleOf(0) == ir::RegionRole::kBranch) return LowerBranches(at, flow);
    if (at.def().RoleOf(0) == ir::RegionRole::kPredicate) return LowerWhile(at, flow);
    return ir::IsCall(at.def(), flow) ? LowerCall(at, flow.regions[0], *at.op.regions[0])
                                      : LowerLoop(at, flow);
  }

  // The lowered operands as the region's params.
  static std::vector<int> ArgsOf(const At& at, const ir::RegionDataFlow& edges,
                                 const ir::Function& region) {
    std::vector<int> args(region.num_params, -1);
    for (const ir::DataFlowEdge& edge : edges.operands) args[edge.inner] = at.operands[edge.outer];
    return args;
  }

  std::vector<int> LowerCall(const At& at, const ir::RegionDataFlow& edges,
                             const ir::Function& region) {
    const std::vector<int> inner = LowerFunction(region, ArgsOf(at, edges, region));
    std::vector<int> results(at.op.results.size(), -1);
    for (const ir::DataFlowEdge& edge : edges.results) results[edge.outer] = inner[edge.inner];
    return results;
  }

  std::vector<int> NewResults(const At& at) {
    std::vector<int> results;
    for (const ir::Type& t : at.out_types()) results.push_back(NewValue(t));
    return results;
  }

  // Adds the updates of `to` by `from`, which are simultaneous: one that reads what another writes
  // reads a copy.
  void AddUpdates(const std::vector<std::pair<int, int>>& from_to, Block* block) {
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

  // ---- Branches. ----

  std::vector<int> LowerBranches(const At& at, const ir::DataFlow& flow) {
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

  // ---- Loops. ----

  // The predicate is computed before the loop and, of the new carries, at the end of each
  // iteration. One within the predicate of another is therefore lowered twice as often.
  std::vector<int> LowerWhile(const At& at, const ir::DataFlow& flow) {
    const ir::Function &predicate = *at.op.regions[0], &body = *at.op.regions[1];
    const std::vector<int> results = NewResults(at);
    std::vector<int> args = ArgsOf(at, flow.regions[1], body);
    std::vector<int> predicate_args = ArgsOf(at, flow.regions[0], predicate);
    const int condition = NewValue(ir::DType::kBool, 1);
    Add({LowerPredicate(predicate, predicate_args)}, {condition}, CopyItem{});
    std::map<int, int> carried;  // operand of the op, result of the body
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

  int LowerPredicate(const ir::Function& predicate, const std::vector<int>& args) {
    if (++predicate_depth_ > kPredicateDepthMax)
      Throw(ErrorKind::kNotImplemented,
            absl::StrCat(out_.labels[label_], ": while loops stand more than ", kPredicateDepthMax,
                         " deep in the predicates of others; compute one in the body and carry "
                         "its result"));
    const int holds = LowerFunction(predicate, args)[0];
    --predicate_depth_;
    return holds;
  }

  // Adds a value that is one row of `whole` in each iteration.
  int AddSubview(int whole, const ir::Type& row, int loop, const ir::DataFlow& flow) {
    const int value = NewValue(row);
    const int64_t n = out_.values[value].elements;
    out_.values[value].subview = Value::Subview{whole, flow.reverse ? (flow.trip_count - 1) * n : 0,
                                                loop, flow.reverse ? -n : n};
    return value;
  }

  std::vector<int> LowerLoop(const At& at, const ir::DataFlow& flow) {
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
      updates.emplace_back(inner[edge.inner],
                           edge.leading_dim
                               ? AddSubview(results[edge.outer],
                                            body.type(body.results[edge.inner]), item.loop, flow)
                               : results[edge.outer]);
    AddUpdates(updates, &item.body);
    items_ = outer;
    Add({}, results, std::move(item));
    return results;
  }

  const BuildOptions& options_;
  Lowered out_;
  std::vector<Item>* items_ = nullptr;
  int label_ = -1;
  int predicate_depth_ = 0;
  absl::Status refused_;
};

}  // namespace

std::string LabelOf(const ir::Function& f, size_t op) {
  const std::string site = op < f.sites.size() ? f.sites[op].ToString() : "";
  return absl::StrCat(ToAbsl(f.ops[op].def->lax_name), site.empty() ? "" : " (", site,
                      site.empty() ? "" : ")");
}

absl::StatusOr<Lowered> Lower(const ir::Function& function, const BuildOptions& options) {
  Lowerer lowerer(options);
  TESSERA_RETURN_IF_ERROR(CatchStatus([&] { lowerer.Run(function); }));  // Rules of ops throw.
  return std::move(lowerer).Take();
}

}  // namespace tessera::worker::program
