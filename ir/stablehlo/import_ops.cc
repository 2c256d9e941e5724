// The rows that import ops: for each op of StableHLO, a function that emits the same in our ops.
// Importer::Emit finds the row and checks the result types afterwards.
#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_exception.h"
#include "ir/eval/eval.h"
#include "ir/fft.h"
#include "ir/ops.h"
#include "ir/ops/regions/computation.h"
#include "ir/registry.h"
#include "ir/stablehlo/importer.h"
#include "ir/stablehlo/on_shards.h"
#include "ir/stablehlo/quantized.h"

namespace tessera::ir::stablehlo {
namespace {

using Results = std::vector<Value>;

void NeedOperands(const OpReader& op, size_t n) {
  if (op.in.size() != n)
    op.Malformed(absl::StrCat("has ", op.in.size(), " operands; expected ", n));
}

// ---- Elementwise. -------------------------------------------------------------------------------
// Imports ops that have the same name here and no attributes other than result_accuracy, which is
// ignored.
Results ImportSameName(const OpReader& op) {
  const OpDef* const def = FindOp(op.Name());
  if (def == nullptr) op.NotSupported("is an op that Tessera lacks");
  NeedOperands(op, def->num_operands);
  constexpr int64_t kOpsPerComplexFunction = 40;  // for some functions of complex numbers
  if (!op.in.empty() && IsComplex(op.in[0].dtype())) op.ChargeOps(kOpsPerComplexFunction);
  return {Elementwise(*def, op.in)};
}
// Imports an op on numbers, or as `of_booleans` if the operands are booleans. The ops of a
// computation come through here, too, so a reduction of booleans by `add` becomes one by "or".
Results ImportNumbersOrBooleans(const OpReader& op, const OpDef& of_booleans) {
  const bool is_bool = !op.in.empty() && op.in[0].dtype() == DType::kBool;
  if (!is_bool) return ImportSameName(op);
  NeedOperands(op, of_booleans.num_operands);
  return {Elementwise(of_booleans, op.in)};
}
Results ImportAdd(const OpReader& op) { return ImportNumbersOrBooleans(op, ops::kOr); }
Results ImportMultiply(const OpReader& op) { return ImportNumbersOrBooleans(op, ops::kAnd); }
Results ImportReal(const OpReader& op) {
  NeedOperands(op, 1);
  return {IsComplex(op.in[0].dtype()) ? Real(op.in[0]) : op.in[0]};
}
// The imaginary part of a real number is 0.
Results ImportImag(const OpReader& op) {
  NeedOperands(op, 1);
  return {IsComplex(op.in[0].dtype()) ? Imag(op.in[0]) : FullLike(op.in[0], 0)};
}
Results ImportComplex(const OpReader& op) {
  NeedOperands(op, 2);
  return {Complex(op.in[0], op.in[1])};
}

// JAX writes the position along an axis as the remainder of a quotient (see PositionAlongAxis).
Results ImportRemainder(const OpReader& op) {
  const std::optional<Value> position = PositionAlongAxis(op);
  return position ? Results{*position} : ImportSameName(op);
}
Results ImportCompare(const OpReader& op) {
  NeedOperands(op, 2);
  constexpr std::array<const char*, 6> kDirections = {"EQ", "NE", "GE", "GT", "LE", "LT"};
  const uint64_t direction = op.Enum("comparison_direction", AttrKind::kComparisonDirection);
  if (direction >= kDirections.size()) op.Malformed("compares in no known direction");
  constexpr int64_t kTotalOrder = 2;
  const bool is_total_order = op.Enum("compare_type", AttrKind::kComparisonType) == kTotalOrder;
  return {is_total_order ? CompareTotalOrder(op.in[0], op.in[1], kDirections[direction])
                         : Compare(op.in[0], op.in[1], kDirections[direction])};
}
Results ImportSelect(const OpReader& op) {
  NeedOperands(op, 3);
  return {Select(op.in[0], op.in[1], op.in[2])};
}
Results ImportClamp(const OpReader& op) {
  NeedOperands(op, 3);
  return {Clamp(op.in[0], op.in[1], op.in[2])};
}
Results ImportConvert(const OpReader& op) {
  NeedOperands(op, 1);
  return {Convert(op.in[0], op.ResultType().dtype)};
}
Results ImportReducePrecision(const OpReader& op) {
  NeedOperands(op, 1);
  return {ReducePrecision(op.in[0], op.SmallInt("exponent_bits"), op.SmallInt("mantissa_bits"))};
}
Results ImportMap(const OpReader& op) { return MapComputation(op.Inlined(0), op.in); }

// ---- Movement. ----------------------------------------------------------------------------------
Results ImportConstant(const OpReader& op) {
  Tensor tensor = op.Constant("value");
  const Value literal = Constant(op.b(), std::move(tensor.literal));
  if (!tensor.is_splat || tensor.type.rank() == 0) return {literal};
  return {BroadcastInDim(literal, tensor.type.shape, {})};
}
Results ImportIota(const OpReader& op) {
  const Type type = op.ResultType();
  // Numbers without kernels are converted from s32.
  const DType dtype = IsComputable(type.dtype) ? type.dtype : DType::kS32;
  const Value iota = Iota(op.b(), dtype, type.shape, op.SmallInt("iota_dimension"));
  return {Convert(iota, type.dtype)};
}
Results ImportBroadcastInDim(const OpReader& op) {
  NeedOperands(op, 1);
  return {BroadcastInDim(op.in[0], op.ResultType().shape, op.Ints("broadcast_dimensions"))};
}
// The new dims come first.
Results ImportBroadcast(const OpReader& op) {
  NeedOperands(op, 1);
  std::vector<int64_t> shape = op.Ints("broadcast_sizes"), dims(op.in[0].rank());
  std::iota(dims.begin(), dims.end(), shape.size());
  shape.insert(shape.end(), op.in[0].shape().begin(), op.in[0].shape().end());
  return {BroadcastInDim(op.in[0], Dims(shape.begin(), shape.end()), dims)};
}
Results ImportReshape(const OpReader& op) {
  NeedOperands(op, 1);
  return {Reshape(op.in[0], op.ResultType().shape)};
}
Results ImportTranspose(const OpReader& op) {
  NeedOperands(op, 1);
  return {Transpose(op.in[0], op.Ints("permutation"))};
}
Results ImportSlice(const OpReader& op) {
  NeedOperands(op, 1);
  return {Slice(op.in[0], op.Ints("start_indices"), op.Ints("limit_indices"), op.Ints("strides"))};
}
Results ImportConcatenate(const OpReader& op) {
  return {Concatenate(op.in, op.SmallInt("dimension"))};
}
Results ImportPad(const OpReader& op) {
  NeedOperands(op, 2);
  return {Pad(op.in[0], op.in[1], op.Ints("edge_padding_low"), op.Ints("edge_padding_high"),
              op.Ints("interior_padding"))};
}
Results ImportReverse(const OpReader& op) {
  NeedOperands(op, 1);
  return {Reverse(op.in[0], op.Ints("dimensions"))};
}

// ---- Indexing. ----------------------------------------------------------------------------------
Results ImportDynamicSlice(const OpReader& op) {
  if (op.in.empty()) op.Malformed("has no operands");
  return {DynamicSlice(op.in[0], op.OperandsFrom(1), op.Ints("slice_sizes"))};
}
Results ImportDynamicUpdateSlice(const OpReader& op) {
  if (op.in.size() < 2) op.Malformed("has too few operands");
  return {DynamicUpdateSlice(op.in[0], op.in[1], op.OperandsFrom(2))};
}

// Returns the indices with their vectors along the last dim, as ours are. In StableHLO the vectors
// may lie along any dim, or along an implicit dim of size 1. Renumbers `batching`, which are dims
// of the indices.
Value WithVectorDimLast(const OpReader& op, Value indices, std::vector<int64_t>* batching) {
  const int64_t dim = op.Int("index_vector_dim");
  if (dim < 0 || dim > indices.rank())
    op.Malformed("has index vectors along a dim that does not exist");
  for (int64_t& d : *batching) {
    if (d == dim) op.Malformed("has a batching dim along which the index vectors lie");
    d -= d > dim ? 1 : 0;
  }
  if (dim == indices.rank()) return ExpandDims(indices, {dim});
  return MoveDim(indices, static_cast<int>(dim), indices.rank() - 1);
}

Value EmitGather(const OpReader& op, std::vector<int64_t> slice_sizes) {
  GatherDimensionNumbers dims = {op.Ints("offset_dims"), op.Ints("collapsed_slice_dims"),
                                 op.Ints("start_index_map"), op.IntsOrNone("operand_batching_dims"),
                                 op.IntsOrNone("start_indices_batching_dims")};
  GatherScatterOptions options;
  options.mode = GatherScatterMode::kClip;
  options.indices_are_sorted = op.Bool("indices_are_sorted");
  const Value indices = WithVectorDimLast(op, op.in[1], &dims.start_indices_batching_dims);
  return Gather(op.in[0], indices, dims, std::move(slice_sizes), options);
}
Results ImportGather(const OpReader& op) {
  NeedOperands(op, 2);
  return {EmitGather(op, op.Ints("slice_sizes"))};
}

// Selects the slices at indices along a dim. The leading dims are shared by the operand and the
// indices.
Results ImportTorchIndexSelect(const OpReader& op) {
  NeedOperands(op, 2);
  const Value x = op.in[0], indices = op.in[1];
  const int64_t rank = x.rank();
  int64_t dim = op.Int("dim"), batch = op.Int("batch_dims");
  if (dim < 0) dim += rank;
  if (batch < 0) batch += indices.rank();
  if (dim < 0 || dim >= rank || batch < 0 || batch > std::min<int64_t>(dim, indices.rank()))
    op.Malformed("has dims that do not exist");
  GatherDimensionNumbers dims;
  Dims slice = x.shape();
  for (int64_t d = 0; d < batch; ++d) {
    dims.operand_batching_dims.push_back(d);
    dims.start_indices_batching_dims.push_back(d);
    slice[d] = 1;
  }
  for (int64_t d = batch; d < dim; ++d) dims.offset_dims.push_back(d);
  for (int64_t d = dim + 1; d < rank; ++d)
    dims.offset_dims.push_back(d - 1 + indices.rank() - batch);
  dims.collapsed_slice_dims = dims.start_index_map = {dim};
  slice[dim] = 1;
  GatherScatterOptions options;
  options.mode = GatherScatterMode::kClip;
  return {Gather(x, ExpandDims(indices, {indices.rank()}), dims, slice, options)};
}

Results ImportScatter(const OpReader& op) {
  if (op.in.size() % 2 != 1) op.Malformed("has an even number of operands");
  const size_t n = op.in.size() / 2;
  ScatterDimensionNumbers dims = {op.Ints("update_window_dims"), op.Ints("inserted_window_dims"),
                                  op.Ints("scatter_dims_to_operand_dims"),
                                  op.IntsOrNone("input_batching_dims"),
                                  op.IntsOrNone("scatter_indices_batching_dims")};
  GatherScatterOptions options;
  options.mode = GatherScatterMode::kFillOrDrop;
  options.indices_are_sorted = op.Bool("indices_are_sorted");
  options.unique_indices = op.Bool("unique_indices");
  const Value indices = WithVectorDimLast(op, op.in[n], &dims.scatter_indices_batching_dims);
  return ScatterBy(op.FirstOperands(n), indices, op.OperandsFrom(n + 1), op.Computation(0), dims,
                   options);
}

// ---- Ops with sizes as operands. The declared types or literals give the sizes. -----------------
Results ImportDynamicIota(const OpReader& op) {
  NeedOperands(op, 1);
  return ImportIota(op);
}
Results ImportDynamicReshape(const OpReader& op) {
  NeedOperands(op, 2);
  return {Reshape(op.in[0], op.ResultType().shape)};
}
Results ImportDynamicBroadcast(const OpReader& op) {
  NeedOperands(op, 2);
  return {BroadcastInDim(op.in[0], op.ResultType().shape, op.Ints("broadcast_dimensions"))};
}
Results ImportDynamicPad(const OpReader& op) {
  NeedOperands(op, 5);
  return {Pad(op.in[0], op.in[1], op.KnownInts(2), op.KnownInts(3), op.KnownInts(4))};
}
Results ImportDynamicGather(const OpReader& op) {
  NeedOperands(op, 3);
  return {EmitGather(op, op.KnownInts(2))};
}
Results ImportRealDynamicSlice(const OpReader& op) {
  NeedOperands(op, 4);
  const Value x = op.in[0], starts = op.in[1];
  const std::vector<int64_t> strides = op.KnownInts(3);
  if (op.IsKnown(1) && op.IsKnown(2)) return {Slice(x, op.KnownInts(1), op.KnownInts(2), strides)};
  // The type gives the distance between the bounds.
  if (std::any_of(strides.begin(), strides.end(), [](int64_t stride) { return stride != 1; }))
    op.NotSupported("has strides, and bounds that are not constants");
  if (starts.rank() != 1 || starts.dim(0) != x.rank())
    op.Malformed("does not have one start per dim");
  op.ChargeOps(2 * x.rank());
  std::vector<Value> scalars;
  for (int d = 0; d < x.rank(); ++d)
    scalars.push_back(Reshape(SliceInDim(starts, 0, d, d + 1), {}));
  const Dims shape = op.ResultType().shape;
  return {DynamicSlice(x, scalars, {shape.begin(), shape.end()})};
}
// A size that is not the whole dim would be known only at run time.
Results ImportSetDimensionSize(const OpReader& op) {
  NeedOperands(op, 2);
  const int dim = op.SmallInt("dimension");
  if (dim < 0 || dim >= op.in[0].rank()) op.Malformed("has no such dimension");
  const Value size = op.in[1];
  const Op* const definition = op.b().DefiningOp(size);
  const bool is_whole = definition != nullptr && definition->def == &ops::kConstant &&
                        size.rank() == 0 && IsInteger(size.dtype()) &&
                        definition->attrs.Literal("value").IntAt(0) == op.in[0].dim(dim);
  if (!is_whole) op.NotSupported("makes a dim of a size that is known only when it runs");
  return {op.in[0]};
}
Results ImportDimensionSize(const OpReader& op) {
  NeedOperands(op, 1);
  const int dim = op.SmallInt("dimension");
  if (dim < 0 || dim >= op.in[0].rank()) op.Malformed("has no such dimension");
  return {Constant(op.b(), Array::ScalarInt(DType::kS32, op.in[0].dim(dim)))};
}

// ---- Reductions and order. ----------------------------------------------------------------------
Results ImportReduce(const OpReader& op) {
  if (op.in.size() % 2 != 0) op.Malformed("has an odd number of operands");
  const size_t n = op.in.size() / 2;
  if (n == 1 && IsComplex(op.in[0].dtype()) && op.SoleOpName(0) == "add")
    return {op.in[1] + ReduceSum(op.in[0], op.Ints("dimensions"))};
  return Reduce(op.FirstOperands(n), op.OperandsFrom(n), op.Computation(0), op.Ints("dimensions"));
}
// Returns windows over `rank` dims. All dilations are 1 if the op has none.
WindowDimensions WindowOf(const OpReader& op, size_t rank) {
  const auto per_dim = [&](std::string_view attr) {
    const std::vector<int64_t> values =
        op.Has(attr) ? op.Ints(attr) : std::vector<int64_t>(rank, 1);
    if (values.size() != rank)
      op.Malformed(absl::StrCat("does not have one entry of ", ToAbsl(attr), " per dim"));
    for (const int64_t v : values)
      if (v < 1) op.Malformed(absl::StrCat("has ", v, " among its ", ToAbsl(attr)));
    return values;
  };
  WindowDimensions window = {per_dim("window_dimensions"),
                             per_dim("window_strides"),
                             per_dim("base_dilations"),
                             per_dim("window_dilations"),
                             {}};
  const std::vector<int64_t> padding =
      op.Has("padding") ? op.Ints("padding") : std::vector<int64_t>(2 * rank, 0);
  if (padding.size() != 2 * rank) op.Malformed("does not have two amounts of padding per dim");
  for (size_t d = 0; d < rank; ++d) window.padding.emplace_back(padding[2 * d], padding[2 * d + 1]);
  return window;
}
Results EmitReduceWindow(const OpReader& op) {
  if (op.in.empty() || op.in.size() % 2 != 0) op.Malformed("has an odd number of operands");
  const size_t n = op.in.size() / 2;
  const WindowDimensions window = WindowOf(op, op.in[0].shape().size());
  const FunctionRef f = op.Computation(0);
  op.ChargeRepeatedOps(f, std::min(window.elements_per_window(), kWindowElementsInTurnMax) *
                              static_cast<int64_t>(n));
  return ReduceWindow(op.FirstOperands(n), op.OperandsFrom(n), f, window);
}
Results ImportSelectAndScatter(const OpReader& op) {
  NeedOperands(op, 3);
  if (op.num_regions() != 2) op.Malformed("does not have two regions");
  const FunctionRef select = op.Inlined(0), scatter = op.Computation(1);
  const WindowDimensions window = WindowOf(op, op.in[0].shape().size());
  op.ChargeRepeatedOps(select, std::min(window.elements_per_window(), kWindowElementsInTurnMax));
  return {SelectAndScatter(op.in[0], op.in[1], op.in[2], select, scatter, window)};
}
// Returns whether `init` is a literal that changes nothing that is combined with it, not even -0.
bool ChangesNothing(const OpDef& combine, Value init) {
  const Op* const op = init.builder().DefiningOp(init);
  if (op == nullptr || op->def != &ops::kConstant) return false;
  const Array& literal = op->attrs.Literal("value");
  if (&combine == &ops::kAdd)
    return literal == Array::Scalar(init.dtype(), IsFloat(init.dtype()) ? -0.0 : 0.0);
  const OpDef& reduction = &combine == &ops::kMul   ? ops::kReduceProd
                           : &combine == &ops::kMax ? ops::kReduceMax
                                                    : ops::kReduceMin;
  return literal == ValueOrThrow(EvaluateOp(reduction, {}, {Array(init.dtype(), {0})},
                                            {{"dimensions", std::vector<int64_t>{0}}}))[0];
}
// A window over all elements before, or after, each element along one dim is a cumulative op.
Results ImportReduceWindow(const OpReader& op) {
  if (op.in.size() != 2) return EmitReduceWindow(op);
  const Value x = op.in[0], init = op.in[1];
  const std::vector<int64_t> window = op.Ints("window_dimensions"), padding = op.Ints("padding");
  const auto all_ones = [&](std::string_view attr) {
    const std::vector<int64_t> values = op.Ints(attr);
    return std::all_of(values.begin(), values.end(), [](int64_t v) { return v == 1; });
  };
  const FunctionRef f = op.Computation(0);
  const Type x_scalar = MakeType(x.dtype(), {});
  Value (*cumulative)(Value, int, bool) = nullptr;
  Value (*combine)(Value, Value) = nullptr;
  if (const OpDef* const def = ops::SoleOp(*f); def != nullptr && f->type(0) == x_scalar) {
    if (def == &ops::kAdd) cumulative = Cumsum, combine = Add;
    if (def == &ops::kMul) cumulative = Cumprod, combine = Mul;
    if (def == &ops::kMax) cumulative = Cummax, combine = Max;
    if (def == &ops::kMin) cumulative = Cummin, combine = Min;
  }
  int dim = -1;
  bool fits = cumulative != nullptr && static_cast<int>(window.size()) == x.rank() &&
              padding.size() == 2 * window.size() && all_ones("window_strides") &&
              all_ones("base_dilations") && all_ones("window_dilations");
  for (int d = 0; fits && d < x.rank(); ++d) {
    if (window[d] == 1 && padding[2 * d] == 0 && padding[2 * d + 1] == 0) continue;
    // The window is before, or after, each element if all its padding is on one side.
    fits = dim < 0 && window[d] == x.dim(d) &&
           (padding[2 * d] == window[d] - 1 || padding[2 * d + 1] == window[d] - 1) &&
           (padding[2 * d] == 0 || padding[2 * d + 1] == 0);
    dim = d;
  }
  if (!fits || dim < 0) return EmitReduceWindow(op);
  const Value all = cumulative(x, dim, /*reverse=*/padding[2 * dim] == 0);
  if (ChangesNothing(*ops::SoleOp(*f), init)) return {all};
  return {combine(BroadcastInDim(init, x.shape(), {}), all)};
}
Results ImportSort(const OpReader& op) {
  int dim = op.SmallInt("dimension");
  if (dim < 0 && !op.in.empty()) dim += op.in[0].rank();
  return SortBy(op.in, op.Computation(0), dim, op.Bool("is_stable"));
}

// ---- Linear algebra. ---------------------------------------------------------------------------
Results ImportCholesky(const OpReader& op) {
  NeedOperands(op, 1);
  return {Cholesky(op.in[0], op.Bool("lower"))};
}
Results ImportTriangularSolve(const OpReader& op) {
  NeedOperands(op, 2);
  const int64_t transpose = op.Enum("transpose_a", AttrKind::kTranspose);
  constexpr int64_t kNone = 1, kAdjoint = 3;
  if (transpose < kNone || transpose > kAdjoint) op.Malformed("transposes in no known way");
  return {TriangularSolve(op.in[0], op.in[1],
                          {.left_side = op.Bool("left_side"),
                           .lower = op.Bool("lower"),
                           .transpose = transpose != kNone,
                           .conjugate = transpose == kAdjoint,
                           .unit_diagonal = op.Bool("unit_diagonal")})};
}

Results ImportFft(const OpReader& op) {
  NeedOperands(op, 1);
  constexpr std::array kKinds = {FftKind::kFft, FftKind::kIfft, FftKind::kRfft, FftKind::kIrfft};
  const uint64_t kind = op.Enum("fft_type", AttrKind::kFftType);
  if (kind >= kKinds.size()) op.Malformed("is of no known type");
  return {Fft(op.in[0], kKinds[kind], op.Ints("fft_length"))};
}

// ---- Control. -----------------------------------------------------------------------------------
Results ImportCall(const OpReader& op) {
  if (std::optional<Results> emitted = op.InlineCallOfHost()) return *std::move(emitted);
  const FunctionRef f = op.Callee("callee");
  if (op.in.size() == 4 && op.IsCipher(f)) return EmitCipher(op.in);
  return Call(op.b(), f, op.in, f->name);
}
// A composite is replaced by its decomposition, unless it is known as one of our ops.
Results ImportComposite(const OpReader& op) {
  if (const std::optional<Results> known = ImportKnownComposite(op)) return *known;
  const FunctionRef f = op.Callee("decomposition");
  // Regions of the composite repeat the decomposition.
  op.IgnoreRegions();
  return Call(op.b(), f, op.in, f->name);
}
Results ImportIf(const OpReader& op) {
  NeedOperands(op, 1);
  if (op.in[0].dtype() != DType::kBool) op.Malformed("has a predicate that is not a truth value");
  const std::vector<uint32_t> captures = op.Captures({0, 1});
  const FunctionRef if_true = op.Region(0, captures), if_false = op.Region(1, captures);
  return Case(Convert(op.in[0], DType::kS32), {if_false, if_true}, op.ValuesOf(captures));
}
// In StableHLO an index without a branch selects the last branch.
Results ImportCase(const OpReader& op) {
  NeedOperands(op, 1);
  const int n = op.num_regions();
  std::vector<int> regions(n);
  std::iota(regions.begin(), regions.end(), 0);
  const std::vector<uint32_t> captures = op.Captures(regions);
  std::vector<FunctionRef> branches;
  for (const int r : regions) branches.push_back(op.Region(r, captures));
  const Value zero = Constant(op.b(), op.in[0].dtype(), 0);
  const Value last = Constant(op.b(), op.in[0].dtype(), n - 1);
  const Value index = Select(Compare(op.in[0], zero, "LT"), last, op.in[0]);
  return Case(index, branches, op.ValuesOf(captures));
}
Results ImportWhile(const OpReader& op) {
  const std::vector<uint32_t> predicate_captures = op.Captures({0}),
                              body_captures = op.Captures({1});
  const FunctionRef predicate = op.Region(0, predicate_captures),
                    body = op.Region(1, body_captures);
  Results operands = op.ValuesOf(predicate_captures);
  const auto num_predicate_captures = static_cast<int>(operands.size());
  for (const Value v : op.ValuesOf(body_captures)) operands.push_back(v);
  const int num_body_captures = static_cast<int>(operands.size()) - num_predicate_captures;
  operands.insert(operands.end(), op.in.begin(), op.in.end());
  return While(op.b(), predicate, body, operands, num_predicate_captures, num_body_captures);
}
// A barrier of tokens alone has nothing to keep in order.
Results ImportOptimizationBarrier(const OpReader& op) {
  return op.in.empty() ? op.in : OptimizationBarrier(op.b(), op.in);
}

// ---- Tuples and tokens. -------------------------------------------------------------------------
// A tuple stands for its arrays, here as everywhere.
Results ImportTuple(const OpReader& op) { return op.in; }
Results ImportTupleElement(const OpReader& op) {
  const std::vector<size_t> sizes = op.ArraysPerElement(0);
  const int index = op.SmallInt("index");
  if (index < 0 || index >= static_cast<int>(sizes.size()))
    op.Malformed(absl::StrCat("asks for element ", index, " of ", sizes.size()));
  const size_t begin = std::accumulate(sizes.begin(), sizes.begin() + index, size_t{0});
  return {op.in.begin() + begin, op.in.begin() + begin + sizes[index]};
}
// Ops with effects are refused, so there is nothing for tokens to order.
Results ImportToken(const OpReader& op) {
  if (!op.in.empty()) op.Malformed("has operands that are not tokens");
  return {};
}

// ---- Annotations: where and how, but not what is computed. --------------------------------------
Results ImportIdentity(const OpReader& op) { return op.in; }
// dce_sink keeps a compiler from removing the computation of its operands. It needs no counterpart
// here, since no result depends on it.
Results ImportNothing(const OpReader&) { return {}; }
// The targets of custom calls, other than those of ShardCodeImporter. Our devices have one kind of
// memory.
constexpr ImportRow kTargets[] = {{"ApproxTopK", ImportApproxTopK},
                                  {"Sharding", ImportShardingCall},
                                  {"annotate_device_placement", ImportIdentity},
                                  {"dce_sink", ImportNothing},
                                  {"xla.sdy.FuncResultSharding", ImportShardingCall}};
const ImportRow* FindTarget(std::string_view target) {
  const auto* const row = std::find_if(std::begin(kTargets), std::end(kTargets),
                                       [&](const ImportRow& r) { return r.name == target; });
  return row != std::end(kTargets) ? row : FindLapack(target);
}
Results ImportCustomCall(const OpReader& op) {
  const std::string_view target = op.Text("call_target_name");
  if (const ImportRow* const row = FindTarget(target)) {
    if (op.in.size() != static_cast<size_t>(op.num_operands()))
      op.NotSupported("is of a tuple or a token");
    return row->import(op);
  }
  if (target == kHostCallback && op.for_host()) return op.EmitHostCall();
  // JAX writes such targets for callbacks, also for those of jax.debug.
  if (target.find("callback") != std::string_view::npos)
    op.NotSupported(absl::StrCat("of the target ", Quoted(target),
                                 " calls back into the process that traced it, which is not where "
                                 "the program runs"));
  op.NotSupported(absl::StrCat("of the target ", Quoted(target), ", which Tessera does not know"));
}

constexpr std::string_view kNoHostReason =
    "exchanges data with a host while the program runs, but no host takes part; pass the data as "
    "an argument, and return it";
constexpr std::string_view kNoAsyncReason =
    "splits an op into its beginning and its end, which the planner does itself";

constexpr ImportRow kRows[] = {
    {"abs", ImportSameName},
    {"add", ImportAdd},
    {"after_all", ImportToken},
    {"and", ImportSameName},
    {"atan2", ImportSameName},
    {"bitcast_convert", ImportBitcast},
    {"broadcast", ImportBroadcast},
    {"broadcast_in_dim", ImportBroadcastInDim},
    {"call", ImportCall},
    {"case", ImportCase},
    {"cbrt", ImportSameName},
    {"ceil", ImportSameName},
    {"cholesky", ImportCholesky},
    {"clamp", ImportClamp},
    {"compare", ImportCompare},
    {"complex", ImportComplex},
    {"composite", ImportComposite},
    {"concatenate", ImportConcatenate},
    {"constant", ImportConstant},
    {"convert", ImportConvert},
    {"cosine", ImportSameName},
    {"count_leading_zeros", ImportSameName},
    {"create_token", ImportToken},
    {"custom_call", ImportCustomCall},
    {"divide", ImportSameName},
    {"dynamic_broadcast_in_dim", ImportDynamicBroadcast},
    {"dynamic_gather", ImportDynamicGather},
    {"dynamic_iota", ImportDynamicIota},
    {"dynamic_pad", ImportDynamicPad},
    {"dynamic_reshape", ImportDynamicReshape},
    {"dynamic_slice", ImportDynamicSlice},
    {"dynamic_update_slice", ImportDynamicUpdateSlice},
    {"exponential", ImportSameName},
    {"exponential_minus_one", ImportSameName},
    {"fft", ImportFft},
    {"floor", ImportSameName},
    {"gather", ImportGather},
    {"get_dimension_size", ImportDimensionSize},
    {"get_tuple_element", ImportTupleElement},
    {"if", ImportIf},
    {"imag", ImportImag},
    {"iota", ImportIota},
    {"is_finite", ImportSameName},
    {"log", ImportSameName},
    {"log_plus_one", ImportSameName},
    {"logistic", ImportSameName},
    {"map", ImportMap},
    {"maximum", ImportSameName},
    {"minimum", ImportSameName},
    {"multiply", ImportMultiply},
    {"negate", ImportSameName},
    {"not", ImportSameName},
    {"optimization_barrier", ImportOptimizationBarrier},
    {"or", ImportSameName},
    {"pad", ImportPad},
    {"popcnt", ImportSameName},
    {"power", ImportSameName},
    {"real", ImportReal},
    {"real_dynamic_slice", ImportRealDynamicSlice},
    {"reduce", ImportReduce},
    {"reduce_precision", ImportReducePrecision},
    {"reduce_window", ImportReduceWindow},
    {"remainder", ImportRemainder},
    {"reshape", ImportReshape},
    {"reverse", ImportReverse},
    {"rng_bit_generator", ImportRandomBits},
    {"round_nearest_afz", ImportSameName},
    {"round_nearest_even", ImportSameName},
    {"rsqrt", ImportSameName},
    {"scatter", ImportScatter},
    {"select", ImportSelect},
    {"select_and_scatter", ImportSelectAndScatter},
    {"set_dimension_size", ImportSetDimensionSize},
    {"shift_left", ImportSameName},
    {"shift_right_arithmetic", ImportSameName},
    {"shift_right_logical", ImportSameName},
    {"sign", ImportSameName},
    {"sine", ImportSameName},
    {"slice", ImportSlice},
    {"sort", ImportSort},
    {"sqrt", ImportSameName},
    {"subtract", ImportSameName},
    {"tan", ImportSameName},
    {"tanh", ImportSameName},
    {"torch_index_select", ImportTorchIndexSelect},
    {"transpose", ImportTranspose},
    {"triangular_solve", ImportTriangularSolve},
    {"tuple", ImportTuple},
    {"unrealized_conversion_cast", ImportIdentity},
    {"while", ImportWhile},
    {"xor", ImportSameName},
};
static_assert(std::is_sorted(std::begin(kRows), std::end(kRows),
                             [](const ImportRow& a, const ImportRow& b) {
                               return a.name < b.name;
                             }));

}  // namespace

bool TakesTuples(std::string_view name) {
  constexpr std::string_view kNames[] = {"after_all",
                                         "call",
                                         "case",
                                         "composite",
                                         "create_token",
                                         "custom_call",
                                         "get_tuple_element",
                                         "if",
                                         "optimization_barrier",
                                         "tuple",
                                         "while"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

std::string_view WhyNotImported(std::string_view name) {
  constexpr std::pair<std::string_view, std::string_view> kWhy[] = {
      {"async_done", kNoAsyncReason},
      {"async_start", kNoAsyncReason},
      {"collective_reduce", "reduces to one device of a group; use all_reduce"},
      {"infeed", kNoHostReason},
      {"outfeed", kNoHostReason},
      {"recv", kNoHostReason},
      {"rng",
       "makes numbers that no two implementations agree on; use rng_bit_generator, as "
       "jax.random does"},
      {"send", kNoHostReason},
  };
  const auto* const row = std::find_if(std::begin(kWhy), std::end(kWhy),
                                       [&](const auto& r) { return r.first == name; });
  return row != std::end(kWhy) ? row->second : "";
}

bool KnowsTarget(std::string_view target) {
  return ShardCodeImporter::IsBoundary(target) || FindTarget(target) != nullptr;
}

const ImportRow* FindImport(std::string_view dialect, std::string_view name) {
  if (dialect == "sdy") return FindShardy(name);
  for (const auto find : {FindBatchNorm, FindCollective, FindProduct, FindQuantize})
    if (const ImportRow* const row = find(name); row != nullptr) return row;
  const auto* const row =
      std::lower_bound(std::begin(kRows), std::end(kRows), name,
                       [](const ImportRow& r, std::string_view n) { return r.name < n; });
  return row != std::end(kRows) && row->name == name ? row : nullptr;
}

}  // namespace tessera::ir::stablehlo
