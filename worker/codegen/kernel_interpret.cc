// Interpret: the reference semantics of a kernel, computed element by element and node by node. The
// tests of the emitters compare compiled kernels with it. It is never used in production.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/log.h"
#include "ir/ops/rules/scalar_eval.h"
#include "worker/codegen/kernel.h"
#include "worker/codegen/scalar_fn.h"

namespace tessera::worker::codegen {
namespace {

using ir::DType;
using ir::ReduceKind;
using ir::ScalarPrim;
namespace scalar = ir::scalar;

// ---- Reductions: accumulated wide and rounded once, as in ir/ops/reduction.cc. -----------------

struct Accumulator {
  double real = 0;
  // The value of integers and bools, extended to 64 bits by their sign.
  uint64_t bits = 0;
  ScalarBits best = 0;  // the best element so far (argmax and argmin)
  int64_t best_index = -1;
};

template <class T>
T ReadAs(ScalarBits bits) {
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
template <class T>
ScalarBits BitsOf(T value) {
  ScalarBits bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}

template <class T>
bool IsNan(T v) {
  if constexpr (std::is_floating_point_v<T>) return std::isnan(v);
  return false;
}
// Returns whether `next`, which comes after `have`, replaces it: it is better, or it is the first
// NaN.
template <class T>
bool Replaces(bool want_larger, T have, T next) {
  return !IsNan(have) && (IsNan(next) || (want_larger ? have < next : next < have));
}

template <class T>
void Start(ReduceKind kind, Accumulator* acc) {
  *acc = Accumulator();
  if constexpr (std::is_floating_point_v<T>) {
    const double infinity = std::numeric_limits<double>::infinity();
    if (kind == ReduceKind::kProd) acc->real = 1;
    if (kind == ReduceKind::kMax) acc->real = -infinity;
    if (kind == ReduceKind::kMin) acc->real = infinity;
  } else {
    using L = std::numeric_limits<T>;
    const auto extended = [](T v) { return static_cast<uint64_t>(static_cast<int64_t>(v)); };
    if (kind == ReduceKind::kProd) acc->bits = 1;
    if (kind == ReduceKind::kMax) acc->bits = extended(L::lowest());
    if (kind == ReduceKind::kMin) acc->bits = extended(L::max());
    if (kind == ReduceKind::kAnd) acc->bits = extended(static_cast<T>(-1));
  }
}

// Adds one element to the accumulator. Floats are accumulated in f64, and integers in 64 bits with
// wraparound, so that the result is rounded once, as in the reference evaluator. The first of equal
// elements wins in an argmax or argmin, because elements come in order.
template <class T>
void Fold(ReduceKind kind, ScalarBits bits, int64_t index, Accumulator* acc) {
  const T value = ReadAs<T>(bits);
  if (IsArgReduction(kind)) {
    if (acc->best_index < 0 ||
        Replaces<T>(kind == ReduceKind::kArgMax, ReadAs<T>(acc->best), value)) {
      acc->best = bits;
      acc->best_index = index;
    }
    return;
  }
  if constexpr (std::is_floating_point_v<T>) {
    const double wide = value;
    if (kind == ReduceKind::kSum) acc->real += wide;
    if (kind == ReduceKind::kProd) acc->real *= wide;
    if (kind == ReduceKind::kMax) acc->real = scalar::math::Max(acc->real, wide);
    if (kind == ReduceKind::kMin) acc->real = scalar::math::Min(acc->real, wide);
  } else {
    const uint64_t wide = static_cast<uint64_t>(static_cast<int64_t>(value));
    const T have = static_cast<T>(acc->bits);
    if (kind == ReduceKind::kSum) acc->bits += wide;
    if (kind == ReduceKind::kProd) acc->bits *= wide;
    if (kind == ReduceKind::kMax && have < value) acc->bits = wide;
    if (kind == ReduceKind::kMin && value < have) acc->bits = wide;
    if (kind == ReduceKind::kAnd) acc->bits &= wide;
    if (kind == ReduceKind::kOr) acc->bits |= wide;
  }
}

template <class T>
ScalarBits ResultOf(const Node& node, const Accumulator& acc) {
  if (IsArgReduction(node.reduce))
    return node.dtype == DType::kS32 ? BitsOf(static_cast<int32_t>(acc.best_index))
                                     : BitsOf(acc.best_index);
  if constexpr (std::is_floating_point_v<T>) return BitsOf(static_cast<T>(acc.real));
  return BitsOf(static_cast<T>(acc.bits));
}

struct Reduction {
  void (*start)(ReduceKind, Accumulator*) = nullptr;
  void (*fold)(ReduceKind, ScalarBits, int64_t, Accumulator*) = nullptr;
  ScalarBits (*result)(const Node&, const Accumulator&) = nullptr;
};
Reduction ReductionOf(DType operand) {
  Reduction reduction;
  constexpr int kReduced = scalar::kAnything;
  scalar::Dispatch<kReduced>(operand, [&]<DType kD>(ir::DTypeTag<kD>) {
    using T = ir::ComputeType<kD>;
    reduction = {Start<T>, Fold<T>, ResultOf<T>};
  });
  return reduction;
}

// ---- The loops. --------------------------------------------------------------------------------

class Interpreter {
 public:
  Interpreter(const Kernel& kernel, absl::Span<void* const> buffers)
      : kernel_(kernel),
        buffers_(buffers),
        levels_(LevelsOf(kernel)),
        values_(kernel.nodes.size()),
        index_(kernel.rank()),
        fns_(kernel.nodes.size()),
        reductions_(kernel.nodes.size()),
        accumulators_(kernel.nodes.size()) {
    for (size_t i = 0; i < kernel.nodes.size(); ++i) {
      const Node& node = kernel.nodes[i];
      if (node.kind == Node::Kind::kReduce)
        reductions_[i] = ReductionOf(kernel.nodes[node.args[0]].dtype);
      if (node.kind == Node::Kind::kScalar && node.prim != ScalarPrim::kConstant)
        fns_[i] = FindScalarFn(node.prim, kernel.nodes[node.args.back()].dtype, node.dtype);
    }
  }

  void Run(int64_t begin, int64_t end) {
    const int64_t reduced = kernel_.num_reduced_elements();
    for (int64_t i = begin; i < end; ++i) {
      std::fill(index_.begin(), index_.end(), 0);
      SetIndex(i, 0, kernel_.num_parallel());
      Compute(Level::kBefore);
      StartReductions();
      if (kernel_.scans) {
        for (int64_t r = 0; r < reduced; ++r) {
          SetIndex(r, kernel_.num_parallel(), kernel_.rank());
          Compute(Level::kInner);
          WriteStores();
        }
        continue;
      }
      for (int64_t r = 0; r < reduced && kernel_.num_reduced > 0; ++r) {
        SetIndex(r, kernel_.num_parallel(), kernel_.rank());
        Compute(Level::kInner);
        FoldReductions(r);
      }
      Compute(Level::kAfter);
      WriteStores();
    }
  }

 private:
  void WriteStores() {
    for (const Store& store : kernel_.stores) {
      const int64_t width = ir::ByteWidth(kernel_.params[store.param].dtype);
      std::memcpy(static_cast<char*>(buffers_[store.param]) + ElementIndex(store.access) * width,
                  &values_[store.node], width);
    }
  }

  // Sets dims [begin, end) of the index to the point with the row-major number `flat`.
  void SetIndex(int64_t flat, int begin, int end) {
    for (int d = end - 1; d >= begin; --d) {
      index_[d] = flat % kernel_.shape[d];
      flat /= kernel_.shape[d];
    }
  }

  // Reads the number by which an access is shifted. A u64 that does not fit into an s64 is read as
  // the largest s64.
  int64_t ReadShift(const DynamicOffset& shift) {
    int64_t at = shift.offset, number = 0;
    for (size_t d = 0; d < shift.strides.size(); ++d) at += shift.strides[d] * index_[d];
    const DType dtype = kernel_.params[shift.param].dtype;
    scalar::Dispatch<scalar::kInts>(dtype, [&]<DType kD>(ir::DTypeTag<kD>) {
      const auto v = static_cast<const ir::StorageType<kD>*>(buffers_[shift.param])[at];
      constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
      number = kD == DType::kU64 && v > kMax ? kMax : static_cast<int64_t>(v);
    });
    return number;
  }
  static ScalarBits Load(const void* from, int64_t width) {
    ScalarBits bits = 0;
    std::memcpy(&bits, from, width);
    return bits;
  }

  int64_t ElementIndex(const Access& access) {
    int64_t element = access.offset;
    for (int d = 0; d < kernel_.rank(); ++d) element += access.strides[d] * index_[d];
    for (const DynamicOffset& shift : access.shifts)
      element += shift.stride * std::clamp<int64_t>(ReadShift(shift), 0, shift.max);
    return element;
  }

  void Compute(Level level) {
    for (size_t i = 0; i < kernel_.nodes.size(); ++i)
      if (levels_[i] == level) {
        if (kernel_.scans && reductions_[i].fold) Fold(i, /*index=*/0);
        values_[i] = ValueOf(i);
      }
  }

  ScalarBits ValueOf(size_t i) {
    const Node& node = kernel_.nodes[i];
    switch (node.kind) {
      case Node::Kind::kLoad: {
        const int64_t width = ir::ByteWidth(node.dtype);
        const ScalarBits bits =
            Load(static_cast<const char*>(buffers_[node.param]) + ElementIndex(node.access) * width,
                 width);
        return node.dtype == DType::kBool ? ScalarBits{bits != 0} : bits;
      }
      case Node::Kind::kIndex: {
        const int64_t value = ElementIndex(node.access);
        return ir::ByteWidth(node.dtype) == 8 ? BitsOf(value)
                                              : BitsOf(static_cast<uint32_t>(value));
      }
      case Node::Kind::kReduce:
        return reductions_[i].result(node, accumulators_[i]);
      case Node::Kind::kScalar:
        break;
    }
    if (node.prim == ScalarPrim::kConstant) return ConstantOf(node);
    ScalarBits args[3] = {};
    for (size_t a = 0; a < node.args.size(); ++a) args[a] = values_[node.args[a]];
    return fns_[i](args);
  }

  static ScalarBits ConstantOf(const Node& node) {
    if (node.dtype == DType::kF32) return BitsOf(static_cast<float>(node.value));
    if (node.dtype == DType::kF64) return BitsOf(node.value);
    return Load(&node.int_value, ir::ByteWidth(node.dtype));  // the low bytes come first in memory
  }

  void StartReductions() {
    for (size_t i = 0; i < kernel_.nodes.size(); ++i) {
      if (!reductions_[i].start) continue;
      reductions_[i].start(kernel_.nodes[i].reduce, &accumulators_[i]);
      if (kernel_.scans && kernel_.nodes[i].reduce == ReduceKind::kSum)
        // The first result is the first element, even if it is -0.
        accumulators_[i].real = -0.0;
    }
  }
  void FoldReductions(int64_t index) {
    for (size_t i = 0; i < kernel_.nodes.size(); ++i)
      if (reductions_[i].fold) Fold(i, index);
  }
  void Fold(size_t i, int64_t index) {
    const Node& node = kernel_.nodes[i];
    reductions_[i].fold(node.reduce, values_[node.args[0]], index, &accumulators_[i]);
  }

  const Kernel& kernel_;
  const absl::Span<void* const> buffers_;
  const std::vector<Level> levels_;
  std::vector<ScalarBits> values_;
  ir::Dims index_;
  std::vector<ScalarFn> fns_;
  std::vector<Reduction> reductions_;
  std::vector<Accumulator> accumulators_;
};

}  // namespace

void Interpret(const Kernel& kernel, absl::Span<void* const> buffers, int64_t begin, int64_t end) {
  TESSERA_CHECK_EQ(buffers.size(), kernel.params.size());
  TESSERA_CHECK(0 <= begin && end <= kernel.num_iterations())
      << "iterations " << begin << " to " << end << " of " << kernel.num_iterations();
  Interpreter(kernel, buffers).Run(begin, end);
}

}  // namespace tessera::worker::codegen
