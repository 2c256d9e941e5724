// Lowers contractions: to a library's matmul if the backend has one for the dtypes, or else to a
// kernel that multiplies and sums. The op's contraction map says which dims are batch, rows,
// columns and summed.
#include <algorithm>

#include "worker/program/lowerer.h"

namespace tessera::worker::program {

using ir::Dims;

// Chooses between the library and a kernel. Kernels take the contractions for which a library would
// not pay off: small ones, those that sum a single product, and those in which no element is used
// twice. Narrow floats are widened if the library only takes wide ones. A contraction with too many
// dims for a kernel is left to the host, unless a library takes it.
std::optional<std::vector<int>> Lowerer::LowerContract(const OpContext& ctx) {
  if (IsEmpty(ctx)) return LowerEmpty(ctx);
  if (ctx.def().reduce != ir::ReduceKind::kSum) return std::nullopt;
  const std::vector<ir::Type> in = ctx.in_types(), out = ctx.out_types();
  const ir::ContractionMap map =
      ctx.def().contraction_map({ctx.def(), ctx.f.scope, in, ctx.op.attrs, ctx.op.regions}, out);
  std::vector<int> operands = ctx.operands;
  if (!map.low.empty()) operands[0] = AddPadded(operands[0], in[0], map);
  if (map.a == 1) std::swap(operands[0], operands[1]);
  ContractItem item;
  item.batch = map.batch;
  item.m = map.m;
  item.k = map.k;
  item.n = map.n;
  item.precision = ir::PrecisionOf(ctx.op.attrs);
  item.a.strides = map.a_strides;
  item.b.strides = map.b_strides;
  // If k has a single element, the result is that product and no sum. A sum starts at 0, and would
  // turn a product of -0 into 0.
  const bool single_product = NumElements(item.k) == 1;
  if (single_product) {
    item.a.strides.resize(item.batch.size() + item.m.size());
    item.b.strides.erase(item.b.strides.begin() + item.batch.size(),
                         item.b.strides.begin() + item.batch.size() + item.k.size());
    item.k.clear();
  }
  const size_t num_dims = item.batch.size() + item.m.size() + item.n.size() + item.k.size();
  // If all dims are batch dims, no element is used twice, and a kernel does not have to pack any
  // operand.
  const bool no_reuse = NumElements(item.m) == 1 && NumElements(item.n) == 1 && !item.batch.empty();
  const auto has_matmul = [&](ir::DType from, ir::DType to) {
    const bool small = to == ir::DType::kF32 && num_dims < kGroupDimsMax && IsSmallMatmul(item);
    return options_.has_matmul != nullptr && options_.has_matmul(from, to) && !small &&
           !single_product && !no_reuse;
  };
  const ir::DType from = in[0].dtype, to = out[0].dtype;
  const ir::DType wide_from = ir::ComputeDType(from), wide_to = ir::ComputeDType(to);
  const Dims sizes = Joined({item.batch, item.m, item.n});
  int result = -1;
  if (has_matmul(from, to)) {
    result = NewValue(out[0]);
    Add(operands, {result}, std::move(item));
  } else if (has_matmul(wide_from, wide_to)) {
    // A library that does not take narrow floats may take wide ones.
    const int wide = NewValue(wide_to, out[0].num_elements());
    const int a = AddConvert(operands[0], wide_from), b = AddConvert(operands[1], wide_from);
    Add({a, b}, {wide}, std::move(item));
    result = AddConvert(wide, to);
  } else if (num_dims >= kGroupDimsMax) {
    return std::nullopt;
  } else {
    result = NewValue(out[0]);
    AddContractionAsReduction(operands, from, item, result);
  }
  return std::vector<int>{AddInOrder(result, sizes, map.c_strides)};
}

// Returns operand 0 with the zeros that the map inserts into it.
int Lowerer::AddPadded(int operand, const ir::Type& type, const ir::ContractionMap& map) {
  const Dims shape = ir::PaddedShape(map, type.shape), to = ir::StridesOf(shape);
  PiecesItem pieces;
  PiecesItem::Piece zeros;
  zeros.box = shape;
  zeros.operand = 1;
  zeros.read.strides.assign(shape.size(), 0);
  zeros.write.strides = to;
  pieces.pieces.push_back(std::move(zeros));
  if (const auto piece = ir::derive::PadPiece(type.shape, shape, map.low, map.interior)) {
    PiecesItem::Piece input = PieceInto(to, *piece);
    input.operand = 0;
    pieces.pieces.push_back(std::move(input));
  }
  const int padded = NewValue(type.dtype, NumElements(shape));
  Add({operand, NewConstant(ir::Array(type.dtype, {}))}, {padded}, std::move(pieces));
  return padded;
}

// Returns `value`, which is dense over `sizes`, with its dims in the order that they have in an
// array with these strides.
int Lowerer::AddInOrder(int value, const Dims& sizes, const Dims& strides) {
  std::vector<int> order;
  for (size_t d = 0; d < sizes.size(); ++d)
    if (sizes[d] != 1) order.push_back(static_cast<int>(d));
  if (std::is_sorted(order.begin(), order.end(),
                     [&](int a, int b) { return strides[a] > strides[b]; }))
    return value;
  std::sort(order.begin(), order.end(), [&](int a, int b) { return strides[a] > strides[b]; });
  return AddView(value, {Pick(sizes, order), {0, Pick(ir::StridesOf(sizes), order), {}}});
}

// Returns the value in another dtype.
int Lowerer::AddConvert(int value, ir::DType to) {
  const ir::DType from = out_.values[value].dtype;
  if (from == to) return value;
  const int converted = NewValue(to, out_.values[value].elements);
  Add({value}, {converted}, ScalarItem{ir::Canonical(ConvertGraph(from, to))});
  return converted;
}

bool Lowerer::IsSmallMatmul(const ContractItem& item) const {
  // There must be at least as many columns as a kernel's vectors have lanes, and columns must be
  // contiguous.
  constexpr int64_t kColumnsMin = 16;
  return !item.n.empty() && item.n.back() >= kColumnsMin && item.b.strides.back() == 1 &&
         NumElements(Joined({item.batch, item.m, item.n, item.k})) <=
             options_.small_matmul_multiplications_max;
}

// Multiplies two views over (batch, m, n, k), and sums the products over k in f32 or a wider dtype.
void Lowerer::AddContractionAsReduction(const std::vector<int>& operands, ir::DType from,
                                        const ContractItem& item, int result) {
  const Dims box = Joined({item.batch, item.m, item.n, item.k});
  const size_t nb = item.batch.size(), nm = item.m.size(), nn = item.n.size(), nk = item.k.size();
  const ir::DType to = out_.values[result].dtype;
  ir::DType accumulator = to;
  if (ir::IsFloat(accumulator))
    accumulator = from == ir::DType::kF64 || accumulator == ir::DType::kF64 ? ir::DType::kF64
                                                                            : ir::DType::kF32;
  View a{box, item.a}, b{box, item.b};
  a.access.strides.insert(a.access.strides.begin() + nb + nm, nn, 0);
  Dims b_strides(item.b.strides.begin(), item.b.strides.begin() + nb);
  b_strides.insert(b_strides.end(), nm, 0);
  b_strides.insert(b_strides.end(), item.b.strides.begin() + nb + nk, item.b.strides.end());
  b_strides.insert(b_strides.end(), item.b.strides.begin() + nb, item.b.strides.begin() + nb + nk);
  b.access.strides = b_strides;
  const int64_t n = NumElements(box);
  const int x = NewValue(from, n), y = NewValue(from, n);
  Add({operands[0]}, {x}, ViewItem{std::move(a)});
  Add({operands[1]}, {y}, ViewItem{std::move(b)});
  const bool converts = accumulator != to;
  const int xy = nk == 0 && !converts ? result : NewValue(accumulator, n);
  Add({x, y}, {xy}, ScalarItem{MultiplyGraph(from, accumulator)});
  if (nk == 0) {
    if (converts) Add({xy}, {result}, ScalarItem{ConvertGraph(accumulator, to)});
    return;
  }
  ReduceItem sum;
  sum.kind = ir::ReduceKind::kSum;
  sum.box = box;
  sum.num_reduced = static_cast<int>(nk);
  sum.access = DenseAccess(box, static_cast<int>(box.size()));
  if (!converts) return AddReduction(xy, result, std::move(sum));
  const int total = NewValue(accumulator, out_.values[result].elements);
  AddReduction(xy, total, std::move(sum));
  Add({total}, {result}, ScalarItem{ConvertGraph(accumulator, to)});
}

ir::ScalarGraph Lowerer::ConvertGraph(ir::DType from, ir::DType to) {
  ir::ScalarGraph graph;
  graph.nodes = {{ir::ScalarPrim::kInput, from, {}}, {ir::ScalarPrim::kConvert, to, {0}}};
  graph.roots = {1};
  return graph;
}

ir::ScalarGraph Lowerer::MultiplyGraph(ir::DType in, ir::DType accumulator) {
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

}  // namespace tessera::worker::program
