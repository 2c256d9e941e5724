// Verify: checks the rules of kernel.h on dtypes and levels, and that accesses stay inside their
// buffers. program/verify.cc calls it for every kernel of a step program, and ParseKernel for every
// kernel that comes as text. The emitters rely on it and check nothing again.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "ir/array.h"
#include "worker/codegen/kernel.h"
#include "worker/codegen/scalar_fn.h"
#include "worker/codegen/scalar_prim.h"

namespace tessera::worker::codegen {
namespace {

using ir::DType;
using ir::ReduceKind;
using ir::ScalarPrim;

constexpr int kRankMax = 32;
constexpr size_t kParamsMax = 256;
constexpr size_t kNodesMax = 4096;
constexpr size_t kStoresMax = 256;
constexpr size_t kShiftsMax = 32;
constexpr int64_t kElementsMax = int64_t{1} << 56;

template <class... Parts>
absl::Status Fault(const Parts&... parts) {
  return MakeError(ErrorKind::kValueError, absl::StrCat("kernel: ", parts...));
}
std::string Name(DType dtype) { return std::string(DTypeName(dtype)); }

// The lowest and the highest element that an access reaches.
struct Range {
  int64_t low = 0, high = 0;
};

// Adds a term stride * i with 0 <= i <= max to the range. Returns false on overflow.
bool Extend(int64_t stride, int64_t max, Range* range) {
  int64_t reach;
  if (__builtin_mul_overflow(stride, max, &reach)) return false;
  int64_t* end = reach < 0 ? &range->low : &range->high;
  return !__builtin_add_overflow(*end, reach, end);
}

class Verifier {
 public:
  explicit Verifier(const Kernel& kernel) : kernel_(kernel) {}

  absl::Status Run() {
    TESSERA_RETURN_IF_ERROR(CheckShape());
    TESSERA_RETURN_IF_ERROR(CheckParams());
    if (kernel_.nodes.size() > kNodesMax)
      return Fault(kernel_.nodes.size(), " nodes; at most ", kNodesMax, " are allowed");
    if (kernel_.stores.size() > kStoresMax)
      return Fault(kernel_.stores.size(), " stores; at most ", kStoresMax, " are allowed");
    for (size_t i = 0; i < kernel_.nodes.size(); ++i) {
      const Node& node = kernel_.nodes[i];
      const absl::Status status = CheckNode(node, static_cast<int>(i));
      if (!status.ok())
        return Annotate(status, absl::StrCat("node %", i, " (", Describe(node), ")"));
      levels_.push_back(LevelOf(kernel_, node, levels_));
    }
    for (size_t i = 0; i < kernel_.stores.size(); ++i)
      TESSERA_RETURN_IF_ERROR(
          Annotate(CheckStore(kernel_.stores[i]),
                   absl::StrCat("store ", i, " to p", kernel_.stores[i].param)));
    TESSERA_RETURN_IF_ERROR(CheckSharedParams());
    return CheckInPlaceParams();
  }

 private:
  static std::string Describe(const Node& node) {
    switch (node.kind) {
      case Node::Kind::kLoad:
        return absl::StrCat("load p", node.param);
      case Node::Kind::kIndex:
        return "index";
      case Node::Kind::kScalar:
        return std::string(ScalarPrimName(node.prim));
      case Node::Kind::kReduce:
        return absl::StrCat("reduce ", ToAbsl(ReduceKindName(node.reduce)));
    }
    return "?";
  }

  absl::Status CheckShape() {
    if (kernel_.rank() > kRankMax)
      return Fault("rank ", kernel_.rank(), "; at most ", kRankMax, " is allowed");
    if (kernel_.num_reduced < 0 || kernel_.num_reduced > kernel_.rank())
      return Fault(kernel_.num_reduced, " reduced dims of ", kernel_.rank(),
                   "; expected a number from 0 to the rank");
    if (kernel_.scans && kernel_.num_reduced == 0) return Fault("the kernel scans no dim");
    int64_t elements = 1;
    for (int64_t size : kernel_.shape) {
      if (size < 0) return Fault("a dim of size ", size, "; expected 0 or more");
      if (__builtin_mul_overflow(elements, std::max<int64_t>(size, 1), &elements) ||
          elements > kElementsMax)
        return Fault("the box has more than ", kElementsMax, " elements; split it");
    }
    const auto parallel_end = kernel_.shape.begin() + kernel_.num_parallel();
    no_iterations_ = std::find(kernel_.shape.begin(), parallel_end, 0) != parallel_end;
    no_elements_ =
        no_iterations_ || std::find(parallel_end, kernel_.shape.end(), 0) != kernel_.shape.end();
    return absl::OkStatus();
  }

  absl::Status CheckParams() {
    if (kernel_.params.size() > kParamsMax)
      return Fault(kernel_.params.size(), " params; at most ", kParamsMax, " are allowed");
    for (size_t i = 0; i < kernel_.params.size(); ++i) {
      const Param& param = kernel_.params[i];
      if (ir::ByteWidth(param.dtype) > 8)
        return Fault("p", i, " is of dtype ", Name(param.dtype),
                     "; expected a dtype of at most 8 bytes");
      if (param.size < 0 || param.size > kElementsMax)
        return Fault("p", i, " has ", param.size, " elements; expected 0 to ", kElementsMax);
      if (param.output && param.in_place)
        return Fault("p", i, " is an output and marked as an input that is overwritten");
    }
    return absl::OkStatus();
  }

  bool IsParam(int param) const {
    return param >= 0 && param < static_cast<int>(kernel_.params.size());
  }

  absl::Status CheckStrides(const Access& access) const {
    if (access.strides.size() != kernel_.shape.size())
      return Fault(access.strides.size(), " strides; expected one for each of the ", kernel_.rank(),
                   " dims");
    for (const DynamicOffset& shift : access.shifts)
      if (!shift.strides.empty() && shift.strides.size() != kernel_.shape.size())
        return Fault("shift by p", shift.param, " with ", shift.strides.size(),
                     " strides; expected none, or one for each of the ", kernel_.rank(), " dims");
    return absl::OkStatus();
  }

  // Checks the strides and shifts of `access`, and sets `range` to the elements that it can reach.
  absl::Status CheckAccess(const Access& access, Range* range) {
    TESSERA_RETURN_IF_ERROR(CheckStrides(access));
    if (access.shifts.size() > kShiftsMax)
      return Fault(access.shifts.size(), " shifts; at most ", kShiftsMax, " are allowed");
    *range = {access.offset, access.offset};
    for (int d = 0; d < kernel_.rank(); ++d)
      if (!Extend(access.strides[d], std::max<int64_t>(kernel_.shape[d], 1) - 1, range))
        return Fault("stride ", access.strides[d], " of dim ", d, " overflows");
    for (const DynamicOffset& shift : access.shifts) {
      if (!IsParam(shift.param)) return Fault("shift by p", shift.param, ", which is not a param");
      const Param& param = kernel_.params[shift.param];
      if (param.output || !ir::IsInteger(param.dtype) || !ir::IsComputable(param.dtype) ||
          param.size < 1)
        return Fault("shift by p", shift.param, ", an ", param.output ? "output" : "input",
                     " of dtype ", Name(param.dtype), " with ", param.size,
                     " elements; expected an input of an integer dtype with at least one");
      if (shift.max < 0) return Fault("shift of at most ", shift.max, "; expected 0 or more");
      TESSERA_RETURN_IF_ERROR(CheckShiftElements(shift));
      if (!Extend(shift.stride, shift.max, range))
        return Fault("shift by p", shift.param, " overflows");
    }
    return absl::OkStatus();
  }

  // Checks that the elements which hold the shift lie inside their param. They are read at every
  // point, even if the access itself is never reached.
  absl::Status CheckShiftElements(const DynamicOffset& shift) {
    const int64_t size = kernel_.params[shift.param].size;
    Range range{shift.offset, shift.offset};
    for (size_t d = 0; d < shift.strides.size(); ++d)
      if (!Extend(shift.strides[d], std::max<int64_t>(kernel_.shape[d], 1) - 1, &range))
        return Fault("shift by p", shift.param, ": stride ", shift.strides[d], " of dim ", d,
                     " overflows");
    if (range.low < 0 || range.high >= size)
      return Fault("shift by elements ", range.low, " to ", range.high, " of p", shift.param,
                   ", which has ", size);
    return absl::OkStatus();
  }

  absl::Status CheckInside(const Access& access, int param, bool never_runs) {
    Range range;
    TESSERA_RETURN_IF_ERROR(CheckAccess(access, &range));
    const int64_t size = kernel_.params[param].size;
    if (!never_runs && (range.low < 0 || range.high >= size))
      return Fault("it reaches elements ", range.low, " to ", range.high, " of p", param,
                   ", which has ", size);
    return absl::OkStatus();
  }

  // Checks that the fields which a node's kind does not use have their defaults, since the text
  // does not print them.
  absl::Status CheckUnused(const Node& node) {
    const bool is_scalar = node.kind == Node::Kind::kScalar;
    const bool has_access = node.kind == Node::Kind::kLoad || node.kind == Node::Kind::kIndex;
    const bool is_constant = is_scalar && node.prim == ScalarPrim::kConstant;
    if ((!is_scalar && node.prim != ScalarPrim::kConstant) ||
        (node.kind != Node::Kind::kReduce && node.reduce != ReduceKind::kNone) ||
        (node.kind != Node::Kind::kLoad && node.param != 0) || (has_access && !node.args.empty()) ||
        (!has_access && !(node.access == Access())) ||
        (!(is_constant && IsFloat(node.dtype)) &&
         !(node.value == 0 && !std::signbit(node.value))) ||
        (!(is_constant && !IsFloat(node.dtype)) && node.int_value != 0))
      return Fault(
          "a field is set that this kind of node does not read; leave the field at its default");
    return absl::OkStatus();
  }

  absl::Status CheckNode(const Node& node, int id) {
    for (int arg : node.args)
      if (arg < 0 || arg >= id) return Fault("argument %", arg, " is not an earlier node");
    TESSERA_RETURN_IF_ERROR(CheckUnused(node));
    switch (node.kind) {
      case Node::Kind::kLoad:
        return CheckLoad(node);
      case Node::Kind::kIndex:
        return CheckIndex(node);
      case Node::Kind::kScalar:
        return node.prim == ScalarPrim::kConstant ? CheckConstant(node) : CheckScalar(node);
      case Node::Kind::kReduce:
        return CheckReduce(node);
    }
    return Fault("unknown kind of node");
  }

  absl::Status CheckLoad(const Node& node) {
    if (!IsParam(node.param)) return Fault("p", node.param, " is not a param");
    const DType dtype = kernel_.params[node.param].dtype;
    if (node.dtype != dtype)
      return Fault("dtype ", Name(node.dtype), " of a param of dtype ", Name(dtype),
                   "; load it in the dtype of the param and convert");
    TESSERA_RETURN_IF_ERROR(CheckStrides(node.access));
    return CheckInside(node.access, node.param,
                       VariesOverReduced(kernel_, node.access) ? no_elements_ : no_iterations_);
  }

  absl::Status CheckIndex(const Node& node) {
    if (!ir::IsInteger(node.dtype) || ir::ByteWidth(node.dtype) < 4)
      return Fault("dtype ", Name(node.dtype), "; expected s32, u32, s64 or u64: convert it");
    if (!node.access.shifts.empty()) return Fault("an index has no shifts");
    Range range;
    return CheckAccess(node.access, &range);
  }

  absl::Status CheckConstant(const Node& node) {
    if (!node.args.empty()) return Fault("a constant has no arguments");
    const double v = node.value;
    const int64_t i = node.int_value;
    bool fits = false;
    if (node.dtype == DType::kBool) {
      fits = i == 0 || i == 1;
    } else if (node.dtype == DType::kF32) {
      fits = std::isnan(v) || std::isinf(v) ||
             (std::fabs(v) <= std::numeric_limits<float>::max() && v == static_cast<float>(v));
    } else if (node.dtype == DType::kF64) {
      fits = true;
    } else if (ir::IsInteger(node.dtype) && ir::IsComputable(node.dtype)) {
      fits = ir::Array::ScalarInt(node.dtype, i).IntAt(0) == i;
    }
    if (fits) return absl::OkStatus();
    return Fault("the value is not of dtype ", Name(node.dtype),
                 "; expected a value of bool, an integer dtype, f32 or f64");
  }

  absl::Status CheckScalar(const Node& node) {
    const int arity = InfoOf(node.prim).arity();
    if (node.prim == ScalarPrim::kInput || static_cast<int>(node.args.size()) != arity)
      return Fault(node.args.size(), " arguments; the primitive takes ", arity);
    const DType operand = kernel_.nodes[node.args.back()].dtype;
    for (size_t i = 0; i < node.args.size(); ++i) {
      const bool is_predicate = node.prim == ScalarPrim::kSelect && i == 0;
      const DType have = kernel_.nodes[node.args[i]].dtype;
      const DType want = is_predicate ? DType::kBool : operand;
      if (have != want)
        return Fault("argument ", i, " is of dtype ", Name(have), "; expected ", Name(want));
    }
    if (FindScalarFn(node.prim, operand, node.dtype) == nullptr)
      return Fault("the primitive has no form from ", Name(operand), " to ", Name(node.dtype),
                   "; see ir/scalar_math.h for its dtypes, and convert");
    bool inner = false, after = false;
    for (int arg : node.args) {
      inner = inner || levels_[arg] == Level::kInner;
      after = after || levels_[arg] == Level::kAfter;
    }
    if (inner && after)
      return Fault("the node reads a reduction and an element of the full box; make two kernels");
    return absl::OkStatus();
  }

  // Checks a reduction: there are dims to reduce, and the kind accepts the dtype of the argument.
  // f16 and bf16 are refused, because a kernel converts them before it sums them (Node::reduce). An
  // argument that depends on a reduction is refused too, because a kernel has one reduction loop.
  absl::Status CheckReduce(const Node& node) {
    if (node.args.size() != 1) return Fault(node.args.size(), " arguments; a reduction takes 1");
    if (kernel_.num_reduced == 0) return Fault("the kernel has no reduced dims");
    const DType dtype = kernel_.nodes[node.args[0]].dtype;
    if (!ir::IsComputable(dtype) || ir::ComputeDType(dtype) != dtype)
      return Fault("an operand of dtype ", Name(dtype),
                   "; expected bool, an integer dtype, f32 or f64: convert it");
    if (levels_[node.args[0]] == Level::kAfter)
      return Fault("the node reduces the result of a reduction; make two kernels");
    const bool is_bool = dtype == DType::kBool;
    bool accepts = false;
    switch (node.reduce) {
      case ReduceKind::kSum:
      case ReduceKind::kProd:
        accepts = !is_bool;
        break;
      case ReduceKind::kMax:
      case ReduceKind::kMin:
        accepts = true;
        break;
      case ReduceKind::kAnd:
      case ReduceKind::kOr:
        accepts = !IsFloat(dtype);
        break;
      case ReduceKind::kArgMax:
      case ReduceKind::kArgMin:
        if (kernel_.scans) return Fault("a scan has no index of the best");
        return CheckArgReduction(node);
      case ReduceKind::kNone:
        break;
    }
    if (!accepts) return Fault("the reduction does not take dtype ", Name(dtype));
    if (node.dtype != dtype)
      return Fault("a result of dtype ", Name(node.dtype), " from ", Name(dtype),
                   "; expected the same");
    return absl::OkStatus();
  }

  absl::Status CheckArgReduction(const Node& node) {
    if (kernel_.num_reduced != 1)
      return Fault(kernel_.num_reduced, " reduced dims; the index of the best is along one");
    const int64_t size = kernel_.shape.back();
    if (size < 1) return Fault("the reduced dim is empty, so it has no best element");
    if (node.dtype != DType::kS32 && node.dtype != DType::kS64)
      return Fault("a result of dtype ", Name(node.dtype), "; expected s32 or s64");
    if (node.dtype == DType::kS32 && size - 1 > std::numeric_limits<int32_t>::max())
      return Fault("an index of ", size, " elements does not fit s32; use s64");
    return absl::OkStatus();
  }

  // Checks that the store writes a value of its param's dtype, stays within the param, and writes
  // different elements at different points of the parallel dims. The emitter runs the points in any
  // order and on several threads, so two points that write the same element would race.
  absl::Status CheckStore(const Store& store) {
    if (!IsParam(store.param)) return Fault("p", store.param, " is not a param");
    const Param& param = kernel_.params[store.param];
    if (!param.output) return Fault("p", store.param, " is an input");
    if (store.node < 0 || store.node >= static_cast<int>(kernel_.nodes.size()))
      return Fault("%", store.node, " is not a node");
    const DType dtype = kernel_.nodes[store.node].dtype;
    if (dtype != param.dtype)
      return Fault("%", store.node, " is of dtype ", Name(dtype), ", the param of ",
                   Name(param.dtype), "; convert it");
    const bool scans = kernel_.scans, never_runs = scans ? no_elements_ : no_iterations_;
    if (levels_[store.node] == Level::kInner && !scans)
      return Fault("%", store.node, " varies over the reduced dims; reduce it");
    TESSERA_RETURN_IF_ERROR(CheckInside(store.access, store.param, never_runs));
    if (VariesOverReduced(kernel_, store.access) && !scans)
      return Fault("a stride over a reduced dim is not 0");
    for (int d = 0; d < kernel_.num_parallel(); ++d)
      if (ShiftsVaryOver(store.access, d) && !scans)
        return Fault("a shift varies over dim ", d,
                     "; only a scan may store to a position that each point chooses");
    if (!never_runs && !IsInjective(kernel_, store.access, kernel_.num_parallel()))
      return Fault(
          "two indices may write the same element; expected each stride to exceed the span of the "
          "smaller ones");
    return absl::OkStatus();
  }

  // Checks that a param that is stored is loaded in place only, and that two stores to it do not
  // overlap.
  absl::Status CheckSharedParams() {
    std::map<int, std::vector<size_t>> stores;
    for (size_t i = 0; i < kernel_.stores.size(); ++i) stores[kernel_.stores[i].param].push_back(i);
    for (const auto& [param, list] : stores)
      if (kernel_.scans && list.size() > 1)
        return Fault("a scan has ", list.size(), " stores to p", param, "; expected one");
    for (const auto& [param, list] : stores)
      for (size_t a = 0; a < list.size(); ++a)
        for (size_t b = a + 1; b < list.size(); ++b)
          if (!no_iterations_ &&
              MayOverlap(kernel_.stores[list[a]].access, kernel_.stores[list[b]].access))
            return Fault("stores ", list[a], " and ", list[b], " may write the same element of p",
                         param);
    for (size_t i = 0; i < kernel_.nodes.size(); ++i) {
      const Node& node = kernel_.nodes[i];
      if (node.kind != Node::Kind::kLoad || !kernel_.params[node.param].output) continue;
      for (size_t store : stores[node.param])
        if (!(kernel_.stores[store].access == node.access))
          return Fault("node %", i, " loads p", node.param, " and store ", store,
                       " writes it elsewhere; a param that is both loaded and stored must be "
                       "stored in place");
    }
    return absl::OkStatus();
  }

  absl::Status CheckInPlaceParams() const {
    const int n = static_cast<int>(kernel_.params.size());
    for (int in = 0; in < n; ++in) {
      if (!kernel_.params[in].in_place) continue;
      bool any = false;
      for (int out = 0; out < n && !any; ++out)
        any = kernel_.params[out].output && MayGoInPlace(kernel_, in, out);
      if (!any)
        return Fault("p", in, " is to be overwritten, but no output is stored where it is loaded");
    }
    return absl::OkStatus();
  }

  // Returns whether the accesses may reach the same element. They cannot if their ranges are
  // disjoint, or if their offsets do not differ by a multiple of the greatest common divisor of
  // their strides.
  bool MayOverlap(const Access& a, const Access& b) {
    Range x, y;
    if (!CheckAccess(a, &x).ok() || !CheckAccess(b, &y).ok()) return true;
    if (a.shifts == b.shifts) {
      // Both accesses have the same shifts, so that only their offsets matter.
      Access a0 = a, b0 = b;
      a0.shifts = b0.shifts = {};
      if (!CheckAccess(a0, &x).ok() || !CheckAccess(b0, &y).ok()) return true;
    }
    if (x.high < y.low || y.high < x.low) return false;
    if (!(a.shifts == b.shifts)) return true;
    uint64_t divisor = 0;
    for (int d = 0; d < kernel_.num_parallel(); ++d) {
      if (kernel_.shape[d] < 2) continue;
      divisor = std::gcd(divisor, static_cast<uint64_t>(std::abs(a.strides[d])));
      divisor = std::gcd(divisor, static_cast<uint64_t>(std::abs(b.strides[d])));
    }
    const uint64_t distance = static_cast<uint64_t>(std::abs(a.offset - b.offset));
    return divisor == 0 ? distance == 0 : distance % divisor == 0;
  }

  const Kernel& kernel_;
  std::vector<Level> levels_;
  bool no_iterations_ = false;  // whether a parallel dim is empty
  bool no_elements_ = false;    // whether any dim is empty
};

}  // namespace

absl::Status Verify(const Kernel& kernel) { return Verifier(kernel).Run(); }

}  // namespace tessera::worker::codegen
