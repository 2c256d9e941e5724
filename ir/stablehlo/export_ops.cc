// The rows that write each op as StableHLO. An op that StableHLO has under the same name and with
// the same attributes needs no row.
#include <algorithm>
#include <array>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "base/status_exception.h"
#include "ir/derive/computation_graph.h"
#include "ir/eval/eval.h"
#include "ir/ops.h"
#include "ir/stablehlo/exporter.h"

namespace tessera::ir::stablehlo {
namespace {

using NamedAttrs = Module::NamedAttrs;

Type ScalarOf(const Type& type) { return MakeType(type.dtype, {}); }

// ---- By the op's own name and attributes. -------------------------------------------------------
bool StableHloHas(const OpDef& def) {
  return FindOpRow("vhlo", def.name, 1) != nullptr && def.regions.empty();
}
// Returns whether an attribute is not written: the type of the result implies it, or it is a hint.
bool IsLeftOut(std::string_view attr) {
  return attr == "shape" || attr == "dtype" || attr == "weak" || attr == "out_sharding" ||
         attr == "preferred_element_type" || attr == "mode" || attr == "fill_value";
}
// Converts attributes by their C++ type, since most have the same name and meaning in StableHLO.
// Exceptions are listed here: `precision` becomes a list, some integers have 32 bits, and empty
// lists of batching dims are left out so that older versions of StableHLO are sufficient.
NamedAttrs AttrsOf(Exporter& out, const SourceOp& op) {
  NamedAttrs attrs;
  Module& m = out.module();
  for (const auto& [name, value] : op.attrs().map()) {
    if (IsLeftOut(name)) continue;
    if (name == "precision") {  // one for each operand
      const auto precision = static_cast<uint64_t>(PrecisionOf(op.attrs()));
      const uint32_t attr = m.Enum(AttrKind::kPrecision, precision);
      attrs.emplace_back("precision_config", m.List({attr, attr}));
      continue;
    }
    if (const auto* number = std::get_if<int64_t>(&value)) {
      const bool is_bit_count = name == "exponent_bits" || name == "mantissa_bits";
      attrs.emplace_back(name, m.Int(*number, is_bit_count ? DType::kS32 : DType::kS64));
    } else if (const auto* truth = std::get_if<bool>(&value)) {
      attrs.emplace_back(name, m.Bool(*truth));
    } else if (const auto* ints = std::get_if<std::vector<int64_t>>(&value)) {
      // Older versions lack these attributes, and an empty list has no meaning.
      if (!ints->empty() || name.find("batching_dims") == std::string::npos ||
          name.find("hs_batching") != std::string::npos)
        attrs.emplace_back(name, m.Ints(*ints));
    } else if (const auto* array = std::get_if<Array>(&value)) {
      attrs.emplace_back(name, m.Dense(*array));
    } else {
      out.Refuse(op, absl::StrCat("has an attribute ", name, " that StableHLO has no form for"));
    }
  }
  return attrs;
}
ValueIds WriteSameName(Exporter& out, const SourceOp& op) {
  return out.Emit(op.op.def->name, op.in, op.out_types(), AttrsOf(out, op));
}

// ---- Elementwise. -------------------------------------------------------------------------------
ValueIds WriteCompare(Exporter& out, const SourceOp& op) {
  constexpr std::array<std::string_view, 6> kDirections = {"EQ", "NE", "GE", "GT", "LE", "LT"};
  enum Kind : uint64_t { kFloat = 1, kTotalOrder, kSigned, kUnsigned };
  const DType dtype = op.in_type(0).dtype;
  const Kind kind = op.attrs().Has("compare_type") && IsFloat(dtype) ? kTotalOrder
                    : IsInexact(dtype)                               ? kFloat
                    : IsSignedInt(dtype)                             ? kSigned
                                                                     : kUnsigned;
  const auto direction =
      std::find(kDirections.begin(), kDirections.end(), op.attrs().Str("direction"));
  Module& m = out.module();
  return out.Emit("compare", op.in, op.out_types(),
                  {{"compare_type", m.Enum(AttrKind::kComparisonType, kind)},
                   {"comparison_direction",
                    m.Enum(AttrKind::kComparisonDirection, direction - kDirections.begin())}});
}

// ---- Ops in terms of other ops. -----------------------------------------------------------------
template <ExpandFn kExpand>
ValueIds WriteExpanded(Exporter& out, const SourceOp& op) {
  return out.Inline(*Expanded(op, kExpand), op.in);
}
template <ExpandFn kExpand>
ValueIds WriteComposite(Exporter& out, const SourceOp& op) {
  const FunctionRef f = out.Decomposition(op, [&] { return Expanded(op, kExpand); });
  return out.Composite(absl::StrCat("tessera.", ToAbsl(op.op.def->name)), op.attrs(), f, op.in);
}

// StableHLO's op `sign` does not take unsigned integers.
ValueIds WriteSign(Exporter& out, const SourceOp& op) {
  const DType dtype = op.in_type(0).dtype;
  if (IsInteger(dtype) && !IsSignedInt(dtype)) return WriteExpanded<ExpandElementwise>(out, op);
  return WriteSameName(out, op);
}

// ---- Computations. ------------------------------------------------------------------------------
// Returns the op by which a reduction combines, or "" if it is not an op of two operands.
std::string_view CombinerOf(ReduceKind kind) {
  switch (kind) {
    case ReduceKind::kSum:
      return "add";
    case ReduceKind::kProd:
      return "multiply";
    case ReduceKind::kMax:
      return "maximum";
    case ReduceKind::kMin:
      return "minimum";
    case ReduceKind::kAnd:
      return "and";
    case ReduceKind::kOr:
      return "or";
    default:
      return "";
  }
}
// Writes an op whose region combines two scalars, with an attribute `dimensions` or a window.
ValueIds EmitWithCombiner(Exporter& out, const SourceOp& op, std::string_view name, ValueIds in,
                          const NamedAttrs& attrs) {
  const Type scalar = ScalarOf(op.in_type(0));
  const auto combine = [&](const ValueIds& args) -> ValueIds {
    return {out.Emit1(CombinerOf(op.op.def->reduce), args, scalar)};
  };
  return out.Emit(name, in, op.out_types(), attrs, {{{scalar, scalar}, combine}});
}
ValueIds WriteReduction(Exporter& out, const SourceOp& op) {
  const uint32_t init = out.Constant(IdentityOf(*op.op.def, op.in_type(0).dtype));
  return EmitWithCombiner(out, op, "reduce", {op.in[0], init},
                          {{"dimensions", out.module().Ints(op.attrs().Ints("dimensions"))}});
}
// A cumulative op is a window over all elements before, or after, each element. A sum starts at -0,
// so that an element -0 stays -0.
template <const OpDef* kReduction>
ValueIds WriteCumulative(Exporter& out, const SourceOp& op) {
  const Type& x = op.in_type(0);
  const int64_t dim = op.attrs().Int("dimension"), n = x.shape[dim];
  if (x.num_elements() == 0 || n == 1) return op.in;
  const bool sums_floats = kReduction == &ops::kReduceSum && IsFloat(x.dtype);
  const uint32_t init =
      out.Constant(sums_floats ? Array::Scalar(x.dtype, -0.0) : IdentityOf(*kReduction, x.dtype));
  std::vector<int64_t> window(x.rank(), 1), padding(2 * x.rank(), 0);
  const std::vector<int64_t> ones = window;
  window[dim] = n;
  padding[2 * dim + (op.attrs().Bool("reverse") ? 1 : 0)] = n - 1;
  Module& m = out.module();
  return EmitWithCombiner(out, op, "reduce_window", {op.in[0], init},
                          {{"base_dilations", m.Ints(ones)},
                           {"padding", m.Ints(padding, {x.rank(), 2})},
                           {"window_dilations", m.Ints(ones)},
                           {"window_dimensions", m.Ints(window)},
                           {"window_strides", m.Ints(ones)}});
}
// Writes an op with a computation that StableHLO has under `name`.
ValueIds EmitWithComputation(Exporter& out, const SourceOp& op, std::string_view name,
                             const NamedAttrs& attrs) {
  const Function& f = *op.op.regions[0];
  const auto body = [&](const ValueIds& args) { return out.Inline(f, args); };
  return out.Emit(name, op.in, op.out_types(), attrs, {{f.param_types(), body}});
}
ValueIds WriteReduce(Exporter& out, const SourceOp& op) {
  return EmitWithComputation(out, op, "reduce", AttrsOf(out, op));
}
ValueIds WriteSortBy(Exporter& out, const SourceOp& op) {
  return EmitWithComputation(out, op, "sort", AttrsOf(out, op));
}

ValueIds WriteConvolution(Exporter& out, const SourceOp& op) {
  NamedAttrs attrs = AttrsOf(out, op);
  Module& m = out.module();
  const auto spatial = static_cast<int64_t>(op.attrs().Ints("window_strides").size());
  for (auto& [name, attr] : attrs)
    if (name == "padding") attr = m.Ints(op.attrs().Ints("padding"), {spatial, 2});
  attrs.emplace_back("window_reversal", m.Dense(Array(DType::kBool, {spatial})));
  return out.Emit("convolution", op.in, op.out_types(), attrs);
}

ValueIds WriteTriangularSolve(Exporter& out, const SourceOp& op) {
  NamedAttrs attrs;
  Module& m = out.module();
  for (const char* const name : {"left_side", "lower", "unit_diagonal"})
    attrs.emplace_back(name, m.Bool(op.attrs().Bool(name)));
  const std::string& transpose = op.attrs().Str("transpose_a");
  const uint64_t kind = transpose == "NO_TRANSPOSE" ? 1 : transpose == "TRANSPOSE" ? 2 : 3;
  attrs.emplace_back("transpose_a", m.Enum(AttrKind::kTranspose, kind));
  return out.Emit("triangular_solve", op.in, op.out_types(), attrs);
}

ValueIds WriteFft(Exporter& out, const SourceOp& op) {
  Module& m = out.module();
  constexpr std::string_view kTypes[] = {"FFT", "IFFT", "RFFT", "IRFFT"};
  const auto* const type =
      std::find(std::begin(kTypes), std::end(kTypes), op.attrs().Str("fft_type"));
  return out.Emit("fft", op.in, op.out_types(),
                  {{"fft_type", m.Enum(AttrKind::kFftType, type - std::begin(kTypes))},
                   {"fft_length", m.Ints(op.attrs().Ints("fft_length"))}});
}

// ---- Windows at indices. ------------------------------------------------------------------------
bool HasMode(const SourceOp& op, std::string_view mode) {
  return op.attrs().Has("mode") && op.attrs().Str("mode") == mode;
}
ValueIds WriteGather(Exporter& out, const SourceOp& op) {
  if (HasMode(op, "fill_or_drop")) return WriteExpanded<ExpandFilledGather>(out, op);
  return WriteSameName(out, op);
}
// StableHLO drops a window that is not within the operand, so the mode "clip" must be expanded.
ValueIds WriteScatter(Exporter& out, const SourceOp& op) {
  if (HasMode(op, "clip")) return WriteExpanded<ExpandClippedScatter>(out, op);
  if (!op.op.regions.empty()) return EmitWithComputation(out, op, "scatter", AttrsOf(out, op));
  if (op.op.def->reduce != ReduceKind::kNone)
    return EmitWithCombiner(out, op, "scatter", op.in, AttrsOf(out, op));
  const Type scalar = ScalarOf(op.in_type(0));
  const auto update = [](const ValueIds& args) -> ValueIds { return {args[1]}; };
  return out.Emit("scatter", op.in, op.out_types(), AttrsOf(out, op), {{{scalar, scalar}, update}});
}

// ---- Control. -----------------------------------------------------------------------------------
ValueIds WriteCall(Exporter& out, const SourceOp& op) { return out.Call(op.op.regions[0], op.in); }

ValueIds Slice(const ValueIds& values, size_t begin, size_t count) {
  return {values.begin() + begin, values.begin() + begin + count};
}
ValueIds Concat(ValueIds a, const ValueIds& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

ValueIds WriteWhile(Exporter& out, const SourceOp& op) {
  const auto num_predicate_consts = static_cast<size_t>(op.attrs().Int("num_predicate_consts"));
  const auto num_body_consts = static_cast<size_t>(op.attrs().Int("num_body_consts"));
  const ValueIds predicate_consts = Slice(op.in, 0, num_predicate_consts);
  const ValueIds body_consts = Slice(op.in, num_predicate_consts, num_body_consts);
  const size_t num_consts = num_predicate_consts + num_body_consts;
  const ValueIds carry = Slice(op.in, num_consts, op.in.size() - num_consts);
  // A region of StableHLO refers directly to the outside values that it uses.
  const auto predicate = [&](const ValueIds& args) {
    return out.Inline(*op.op.regions[0], Concat(predicate_consts, args));
  };
  const auto body = [&](const ValueIds& args) {
    return out.Inline(*op.op.regions[1], Concat(body_consts, args));
  };
  const std::vector<Type> types = op.out_types();
  return out.Emit("while", carry, types, {}, {{types, predicate}, {types, body}});
}

// StableHLO runs the last branch for any index out of range, while our index is clamped. So clamp
// it first.
ValueIds WriteCase(Exporter& out, const SourceOp& op) {
  const size_t n = op.op.regions.size();
  const Type& type = op.in_type(0);
  const uint32_t first = out.Constant(Array::ScalarInt(type.dtype, 0));
  const uint32_t last = out.Constant(Array::ScalarInt(type.dtype, static_cast<int64_t>(n) - 1));
  const uint32_t index = out.Emit1("clamp", {first, op.in[0], last}, type);
  const ValueIds operands = Slice(op.in, 1, op.in.size() - 1);
  std::vector<std::function<ValueIds(const ValueIds&)>> bodies;
  for (const FunctionRef& branch : op.op.regions)
    bodies.emplace_back(
        [&out, &operands, f = branch.get()](const ValueIds&) { return out.Inline(*f, operands); });
  std::vector<Exporter::Region> branches;
  for (const auto& body : bodies) branches.push_back({{}, body});
  return out.Emit("case", {index}, op.out_types(), {}, branches);
}

// Writes a scan as a loop that counts. Each iteration takes a slice of the xs and writes a slice of
// the ys.
ValueIds WriteScan(Exporter& out, const SourceOp& op) {
  Module& m = out.module();
  const Function& f = *op.op.regions[0];
  const auto num_consts = static_cast<size_t>(op.attrs().Int("num_consts"));
  const auto num_carry = static_cast<size_t>(op.attrs().Int("num_carry"));
  const int64_t length = op.attrs().Int("length");
  const bool reverse = op.attrs().Bool("reverse");
  const size_t num_xs = op.in.size() - num_consts - num_carry;
  const size_t num_ys = op.num_results() - num_carry;
  const ValueIds consts = Slice(op.in, 0, num_consts);
  const ValueIds xs = Slice(op.in, num_consts + num_carry, num_xs);
  const Type counter = MakeType(DType::kS64, {});
  const auto number = [&](int64_t value) {
    return out.Constant(Array::ScalarInt(DType::kS64, value));
  };
  ValueIds carry = Slice(op.in, num_consts, num_carry);
  for (size_t y = 0; y < num_ys; ++y) {
    const Type& type = op.out_type(num_carry + y);
    const uint32_t zero = out.Constant(Array(type.dtype, {}));
    carry.push_back(
        out.Emit1("broadcast_in_dim", {zero}, type, {{"broadcast_dimensions", m.Ints({})}}));
  }
  if (length == 0) return carry;
  const uint32_t begin = number(0), end = number(length), step = number(1), zero = begin;
  const uint32_t last = number(length - 1);
  const auto predicate = [&](const ValueIds& args) -> ValueIds {
    return {out.Emit1("compare", {args[0], end}, MakeType(DType::kBool, {}),
                      {{"compare_type", m.Enum(AttrKind::kComparisonType, 3)},
                       {"comparison_direction", m.Enum(AttrKind::kComparisonDirection, 5)}})};
  };
  // `offsets` returns the start indices of slice `at`, and `row_of` the type of one slice of an
  // array.
  const auto offsets = [&](uint32_t at, int rank) {
    ValueIds starts(rank, zero);
    starts[0] = at;
    return starts;
  };
  const auto row_of = [](const Type& all) {
    Type row = MakeType(all.dtype, all.shape);
    row.shape[0] = 1;
    return row;
  };
  const auto body = [&](const ValueIds& args) {
    const uint32_t at = reverse ? out.Emit1("subtract", {last, args[0]}, counter) : args[0];
    ValueIds in = Concat(consts, Slice(args, 1, num_carry));
    for (size_t x = 0; x < num_xs; ++x) {
      const Type row = row_of(op.in_type(num_consts + num_carry + x));
      const uint32_t slice = out.Emit1("dynamic_slice", Concat({xs[x]}, offsets(at, row.rank())),
                                       row, {{"slice_sizes", m.Ints(row.shape)}});
      in.push_back(out.Emit1("reshape", {slice}, f.type(static_cast<ValueId>(in.size()))));
    }
    const ValueIds body_results = out.Inline(f, in);
    ValueIds next = {out.Emit1("add", {args[0], step}, counter)};
    next = Concat(next, Slice(body_results, 0, num_carry));
    for (size_t y = 0; y < num_ys; ++y) {
      const Type& all = op.out_type(num_carry + y);
      const uint32_t row = out.Emit1("reshape", {body_results[num_carry + y]}, row_of(all));
      const uint32_t before = args[1 + num_carry + y];
      next.push_back(
          out.Emit1("dynamic_update_slice", Concat({before, row}, offsets(at, all.rank())), all));
    }
    return next;
  };
  std::vector<Type> types = {counter};
  for (const Type& type : op.out_types()) types.push_back(type);
  const ValueIds results =
      out.Emit("while", Concat({begin}, carry), types, {}, {{types, predicate}, {types, body}});
  return Slice(results, 1, results.size() - 1);
}

// Writes the body of an op that runs its first region once.
ValueIds WriteBody(Exporter& out, const SourceOp& op, const DataFlow& flow) {
  const Function& f = *op.op.regions[0];
  ValueIds args(f.num_params), results(op.num_results());
  for (const DataFlowEdge& edge : flow.regions[0].operands) args[edge.inner] = op.in[edge.outer];
  const ValueIds inner = out.Inline(f, args);
  for (const DataFlowEdge& edge : flow.regions[0].results) results[edge.outer] = inner[edge.inner];
  return results;
}

constexpr ExportRow kRows[] = {
    {&ops::kCompare, WriteCompare},
    {&ops::kSign, WriteSign},
    {&ops::kReduceSum, WriteReduction},
    {&ops::kReduceProd, WriteReduction},
    {&ops::kReduceMax, WriteReduction},
    {&ops::kReduceMin, WriteReduction},
    {&ops::kReduceAnd, WriteReduction},
    {&ops::kReduceOr, WriteReduction},
    {&ops::kReduce, WriteReduce},
    {&ops::kArgMax, WriteComposite<ExpandArg>},
    {&ops::kArgMin, WriteComposite<ExpandArg>},
    {&ops::kCumsum, WriteCumulative<&ops::kReduceSum>},
    {&ops::kCumprod, WriteCumulative<&ops::kReduceProd>},
    {&ops::kCummax, WriteCumulative<&ops::kReduceMax>},
    {&ops::kCummin, WriteCumulative<&ops::kReduceMin>},
    {&ops::kCumlogsumexp, WriteComposite<ExpandCumlogsumexp>},
    {&ops::kSort, WriteComposite<ExpandSort>},
    {&ops::kSortBy, WriteSortBy},
    {&ops::kTopK, WriteComposite<ExpandTopK>},
    {&ops::kTriangularSolve, WriteTriangularSolve},
    {&ops::kConvolution, WriteConvolution},
    {&ops::kFft, WriteFft},
    {&ops::kSlidingWindowView, WriteExpanded<ExpandWindows>},
    {&ops::kGather, WriteGather},
    {&ops::kScatter, WriteScatter},
    {&ops::kScatterAdd, WriteScatter},
    {&ops::kScatterMul, WriteScatter},
    {&ops::kScatterMin, WriteScatter},
    {&ops::kScatterMax, WriteScatter},
    {&ops::kScatterBy, WriteScatter},
    {&ops::kCall, WriteCall},
    {&ops::kWhile, WriteWhile},
    {&ops::kCase, WriteCase},
    {&ops::kScan, WriteScan},
};

}  // namespace

const ExportRow* FindExport(const OpDef& def) {
  static const auto* const kByDef = [] {
    auto* rows = new std::unordered_map<const OpDef*, const ExportRow*>();
    for (const ExportRow& row : kRows) rows->emplace(row.def, &row);
    for (const ExportRow& row : ShardedRows()) rows->emplace(row.def, &row);
    for (const ExportRow& row : LapackRows()) rows->emplace(row.def, &row);
    return rows;
  }();
  const auto found = kByDef->find(&def);
  return found == kByDef->end() ? nullptr : found->second;
}

ValueIds Exporter::WriteOp(const SourceOp& op) {
  const OpDef& def = *op.op.def;
  if (const ExportRow* const row = FindExport(def); row != nullptr) return row->write(*this, op);
  if (StableHloHas(def) && def.lowering != Lowering::kCollective) return WriteSameName(*this, op);
  if (def.lowering == Lowering::kScalar) return WriteComposite<ExpandElementwise>(*this, op);
  if (def.lowering == Lowering::kAlias) return op.in;
  if (def.data_flow != nullptr) {
    const std::vector<Type> in = op.in_types();
    const DataFlow flow = def.data_flow({def, op.f.scope, in, op.attrs(), op.op.regions});
    if (IsCall(def, flow)) return WriteBody(*this, op, flow);
  }
  Refuse(op, "is an op that StableHLO lacks, without a decomposition");
}

FunctionRef Expanded(const SourceOp& op, ExpandFn expand) {
  Builder b(Scope{}, std::string(op.op.def->name));
  RuleContext c{b, *op.op.def, op.attrs(), op.op.regions, {}, {}, op.in_types(), op.out_types()};
  for (const Type& t : c.in_types) c.in.push_back(b.Param(MakeType(t.dtype, t.shape)));
  const std::vector<Value> results = expand(c);
  return b.Build(results);
}

}  // namespace tessera::ir::stablehlo
