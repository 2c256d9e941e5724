#include <algorithm>

#include "worker/program/lowerer.h"

namespace tessera::worker::program {

using ir::Dims;

std::optional<std::vector<int>> Lowerer::LowerContract(const At& at) {
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
int Lowerer::AddConvert(int value, ir::DType to) {
  const ir::DType from = out_.values[value].dtype;
  if (from == to) return value;
  const int converted = NewValue(to, out_.values[value].elements);
  Add({value}, {converted}, ScalarItem{ir::Canonical(ConvertGraph(from, to))});
  return converted;
}

bool Lowerer::IsSmallMatmul(const ContractItem& item) const {
  // At least as many columns as a kernel's vectors have lanes, in memory one after the other.
  constexpr int64_t kColumnsMin = 16;
  return !item.n.empty() && item.n.back() >= kColumnsMin && item.b.strides.back() == 1 &&
         NumElements(Joined({item.batch, item.m, item.n, item.k})) <= options_.small_matmul;
}

// Multiplies two views over (batch, m, n, k), and sums the products over k in f32 or wider.
void Lowerer::AddContractionAsReduction(const At& at, const ContractItem& item, int result) {
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
  b_strides.insert(b_strides.end(), item.b.strides.begin() + nb, item.b.strides.begin() + nb + nk);
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
