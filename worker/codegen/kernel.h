// A kernel: one machine-independent loop nest over an iteration space.
//
// The fuser (program/fuse.h) builds kernels, the emitters compile them to machine code (host
// vectors, NVPTX), and Interpret defines what they compute. A kernel is a plain value. Kernels are
// compared, hashed and cached by their text: ParseKernel(k.ToString()) == k.
//
// `shape` lists the dims of the iteration space. The last `num_reduced` dims are reduction dims,
// the others are parallel dims. The nodes are evaluated in order for each point (i_0, i_1, ...). An
// "inner" node is evaluated for every point. A load or an index is inner if its strides over the
// reduction dims are not all 0, and a scalar op is inner if one of its arguments is. All other
// nodes, reductions among them, are "outer": they are evaluated once for each point of the parallel
// dims. Arguments precede uses. A node that depends on a reduction reads outer nodes only. Stores
// write outer nodes.
//
// A kernel may scan its last dims instead of reducing them. For each point of the parallel dims a
// scan goes through the last dims in row-major order. Everything that varies over them is evaluated
// at each of their points, and stores are made there too. The value of a reduction in a scan covers
// the points visited so far. If a param is both loaded and stored, a load sees the values that
// earlier points have stored, so that a point may update the results of other points.
//
// Elements are computed as in ir/scalar_math.h for their dtype, but functions of floats may be
// off by 2 ulp. The order of a reduction depends only on the shape and the target. A sum of
// products may round each product together with its addition. bf16 and f16 are only loaded, stored,
// selected and converted. Dtypes without scalar math (not ir::IsComputable) are only loaded and
// stored, and have at most 8 bytes. A bool is a byte, 0 or 1.
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

// A part of an offset that is known at run time: stride * clamp(n, 0, max). The number n is the
// element offset + sum(strides[d] * i_d) of the param, which is an input of an integer dtype. A
// dynamic slice has one n for all points, and a gather has one n for each of its positions.
struct DynamicOffset {
  int param = 0;
  int64_t max = 0;
  int64_t stride = 0;
  int64_t offset = 0;
  ir::Dims strides = {};  // one per dim of the iteration space, or empty: all are 0
  bool operator==(const DynamicOffset&) const = default;
};

// The element of a buffer that belongs to a point: offset + sum(strides[d] * i_d) + the dynamic
// offsets, in elements. There is one stride per dim of the iteration space, which may be 0 or
// negative.
struct Access {
  int64_t offset = 0;
  ir::Dims strides;
  std::vector<DynamicOffset> shifts;
  bool operator==(const Access&) const = default;
};

// Calls f(strides) for each list of strides over the iteration space that an access has.
template <class AccessType, class F>
void ForEachStrides(AccessType& access, const F& f) {
  f(access.strides);
  for (auto& shift : access.shifts)
    if (!shift.strides.empty()) f(shift.strides);
}

struct Node {
  enum class Kind : uint8_t { kLoad, kIndex, kScalar, kReduce };
  Kind kind = Kind::kScalar;
  ir::DType dtype = ir::DType::kF32;  // dtype of the result
  // For kScalar: any primitive but Input. If it is Constant: the value, which is `value` for floats
  // and `int_value` for all other dtypes.
  ir::ScalarPrim prim = ir::ScalarPrim::kConstant;
  double value = 0;
  int64_t int_value = 0;
  // For kReduce. bf16 and f16 are converted before they are summed. kArgMax and kArgMin give the
  // index, of dtype s32 or s64, of the first best element along the single reduced dim. A NaN wins
  // over every number.
  ir::ReduceKind reduce = ir::ReduceKind::kNone;
  std::vector<int> args;  // the numbers of earlier nodes (kScalar, kReduce)
  // For kLoad: the param, and the access of the element that is read. For kIndex: `access`, without
  // shifts, is the affine function of the point that is the result.
  int param = 0;
  Access access;
  bool operator==(const Node&) const = default;
};

struct Param {
  ir::DType dtype = ir::DType::kF32;
  int64_t size = 0;  // number of elements of the buffer
  bool output = false;
  // Whether this input may lie in the buffer of an output that overwrites it (MayGoInPlace).
  bool in_place = false;
  bool operator==(const Param&) const = default;
};

// Writes node `node` to an output of the node's dtype. Strides over reduction dims are 0, unless
// the kernel scans them. Distinct points of the parallel dims write distinct elements. A param is
// not both loaded and stored, unless every load and store of it has the same access (in place). In
// a scan each output has one store.
struct Store {
  int node = 0;
  int param = 0;
  Access access;
  bool operator==(const Store&) const = default;
};

struct Kernel {
  ir::Dims shape;
  int num_reduced = 0;
  bool scans = false;  // whether the last dims are scanned instead of reduced
  std::vector<Param> params;
  std::vector<Node> nodes;
  std::vector<Store> stores;
  bool operator==(const Kernel&) const = default;

  int rank() const { return static_cast<int>(shape.size()); }
  int num_parallel() const { return rank() - num_reduced; }
  // The number of points of the iteration space, of its parallel dims and of its reduction dims.
  // The points of the parallel dims are the iterations that Interpret and compiled kernels count.
  int64_t num_elements() const;
  int64_t num_iterations() const;
  int64_t num_reduced_elements() const;
  // Returns one line for the dims and one for each param, node and store.
  std::string ToString() const;
};

constexpr bool IsArgReduction(ir::ReduceKind kind) {
  return kind == ir::ReduceKind::kArgMax || kind == ir::ReduceKind::kArgMin;
}
// VariesOver returns whether an access, or one of its shifts, has a nonzero stride over dim `dim`.
// The overload for a DynamicOffset looks at that shift alone. ShiftsVaryOver looks at all shifts of
// an access.
bool VariesOver(const Access& access, int dim);
bool VariesOver(const DynamicOffset& shift, int dim);
bool ShiftsVaryOver(const Access& access, int dim);
// Returns whether the access varies over a reduction dim.
bool VariesOverReduced(const Kernel& kernel, const Access& access);

// Returns true only if points that differ in the first `num_dims` dims access different elements,
// whatever their other coordinates and the values of the varying shifts are. The condition is
// sufficient, not necessary.
bool IsInjective(const Kernel& kernel, const Access& access, int num_dims);

// The loop level of a node: outer and before the reductions (kBefore), inner (kInner), or outer and
// after the reductions (kAfter: a reduction, or a node that reads one). Without reduction dims all
// nodes are kBefore. In a scan, reductions are kInner, and so are loads of a param that is stored.
enum class Level : uint8_t { kBefore, kInner, kAfter };
// LevelOf returns the level of one node, given the levels of the nodes before it. LevelsOf returns
// the levels of all nodes. Both require that arguments precede uses.
Level LevelOf(const Kernel& kernel, const Node& node, const std::vector<Level>& earlier);
std::vector<Level> LevelsOf(const Kernel& kernel);

// The inverse of ToString. Returns VALUE_ERROR, which names the line, if a line does not parse.
// Refuses texts that are too long or have too many nodes or params, and kernels that do not pass
// Verify.
absl::StatusOr<Kernel> ParseKernel(absl::string_view text);

// Checks every rule above, and that no access can leave its buffer. Returns VALUE_ERROR, which
// names the node or store that breaks a rule.
absl::Status Verify(const Kernel& kernel);

// Returns the kernel in normal form: dims of size 1 and dead nodes are dropped, neighbouring dims
// are merged where every access allows it, and equal nodes are merged. Kernels that compute the
// same results usually have the same normal form.
Kernel Canonical(const Kernel& kernel);

// Returns whether input `in` may lie in the buffer of output `out`. Every load of `in` must read
// the element that the one store to `out` overwrites, and no access may be shifted by `in`. In a
// scan, no two points may store to the same element.
bool MayGoInPlace(const Kernel& kernel, int in, int out);

// Runs the iterations begin <= i < end (row-major over the parallel dims) on host buffers, one
// buffer per param. This slow function is the reference for every emitter.
void Interpret(const Kernel& kernel, absl::Span<void* const> buffers, int64_t begin, int64_t end);

}  // namespace tessera::worker::codegen
