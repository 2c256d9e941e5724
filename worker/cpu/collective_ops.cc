#include "worker/cpu/collective_ops.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "ir/op_def.h"

namespace tessera::worker {
namespace {

using ir::Array;
using ir::Dims;

absl::Span<const std::byte> Bytes(const Array& x) {
  return {x.data(), static_cast<size_t>(x.num_bytes())};
}
absl::Span<std::byte> MutableBytes(Array& x) {
  return {x.MutableData(), static_cast<size_t>(x.num_bytes())};
}

// [..., n * w at dim, ...] as n blocks one after the other: [n, ..., w, ...].
Array Split(const Array& x, int64_t dim, int64_t n) {
  Dims block = x.shape();
  block[dim] /= n;
  Dims stacked = block;
  stacked.insert(stacked.begin(), n);
  Array out(x.dtype(), stacked);
  std::byte* to = out.MutableData();
  Dims starts(x.rank(), 0);
  for (int64_t i = 0; i < n; ++i) {
    starts[dim] = i * block[dim];
    const Array piece = ir::SliceBlock(x, starts, block);
    to = std::copy_n(piece.data(), piece.num_bytes(), to);
  }
  return out;
}

// The inverse: n blocks of `block`'s shape, in one piece of memory, side by side along `dim`.
Array Join(const Array& stacked, const Dims& block, int64_t dim, int64_t n) {
  Dims shape = block;
  shape[dim] *= n;
  Array out(stacked.dtype(), shape);
  const int64_t bytes = stacked.num_bytes() / n;
  Dims starts(block.size(), 0);
  for (int64_t i = 0; i < n; ++i) {
    starts[dim] = i * block[dim];
    const Array piece(stacked.dtype(), block,
                      {stacked.data() + i * bytes, static_cast<size_t>(bytes)});
    ir::WriteBlock(&out, starts, piece);
  }
  return out;
}

Dims WithOneAt(Dims shape, int64_t dim) {
  shape.insert(shape.begin() + dim, 1);
  return shape;
}

absl::StatusOr<ReduceKind> KindOf(ir::ReduceKind kind) {
  switch (kind) {
    case ir::ReduceKind::kSum:
      return ReduceKind::kSum;
    case ir::ReduceKind::kMax:
      return ReduceKind::kMax;
    case ir::ReduceKind::kMin:
      return ReduceKind::kMin;
    case ir::ReduceKind::kProd:
      return ReduceKind::kProd;
    case ir::ReduceKind::kAnd:
      return ReduceKind::kAnd;
    case ir::ReduceKind::kOr:
      return ReduceKind::kOr;
    default:
      return MakeError(ErrorKind::kNotImplemented,
                       absl::StrCat("no exchange combines by ", ToAbsl(ir::ReduceKindName(kind))));
  }
}

struct Blocks {
  const RunContext& context;
  const ir::Op& op;
  const Array& x;
  const ir::Type& out_type;
  int rank;
  std::vector<int> group;
  CallKey key;

  int64_t n() const { return static_cast<int64_t>(group.size()); }
  Collectives& collectives() const { return *context.collectives; }

  absl::StatusOr<Array> Reduce() const {
    TESSERA_ASSIGN_OR_RETURN(const ReduceKind kind, KindOf(op.def->reduce));
    Array out(x.dtype(), x.shape());
    TESSERA_RETURN_IF_ERROR(
        collectives().AllReduce(rank, group, key, kind, x.dtype(), Bytes(x), MutableBytes(out)));
    return out;
  }

  absl::StatusOr<Array> Gather() const {
    const int64_t dim = op.attrs.Int("all_gather_dimension");
    const bool tiled = op.attrs.Bool("tiled");
    const Dims block = tiled ? x.shape() : WithOneAt(x.shape(), dim);
    Dims stacked = x.shape();
    stacked.insert(stacked.begin(), n());
    Array out(x.dtype(), stacked);
    TESSERA_RETURN_IF_ERROR(collectives().AllGather(rank, group, key, Bytes(x), MutableBytes(out)));
    if (dim == 0) return out.Reshaped(out_type.shape);
    return Join(out, block, dim, n());
  }

  absl::StatusOr<Array> Scatter() const {
    const int64_t dim = op.attrs.Int("scatter_dimension");
    const Array split = dim == 0 ? x : Split(x, dim, n());
    Array out(x.dtype(), out_type.shape);
    TESSERA_ASSIGN_OR_RETURN(const ReduceKind kind, KindOf(op.def->reduce));
    TESSERA_RETURN_IF_ERROR(collectives().ReduceScatter(rank, group, key, kind, x.dtype(),
                                                        Bytes(split), MutableBytes(out)));
    return out;
  }

  absl::StatusOr<Array> Permute() const {
    const std::vector<int64_t>& perm = op.attrs.Ints("perm");
    std::vector<PermutePair> pairs;
    for (size_t i = 0; i + 1 < perm.size(); i += 2) {
      pairs.push_back({static_cast<int>(perm[i]), static_cast<int>(perm[i + 1])});
    }
    Array out(x.dtype(), x.shape());
    TESSERA_RETURN_IF_ERROR(
        collectives().Permute(rank, group, key, pairs, Bytes(x), MutableBytes(out)));
    return out;
  }

  absl::StatusOr<Array> AllToAll() const {
    const int64_t split_dim = op.attrs.Int("split_dimension");
    const int64_t concat_dim = op.attrs.Int("concat_dimension");
    Dims block = x.shape();
    block[split_dim] /= n();
    const Array split = split_dim == 0 ? x : Split(x, split_dim, n());
    Array stacked(x.dtype(), split.shape());
    TESSERA_RETURN_IF_ERROR(
        collectives().AllToAll(rank, group, key, Bytes(split), MutableBytes(stacked)));
    if (!op.attrs.Bool("tiled")) {
      block.erase(block.begin() + split_dim);
      block = WithOneAt(std::move(block), concat_dim);
    }
    return Join(stacked, block, concat_dim, n());
  }
};

}  // namespace

absl::StatusOr<Array> RunCollective(const RunContext& context, const ir::Function& f,
                                    const ir::Op& op, absl::Span<const Array> in, uint32_t sequence,
                                    const std::string& label) {
  const ir::Mesh& mesh = f.scope.mesh;
  const ir::AxisList& axes = op.attrs.Strings("axes");
  if (op.def->exchange == ir::Exchange::kPosition) {
    return Array::ScalarInt(ir::DType::kS32, mesh.IndexAlong(context.mesh_device, axes));
  }
  if (context.collectives == nullptr) {
    return MakeError(ErrorKind::kInternal, absl::StrCat(label, ": the launch has no communicator"));
  }
  std::vector<int> group;
  for (const int64_t device : mesh.GroupOf(context.mesh_device, axes)) {
    group.push_back(context.ranks.at(device));
  }
  const Blocks exchange{context,
                        op,
                        in[0],
                        f.type(op.results[0]),
                        context.ranks.at(context.mesh_device),
                        std::move(group),
                        {context.launch, sequence, label, std::string(context.program)}};
  switch (op.def->exchange) {
    case ir::Exchange::kAllReduce:
      return exchange.Reduce();
    case ir::Exchange::kAllGather:
      return exchange.Gather();
    case ir::Exchange::kReduceScatter:
      return exchange.Scatter();
    case ir::Exchange::kPermute:
      return exchange.Permute();
    case ir::Exchange::kAllToAll:
      return exchange.AllToAll();
    default:
      break;
  }
  return MakeError(ErrorKind::kNotImplemented,
                   absl::StrCat(label, ": this executor has no such exchange"));
}

}  // namespace tessera::worker
