// A kernel: one machine-independent loop nest over an iteration space.
//
// The fuser (program/fuse.h) builds kernels, the emitters compile them to machine code (host
// vectors, NVPTX), and Interpret defines them. Plain values; compared, hashed and cached by their
// text: ParseKernel(k.ToString()) == k.
//
// The iteration space has dims `shape`; the last `num_reduced` are reduction dims, the others
// parallel dims. The nodes are evaluated in order for each point (i_0, i_1, ...). A node is
// "inner", evaluated per point, if it is a load or an index whose strides over the reduction dims
// are not all 0, or a scalar op of an inner node. Other nodes, and reductions, are "outer",
// evaluated per point of the parallel dims. Arguments precede uses. Nodes after a reduction read
// only outer nodes. Stores write outer nodes.
//
// A kernel may scan its last dims instead of reducing them: for each point of the parallel dims it
// goes through them in row-major order, and everything that varies over them is evaluated at each
// of their points, stores too. A reduction has there what its arguments so far come to. A param
// that is both loaded and stored then has what earlier points have stored, so that a point may
// update what others have written.
//
// Elements are computed as in ir/ops/scalar_math.h for their dtype; functions of floats may be
// off by 2 ulp. The order of a reduction depends only on the shape and the target; a sum of
// products may round each product together with its addition. bf16 and f16 are loaded, stored,
// selected and converted only; dtypes that have no scalar_math (ir::IsComputable) and at most 8
// bytes are loaded and stored only. A bool is a byte, 0 or 1.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ir/collective.h"
#include "ir/dtype.h"
#include "ir/scalar_graph.h"
#include "ir/type.h"

namespace tessera::worker::codegen {

// A run-time part of an offset: stride * clamp(n, 0, max), where n is the element
// offset + sum(strides[d] * i_d) of the param, an input of an integer dtype. A dynamic slice has
// one n for all points, a gather one for each of its positions.
struct DynamicOffset {
  int param = 0;
  int64_t max = 0;
  int64_t stride = 0;
  int64_t offset = 0;
  ir::Dims strides = {};  // one per dim of the iteration space; or none: all are 0
  bool operator==(const DynamicOffset&) const = default;
};

// The element of a buffer for a point: offset + sum(strides[d] * i_d) + the dynamic offsets, in
// elements. One stride per dim of the iteration space, which may be 0 or negative.
struct Access {
  int64_t offset = 0;
  ir::Dims strides;
  std::vector<DynamicOffset> shifts;
  bool operator==(const Access&) const = default;
};

// Calls f(strides) for the lists of strides over the iteration space that an access has.
template <class AccessType, class F>
void ForEachStrides(AccessType& access, const F& f) {
  f(access.strides);
  for (auto& shift : access.shifts)
    if (!shift.strides.empty()) f(shift.strides);
}

struct Node {
  enum class Kind : uint8_t { kLoad, kIndex, kScalar, kReduce };
  Kind kind = Kind::kScalar;
  ir::DType dtype = ir::DType::kF32;  // of the result
  // kScalar: any primitive but Input; for Constant the value.
  ir::ScalarPrim prim = ir::ScalarPrim::kConstant;
  double value = 0;
  int64_t int_value = 0;
  // kReduce. bf16 and f16 are converted before they are summed. kArgMax and kArgMin give the first
  // index, of dtype s32 or s64, along the single reduced dim; NaN wins.
  ir::ReduceKind reduce = ir::ReduceKind::kNone;
  std::vector<int> args;  // kScalar, kReduce: earlier nodes
  // kLoad: the element of the param that is read; kIndex: the affine function of the index that is
  // the result, without shifts.
  int param = 0;
  Access access;
  bool operator==(const Node&) const = default;
};

struct Param {
  ir::DType dtype = ir::DType::kF32;
  int64_t size = 0;  // elements of the buffer
  bool output = false;
  // An input that may lie in the buffer of an output that is written in its place (MayGoInPlace).
  bool in_place = false;
  bool operator==(const Param&) const = default;
};

// Writes node `node` to an output, of the node's dtype. Strides over reduction dims are 0, but for
// scanned ones; distinct points of the parallel dims write distinct elements; no param is both
// loaded and stored, unless every load and store of it has the same access (in place). What a scan
// stores to has one store.
struct Store {
  int node = 0;
  int param = 0;
  Access access;
  bool operator==(const Store&) const = default;
};

struct Kernel {
  ir::Dims shape;
  int num_reduced = 0;
  bool scans = false;  // the dims that else were reduced
  std::vector<Param> params;
  std::vector<Node> nodes;
  std::vector<Store> stores;
  bool operator==(const Kernel&) const = default;

  int rank() const { return static_cast<int>(shape.size()); }
  int num_parallel() const { return rank() - num_reduced; }
  // Points of the iteration space; of its parallel dims, which are the iterations of a range; and
  // of its reduction dims.
  int64_t num_elements() const;
  int64_t num_iterations() const;
  int64_t num_reduced_elements() const;
  // One line per dim list, param, node and store.
  std::string ToString() const;
};

constexpr bool IsArgReduction(ir::ReduceKind kind) {
  return kind == ir::ReduceKind::kArgMax || kind == ir::ReduceKind::kArgMin;
}
// Whether the access or one of its shifts has a stride over dim d that is not 0; the shift has; a
// shift has.
bool VariesOver(const Access& access, int dim);
bool VariesOver(const DynamicOffset& shift, int dim);
bool ShiftsVaryOver(const Access& access, int dim);
// Whether the access varies over a reduction dim.
bool VariesOverReduced(const Kernel& kernel, const Access& access);

// Whether points that differ in the first `num_dims` dims have different elements, whatever the
// other dims and the shifts that vary are. Sufficient, not necessary.
bool IsInjective(const Kernel& kernel, const Access& access, int num_dims);

// The loop level of a node: outer before the reductions, inner, or outer after them (a reduction,
// or a node that reads one). Without reduction dims all nodes are kBefore; in a scan reductions are
// kInner, and so is what loads what is stored.
enum class Level : uint8_t { kBefore, kInner, kAfter };
// The level of a node, given those of earlier nodes; and of each node. Requires: arguments precede
// uses.
Level LevelOf(const Kernel& kernel, const Node& node, const std::vector<Level>& earlier);
std::vector<Level> LevelsOf(const Kernel& kernel);

// The inverse of ToString. VALUE_ERROR names the line that does not parse. Bounds the size and the
// number of nodes and params; the result passes Verify.
absl::StatusOr<Kernel> ParseKernel(absl::string_view text);

// Every rule above, and that no access can leave its buffer. VALUE_ERROR names the node or store.
absl::Status Verify(const Kernel& kernel);

// The same kernel in normal form: dims of size 1 dropped, neighbouring dims merged where every
// access allows it, dead nodes dropped, equal nodes merged. Kernels that do the same usually have
// the same normal form.
Kernel Canonical(const Kernel& kernel);

// Whether input `in` may lie in the buffer of output `out`: every load of it reads the element that
// the one store to `out` overwrites, and no access is shifted by it. In a scan no two points store
// the same element.
bool MayGoInPlace(const Kernel& kernel, int in, int out);

// Runs the iterations begin <= i < end (row-major over the parallel dims) on host buffers, one per
// param. The reference for every emitter; slow.
void Interpret(const Kernel& kernel, absl::Span<void* const> buffers, int64_t begin, int64_t end);

}  // namespace tessera::worker::codegen
