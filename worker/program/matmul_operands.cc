// The operands of one matmul step while Fuse (fuse.cc) builds it. Fuse asks whether an operand must
// be packed, lets views become strides where possible, and takes the step at the end.
#include "worker/program/matmul_operands.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace tessera::worker::program {
MatmulOperands::MatmulOperands(const ContractItem& item, const std::vector<int>& operands)
    : precision_(item.precision) {
  for (int k = 0; k < 2; ++k) {
    Operand& o = operands_[k];
    o.value = operands[k];
    o.box = k == 0 ? Joined({item.batch, item.m, item.k}) : Joined({item.batch, item.k, item.n});
    o.num_batch = static_cast<int>(item.batch.size());
    o.num_rows = static_cast<int>(k == 0 ? item.m.size() : item.k.size());
    o.access = k == 0 ? item.a : item.b;
    o.matrices = o.MatricesOf(o.access);
  }
}

std::optional<int> MatmulOperands::OperandToPack() const {
  for (int k = 0; k < 2; ++k)
    if (!operands_[k].matrices) return k;
  return std::nullopt;
}

// Makes `packed` the operand, and returns the view of the old operand that a kernel has to copy
// into it. The order of the copy is free, since a library takes rows or columns as the last dims.
View MatmulOperands::Pack(int operand, int packed) {
  Operand& o = operands_[operand];
  const int rows = o.num_batch, columns = o.num_batch + o.num_rows;
  const auto innermost_stride = [&](int begin, int end) {
    for (int d = end; d-- > begin;)
      if (o.box[d] > 1) return o.access.strides[d];
    return std::numeric_limits<int64_t>::max();
  };
  // The copy keeps elements together that lie together: rows become the last dims if their elements
  // are closer to each other. A matrix that is the same for the whole batch is copied only once.
  const auto end = static_cast<int>(o.box.size());
  const bool is_shared_by_batch =
      std::all_of(o.access.strides.begin(), o.access.strides.begin() + rows,
                  [](int64_t stride) { return stride == 0; });
  std::vector<int> order(o.box.size());
  std::iota(order.begin(), order.end(), 0);
  if (innermost_stride(rows, columns) < innermost_stride(columns, end))
    std::rotate(order.begin() + rows, order.begin() + columns, order.end());
  if (is_shared_by_batch) order.erase(order.begin(), order.begin() + rows);
  View view;
  view.access.offset = o.access.offset;
  for (const int d : order) {
    view.shape.push_back(o.box[d]);
    view.access.strides.push_back(o.access.strides[d]);
  }
  const ValueAccess dense = DenseAccess(view.shape, static_cast<int>(order.size()));
  o.value = packed;
  o.access.offset = 0;
  for (size_t i = 0; i < order.size(); ++i) o.access.strides[order[i]] = dense.strides[i];
  o.matrices = o.MatricesOf(o.access);
  return view;
}

bool MatmulOperands::FuseView(int v, int source, const View& view) {
  MatmulOperands fused = *this;
  for (Operand& o : fused.operands_) {
    if (o.value != v) continue;
    const ComposeResult composed = Compose(o.box, o.access, view);
    if (!composed.access || !composed.access->shifts.empty()) return false;
    o.matrices = o.MatricesOf(*composed.access);
    if (!o.matrices) return false;
    o.value = source;
    o.access = *composed.access;
  }
  *this = fused;
  return true;
}

MatmulStep MatmulOperands::MakeStep(const std::vector<Value>& values, int result) const {
  const Operand &a = operands_[0], &b = operands_[1];
  MatmulStep step;
  step.shape.batch = a.matrices->sizes[0];
  step.shape.m = a.matrices->sizes[1];
  step.shape.k = a.matrices->sizes[2];
  step.shape.n = b.matrices->sizes[2];
  std::copy_n(a.matrices->strides, 3, step.shape.a_strides);
  std::copy_n(b.matrices->strides, 3, step.shape.b_strides);
  step.shape.in = values[a.value].dtype;
  step.shape.out = values[result].dtype;
  step.shape.allow_tf32 = precision_ != ir::Precision::kHighest &&
                          step.shape.in == ir::DType::kF32 && step.shape.out == ir::DType::kF32;
  step.a = a.value;
  step.b = b.value;
  step.c = result;
  step.a_offset = a.access.offset;
  step.b_offset = b.access.offset;
  return step;
}

}  // namespace tessera::worker::program
