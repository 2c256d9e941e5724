// Lowers collectives. A step exchanges contiguous blocks, so an op that cuts or joins along another
// dim than the first becomes a view, the exchange, and another view. The views are usually fused
// into the kernels around them.
#include "worker/program/lowerer.h"

namespace tessera::worker::program {
namespace {

using ir::CollectiveKind;
using ir::Dims;

// BlocksFirst views pre x n x post elements as n blocks of pre x post elements. BlocksInPlace is
// the inverse view.
View BlocksFirst(int64_t pre, int64_t n, int64_t post) {
  return {{n, pre, post}, {0, {post, n * post, 1}, {}}};
}
View BlocksInPlace(int64_t pre, int64_t n, int64_t post) {
  return {{pre, n, post}, {0, {post, pre * post, 1}, {}}};
}

}  // namespace

Lowerer::Packing Lowerer::PackingOf(const OpContext& ctx, int64_t n, int64_t carriers_per_element) {
  const Dims& x = ctx.in(0).shape;
  const auto chunks_view = [&](int64_t dim) {  // n chunks along the dim
    return BlocksFirst(ElementsBefore(x, dim), n, ElementsFrom(x, dim) * carriers_per_element / n);
  };
  const auto concat_view = [n, carriers_per_element](const Dims& block, int64_t dim) {
    return BlocksInPlace(ElementsBefore(block, dim), n,
                         ElementsFrom(block, dim) * carriers_per_element);
  };
  switch (ctx.def().collective) {
    case CollectiveKind::kAllGather:
      return {std::nullopt, concat_view(x, ctx.op.attrs.Int("all_gather_dimension"))};
    case CollectiveKind::kReduceScatter:
      return {chunks_view(ctx.op.attrs.Int("scatter_dimension")), std::nullopt};
    case CollectiveKind::kAllToAll: {
      const int64_t split = ctx.op.attrs.Int("split_dimension");
      Dims block = x;
      block[split] /= n;
      if (!ctx.op.attrs.Bool("tiled")) block.erase(block.begin() + split);
      return {chunks_view(split), concat_view(block, ctx.op.attrs.Int("concat_dimension"))};
    }
    default:
      return {};
  }
}

int Lowerer::AddView(int operand, const View& view) {
  if (view.shape[0] == 1 || view.shape[1] == 1) return operand;  // the order stays the same
  const int result = NewValue(out_.values[operand].dtype, out_.values[operand].elements);
  Add({operand}, {result}, ViewItem{view});
  return result;
}

// Lowers a collective to at most one exchange. A group of one device needs none, unless the kind
// has pairs (kPermute). If the backend's collectives cannot reduce the dtype, the exchange only
// moves the blocks and a kernel reduces them.
std::vector<int> Lowerer::LowerCollective(const OpContext& ctx) {
  const ir::AxisList& axes = ctx.op.attrs.Strings("axes");
  const CollectiveKind kind = ctx.def().collective;
  if (kind == CollectiveKind::kAxisIndex) {
    const int result = NewValue(ctx.out(0));
    Add({}, {result}, AxisIndexItem{axes});
    return {result};
  }
  const int64_t n = ctx.f.scope.mesh.SizeOf(axes);
  if (n == 1 && !ir::InfoOf(kind).paired) {
    return {ctx.operands[0]};  // the group is this device alone
  }
  CollectiveStep step;
  step.kind = kind;
  step.reduce = ctx.def().reduce;
  step.axes = axes;
  step.group_size = static_cast<int>(n);
  const Carrier carrier = CarrierOf(ctx.in(0).dtype);
  step.dtype = carrier.dtype;
  step.elements = ctx.in(0).num_elements() * carrier.carriers_per_element;
  const Packing packing = PackingOf(ctx, n, carrier.carriers_per_element);
  int in = ctx.operands[0];
  if (packing.pack) {
    in = AddView(in, *packing.pack);
    step.elements /= n;
  }
  if (kind == CollectiveKind::kPermute) {
    const std::vector<int64_t>& perm = ctx.op.attrs.Ints("perm");
    for (size_t i = 0; i + 1 < perm.size(); i += 2)
      step.pairs.emplace_back(static_cast<int>(perm[i]), static_cast<int>(perm[i + 1]));
  }
  if (ir::InfoOf(kind).combines && options_.has_reduction != nullptr &&
      !options_.has_reduction(step.reduce, step.dtype)) {
    return LowerToExchangeAndReduction(in, std::move(step));
  }
  const bool has_block_per_device = ir::InfoOf(kind).out == ir::BlockCount::kEach;
  int out = NewValue(step.dtype, has_block_per_device ? step.elements * n : step.elements);
  Add({in}, {out}, CollectiveItem{std::move(step)});
  if (packing.unpack) out = AddView(out, *packing.unpack);
  return {out};
}

// Lowers an all_reduce to an all_gather and a reduction of the gathered blocks in the order of the
// group. Lowers a reduce_scatter to an all_to_all and such a reduction.
std::vector<int> Lowerer::LowerToExchangeAndReduction(int in, CollectiveStep step) {
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

}  // namespace tessera::worker::program
