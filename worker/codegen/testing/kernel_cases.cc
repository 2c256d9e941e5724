// Test data for kernels: tests of the interpreter, of the host emitter and of the GPU emitter run
// the same cases. The reference is the evaluator (ScalarOpCases) or the interpreter (random
// kernels).
#include "worker/codegen/testing/kernel_cases.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "ir/eval/eval.h"
#include "ir/narrow_float.h"
#include "ir/op_def.h"
#include "ir/registry.h"
#include "worker/codegen/scalar_fn.h"
#include "worker/codegen/scalar_prim.h"

namespace tessera::worker::codegen {
namespace {

using ir::Array;
using ir::DType;
using ir::ReduceKind;
using ir::ScalarPrim;

constexpr size_t kGuardBytes = 256;
constexpr std::byte kGuard{0xA5};

constexpr DType kComputed[] = {DType::kBool, DType::kS8,  DType::kS16, DType::kS32, DType::kS64,
                               DType::kU8,   DType::kU16, DType::kU32, DType::kU64, DType::kF16,
                               DType::kBF16, DType::kF32, DType::kF64};

// ---- Filling buffers. --------------------------------------------------------------------------

bool ShiftsByParam(const Kernel& kernel, int param) {
  const auto shifts_by_param = [param](const Access& access) {
    return std::any_of(access.shifts.begin(), access.shifts.end(),
                       [param](const DynamicOffset& shift) { return shift.param == param; });
  };
  return std::any_of(kernel.nodes.begin(), kernel.nodes.end(),
                     [&](const Node& node) { return shifts_by_param(node.access); }) ||
         std::any_of(kernel.stores.begin(), kernel.stores.end(),
                     [&](const Store& store) { return shifts_by_param(store.access); });
}

void PutElement(DType dtype, double number, int64_t integer, std::byte* to) {
  const auto put = [to](auto value) { std::memcpy(to, &value, sizeof value); };
  switch (dtype) {
    case DType::kBool:
      return put(static_cast<uint8_t>(integer & 1));
    case DType::kBF16:
      return put(ir::FloatToBf16(static_cast<float>(number)));
    case DType::kF16:
      return put(ir::DoubleToF16(number));
    case DType::kF32:
      return put(static_cast<float>(number));
    case DType::kF64:
      return put(number);
    default:
      std::memcpy(to, &integer, ir::ByteWidth(dtype));
  }
}

// Returns mostly ordinary numbers, and now and then a special one.
double RandomFloat(std::mt19937* random) {
  static const auto* const special = new std::vector<double>(FloatSamples());
  const uint32_t r = (*random)();
  if (r % 16 == 0) return (*special)[(r >> 8) % special->size()];
  return (static_cast<double>((*random)()) / 4294967296.0 - 0.5) * (r % 3 == 0 ? 20 : 2);
}
int64_t RandomInt(DType dtype, std::mt19937* random) {
  const uint32_t r = (*random)();
  if (r % 8 == 0) {
    const std::vector<int64_t> special = IntSamples(dtype);
    return special[(r >> 8) % special.size()];
  }
  if (r % 3 == 0) return static_cast<int32_t>((*random)());
  return static_cast<int64_t>((r >> 8) % 41) - 20;
}

// ---- Comparing. --------------------------------------------------------------------------------

// Maps the bits of floats to integers in the order of the floats.
template <class Bits>
Bits Ordered(Bits bits) {
  return bits < 0 ? std::numeric_limits<Bits>::min() - bits : bits;
}

template <class F, class Bits>
bool IsCloseAs(const std::byte* got, const std::byte* want, const Tolerance& tolerance) {
  F a, b;
  std::memcpy(&a, got, sizeof a);
  std::memcpy(&b, want, sizeof b);
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (a == b) return a != 0 || !tolerance.zero_signs || std::signbit(a) == std::signbit(b);
  if (std::isinf(a) != std::isinf(b)) {
    // The largest number and infinity are neighbours.
    if (tolerance.ulps == 0) return false;
  }
  const Bits ulps_apart = Ordered(std::bit_cast<Bits>(a)) - Ordered(std::bit_cast<Bits>(b));
  if (std::abs(static_cast<double>(ulps_apart)) <= tolerance.ulps) return true;
  return std::abs(static_cast<double>(a) - static_cast<double>(b)) <=
         tolerance.relative * std::max(1.0, std::abs(static_cast<double>(b)));
}

// Compares one element. Floats of 32 and 64 bits are compared in ulps. The narrow floats are
// compared by their own ulps, for which bf16 is widened to f32 and f16 is compared by its bits.
// Other dtypes must have equal bytes.
bool IsClose(DType dtype, const std::byte* got, const std::byte* want, const Tolerance& tolerance) {
  switch (dtype) {
    case DType::kF32:
      return IsCloseAs<float, int32_t>(got, want, tolerance);
    case DType::kF64:
      return IsCloseAs<double, int64_t>(got, want, tolerance);
    case DType::kBF16: {
      // A bf16 is the upper half of an f32, so one ulp of it is 2^16 ulps of an f32.
      uint16_t a, b;
      std::memcpy(&a, got, sizeof a);
      std::memcpy(&b, want, sizeof b);
      const float x = ir::Bf16ToFloat(a), y = ir::Bf16ToFloat(b);
      Tolerance wide = tolerance;
      wide.ulps = tolerance.ulps > 0 ? 1 << 16 : 0;
      return IsCloseAs<float, int32_t>(reinterpret_cast<const std::byte*>(&x),
                                       reinterpret_cast<const std::byte*>(&y), wide);
    }
    case DType::kF16: {
      // The bits of f16 have the order of the numbers, as the bits of f32 have.
      uint16_t a, b;
      std::memcpy(&a, got, sizeof a);
      std::memcpy(&b, want, sizeof b);
      const float x = ir::F16ToFloat(a), y = ir::F16ToFloat(b);
      if (tolerance.ulps > 0 && !std::isnan(x) && !std::isnan(y) &&
          std::abs(Ordered(static_cast<int16_t>(a)) - Ordered(static_cast<int16_t>(b))) <= 1)
        return x != 0 || y != 0 || !tolerance.zero_signs || a == b;
      Tolerance exact = tolerance;
      exact.ulps = 0;
      return IsCloseAs<float, int32_t>(reinterpret_cast<const std::byte*>(&x),
                                       reinterpret_cast<const std::byte*>(&y), exact);
    }
    default:
      return std::memcmp(got, want, ir::ByteWidth(dtype)) == 0;
  }
}

std::string ElementText(DType dtype, const std::byte* at) {
  if (ir::IsComputable(dtype)) {
    const Array one(dtype, {1}, absl::MakeConstSpan(at, ir::ByteWidth(dtype)));
    char text[40];
    std::snprintf(text, sizeof text, "%.17g", one.At(0));
    return ir::IsFloat(dtype) ? text : absl::StrCat(one.IntAt(0));
  }
  uint64_t bits = 0;
  std::memcpy(&bits, at, std::min<int64_t>(8, ir::ByteWidth(dtype)));
  return absl::StrCat(absl::Hex(bits));
}

// ---- Building kernels. -------------------------------------------------------------------------

Node LoadOf(const Kernel& kernel, int param, Access access) {
  Node node;
  node.kind = Node::Kind::kLoad;
  node.dtype = kernel.params[param].dtype;
  node.param = param;
  node.access = std::move(access);
  return node;
}
Node ScalarOf(ScalarPrim prim, DType dtype, std::vector<int> args) {
  Node node;
  node.prim = prim;
  node.dtype = dtype;
  node.args = std::move(args);
  return node;
}

// Returns the graph as a kernel over one dim of n elements, in which operand j is param j.
Kernel KernelOfGraph(const ir::ScalarGraph& graph, absl::Span<const DType> operands, int64_t n) {
  Kernel kernel;
  kernel.shape = {n};
  const Access contiguous{0, {1}, {}};
  for (DType dtype : operands) kernel.params.push_back({dtype, n, false});
  for (const ir::ScalarNode& from : graph.nodes) {
    if (from.prim == ScalarPrim::kInput) {
      kernel.nodes.push_back(LoadOf(kernel, static_cast<int>(from.value), contiguous));
      continue;
    }
    Node node = ScalarOf(from.prim, from.dtype, from.args);
    node.value = from.value;
    node.int_value = from.int_value;
    kernel.nodes.push_back(node);
  }
  for (int root : graph.roots) {
    kernel.stores.push_back({root, static_cast<int>(kernel.params.size()), contiguous});
    kernel.params.push_back({kernel.nodes[root].dtype, n, true});
  }
  return kernel;
}

std::vector<ir::Attrs> AttrsToTry(const ir::OpDef& op) {
  std::vector<ir::Attrs> all;
  const auto has = [&](std::string_view name) {
    return std::any_of(op.attrs.begin(), op.attrs.end(),
                       [name](const ir::AttrSpec& spec) { return spec.name == name; });
  };
  if (has("direction")) {
    for (const char* direction : {"EQ", "NE", "LT", "LE", "GT", "GE"})
      all.push_back({{"direction", std::string(direction)}});
  } else if (has("dtype")) {
    for (DType dtype : kComputed) all.push_back({{"dtype", dtype}});
  } else if (has("exponent_bits")) {
    all.push_back({{"exponent_bits", int64_t{5}}, {"mantissa_bits", int64_t{10}}});
  } else {
    all.push_back({});
  }
  return all;
}

std::string AttrsText(const ir::Attrs& attrs) {
  if (attrs.Has("direction")) return absl::StrCat(" ", attrs.Str("direction"));
  if (attrs.Has("dtype")) return absl::StrCat(" to ", ToAbsl(DTypeName(attrs.Dtype("dtype"))));
  return "";
}

}  // namespace

// ---- TestBuffers. ------------------------------------------------------------------------------

void TestBuffers::Allocate(const Kernel& kernel, int misaligned_elements) {
  for (const Param& param : kernel.params) {
    Block block;
    const int64_t width = ir::ByteWidth(param.dtype);
    block.size = param.size * width;
    block.memory.assign(block.size + 2 * kGuardBytes + 64 + misaligned_elements * width, kGuard);
    const auto base = reinterpret_cast<uintptr_t>(block.memory.data());
    block.begin = (base + kGuardBytes + 63) / 64 * 64 - base + misaligned_elements * width;
    std::fill_n(block.memory.begin() + block.begin, block.size, std::byte{0x5C});
    blocks_.push_back(std::move(block));
  }
}

TestBuffers::TestBuffers(const Kernel& kernel, uint32_t seed, int misaligned_elements) {
  Allocate(kernel, misaligned_elements);
  Fill(kernel, seed, /*tame=*/false);
}
TestBuffers TestBuffers::Tame(const Kernel& kernel, uint32_t seed) {
  TestBuffers buffers;
  buffers.Allocate(kernel, 0);
  buffers.Fill(kernel, seed, /*tame=*/true);
  return buffers;
}

void TestBuffers::Fill(const Kernel& kernel, uint32_t seed, bool tame) {
  std::mt19937 random(seed);
  for (size_t p = 0; p < kernel.params.size(); ++p) {
    const Param& param = kernel.params[p];
    const bool shifts = ShiftsByParam(kernel, static_cast<int>(p));
    for (int64_t i = 0; i < param.size; ++i) {
      const double number = tame ? 0.5 + random() / 4294967296.0 : RandomFloat(&random);
      int64_t integer = RandomInt(param.dtype, &random);
      if (shifts) integer = static_cast<int64_t>(random() % 12) - 2;
      PutElement(param.dtype, number, integer,
                 blocks_[p].memory.data() + blocks_[p].begin + i * ir::ByteWidth(param.dtype));
    }
  }
}

TestBuffers::TestBuffers(const Kernel& kernel, absl::Span<const Array> inputs) {
  Allocate(kernel, 0);
  size_t next = 0;
  for (size_t p = 0; p < kernel.params.size(); ++p) {
    if (kernel.params[p].output) continue;
    TESSERA_CHECK(next < inputs.size()) << "too few inputs";
    const Array& input = inputs[next++];
    TESSERA_CHECK_EQ(static_cast<size_t>(input.num_bytes()), blocks_[p].size);
    std::copy_n(input.data(), blocks_[p].size, blocks_[p].memory.data() + blocks_[p].begin);
  }
}

std::vector<void*> TestBuffers::pointers() {
  std::vector<void*> out;
  for (Block& block : blocks_) out.push_back(block.memory.data() + block.begin);
  return out;
}

bool TestBuffers::GuardsHold() const {
  return std::all_of(blocks_.begin(), blocks_.end(), [](const Block& block) {
    const auto is_guard = [](std::byte b) { return b == kGuard; };
    const auto begin = block.memory.begin() + block.begin;
    return std::all_of(block.memory.begin(), begin, is_guard) &&
           std::all_of(begin + block.size, block.memory.end(), is_guard);
  });
}

absl::Span<const std::byte> TestBuffers::bytes(int param) const {
  const Block& block = blocks_[param];
  return absl::MakeConstSpan(block.memory).subspan(block.begin, block.size);
}

std::string Difference(const Kernel& kernel, const TestBuffers& got, const TestBuffers& want,
                       const Tolerance& tolerance) {
  if (!got.GuardsHold()) return "bytes outside a buffer were written";
  for (size_t p = 0; p < kernel.params.size(); ++p) {
    const Param& param = kernel.params[p];
    const std::byte* a = got.bytes(p).data();
    const std::byte* b = want.bytes(p).data();
    const int64_t width = ir::ByteWidth(param.dtype);
    for (int64_t i = 0; i < param.size; ++i, a += width, b += width)
      if (std::memcmp(a, b, width) != 0 && !(param.output && IsClose(param.dtype, a, b, tolerance)))
        return absl::StrCat("p", p, "[", i, "] is ", ElementText(param.dtype, a), ", expected ",
                            ElementText(param.dtype, b));
  }
  return "";
}

// ---- Samples. ----------------------------------------------------------------------------------

std::vector<double> FloatSamples() {
  const double inf = std::numeric_limits<double>::infinity();
  return {0.0,          -0.0,   1.0,       -1.0,       0.5,          -0.5,         1.5,
          2.5,          -2.5,   3.0,       0.75,       -0.1,         0.3,          10.0,
          -7.25,        88.5,   -88.5,     100.0,      -104.0,       700.0,        1e-3,
          1e-20,        -1e-38, 1e-40,     1e-45,      1e10,         -1e20,        3e38,
          -3.4e38,      1e300,  8388607.5, 16777217.0, 2147483647.0, 2147483648.0, -2147483648.0,
          4294967296.0, 9.3e18, -9.3e18,   inf,        -inf,         std::nan("")};
}

std::vector<int64_t> IntSamples(DType dtype) {
  if (dtype == DType::kBool) return {0, 1};
  const int bits = ir::BitWidth(dtype);
  const int64_t ones = bits == 64 ? -1 : (int64_t{1} << bits) - 1;
  const auto biggest_signed = static_cast<int64_t>(static_cast<uint64_t>(ones) >> 1);
  // The width of the dtype and its neighbours are there for shifts. A value that does not fit is
  // cut to its low bits.
  std::vector<int64_t> all = {
      0,    1,       2,     3,        7,  bits - 1, bits,           bits + 1,
      1000, -100000, 65536, 16777217, -1, -3,       biggest_signed, ones};
  all.push_back(~biggest_signed);
  all.push_back(~biggest_signed + 1);
  all.push_back((int64_t{1} << 53) + 1);
  return all;
}

Array SamplesOf(DType dtype, int operand, int64_t n) {
  const std::vector<double> floats = FloatSamples();
  const std::vector<int64_t> ints = IntSamples(dtype);
  const int64_t count = ir::IsFloat(dtype) ? floats.size() : ints.size();
  std::mt19937 random(17 + operand);
  Array out(dtype, {n});
  for (int64_t i = 0; i < n; ++i) {
    const bool paired = i < count * count;
    const int64_t pick =
        operand > 1 || !paired ? random() % count : (operand == 0 ? i % count : i / count);
    PutElement(dtype, ir::IsFloat(dtype) ? floats[pick] : 0, ir::IsFloat(dtype) ? 0 : ints[pick],
               out.MutableData() + i * ir::ByteWidth(dtype));
  }
  return out;
}

// Makes a case for every op with a scalar graph, for every dtype and for every attribute worth
// trying. The expected outputs come from ir::EvaluateOp, so a kernel is compared with the op's
// meaning and not with the interpreter. Combinations that the op does not take are left out.
std::vector<OpCase> ScalarOpCases() {
  constexpr int64_t kElements = 2048;
  std::vector<OpCase> cases;
  for (const ir::OpDef* op : ir::AllOps()) {
    if (op->scalar.record == nullptr) continue;
    for (DType dtype : kComputed) {
      for (const ir::Attrs& attrs : AttrsToTry(*op)) {
        const bool predicated = op->name == "select";
        std::vector<Array> inputs;
        std::vector<DType> dtypes;
        for (int j = 0; j < op->num_operands; ++j) {
          dtypes.push_back(predicated && j == 0 ? DType::kBool : dtype);
          inputs.push_back(SamplesOf(dtypes.back(), j, kElements));
        }
        // Type inference returns an error if the op does not take the dtype.
        absl::StatusOr<std::vector<Array>> outputs =
            ir::EvaluateOp(*op, ir::Scope(), inputs, attrs);
        if (!outputs.ok()) continue;
        const ir::ScalarGraph graph = op->scalar.record(attrs, dtype, (*outputs)[0].dtype());
        cases.push_back(
            {absl::StrCat(ToAbsl(op->name), " ", ToAbsl(DTypeName(dtype)), AttrsText(attrs)),
             KernelOfGraph(graph, dtypes, kElements), std::move(inputs), *std::move(outputs)});
      }
    }
  }
  return cases;
}

Kernel KernelOfPrim(ScalarPrim prim, DType operand, DType result, int64_t n) {
  ir::ScalarGraph graph;
  std::vector<DType> operands;
  std::vector<int> args;
  for (int j = 0; j < InfoOf(prim).arity(); ++j) {
    operands.push_back(prim == ScalarPrim::kSelect && j == 0 ? DType::kBool : operand);
    graph.nodes.push_back({ScalarPrim::kInput, operands.back(), {}, static_cast<double>(j)});
    args.push_back(j);
  }
  graph.nodes.push_back({prim, result, args});
  graph.roots = {static_cast<int>(args.size())};
  return KernelOfGraph(graph, operands, n);
}

// ---- Random kernels. ---------------------------------------------------------------------------
namespace {

class Generator {
 public:
  Generator(uint32_t seed, const RandomKernelOptions& options) : random_(seed), options_(options) {}

  // Makes one kernel: loads, scalar ops, then reductions with ops after them, or a scan with an
  // update, and finally stores. The order of the random numbers is part of the result, since a seed
  // must give the same kernel on every run.
  Kernel Make() {
    const int rank = Below(3) + 1;
    for (int d = 0; d < rank; ++d)
      k_.shape.push_back(Below(4) == 0 ? 1 : Below(static_cast<int>(options_.size_max)) + 1);
    if (options_.reduce || options_.scan) k_.num_reduced = Below(rank) + 1;
    k_.scans = options_.scan;
    const int loads = Below(3) + 1;
    for (int i = 0; i < loads; ++i) AddLoad(/*outer=*/false);
    if (Below(3) == 0) AddIndex();
    const int ops = Below(6) + 1;
    for (int i = 0; i < ops; ++i) AddScalar(0);
    if (options_.reduce) {
      const int before = static_cast<int>(k_.nodes.size());
      const int reductions = Below(2) + 1;
      for (int i = 0; i < reductions; ++i) AddReduce(before);
      first_after_ = before;
      if (Below(2) == 0) AddLoad(/*outer=*/true);
      const int after = Below(3);
      for (int i = 0; i < after; ++i) AddScalar(before);
    }
    if (options_.scan) {
      const int before = static_cast<int>(k_.nodes.size());
      if (Below(3) > 0) AddReduce(before);
      AddScalar(0);
      if (Below(2) == 0) AddUpdate();
    }
    const int stores = Below(2) + 1;
    for (int i = 0; i < stores; ++i) AddStore();
    return k_;
  }

 private:
  int Below(int n) { return static_cast<int>(random_() % n); }
  int64_t DimSize(int d) const { return k_.shape[d]; }

  DType PickDType() {
    constexpr DType kDTypes[] = {DType::kF32, DType::kF32,  DType::kF32, DType::kBF16, DType::kS32,
                                 DType::kS64, DType::kBool, DType::kF64, DType::kU32};
    return kDTypes[Below(9)];
  }

  // Makes an access that walks some dims forwards or backwards, in any order, dense or with gaps,
  // and repeats elements along other dims. Returns the number of elements that the param needs.
  int64_t MakeAccess(bool outer, bool injective, Access* access) {
    const int rank = k_.rank(), kept = k_.num_parallel();
    access->strides.assign(rank, 0);
    std::vector<int> order;
    for (int d = 0; d < (outer ? kept : rank); ++d) order.push_back(d);
    if (Below(3) == 0) std::shuffle(order.begin(), order.end(), random_);
    int64_t stride = Below(8) == 0 ? 2 : 1;
    const bool flips = Below(4) == 0;
    for (auto d = order.rbegin(); d != order.rend(); ++d) {
      if (!injective && Below(5) == 0) continue;
      access->strides[*d] = stride;
      if (flips && Below(2) == 0) {
        access->strides[*d] = -stride;
        access->offset += stride * (DimSize(*d) - 1);
      }
      stride *= DimSize(*d);
      if (Below(6) == 0) stride += Below(5);
    }
    if (Below(5) == 0) access->offset += Below(7);
    int64_t high = access->offset;
    for (int d = 0; d < rank; ++d)
      high += std::max<int64_t>(0, access->strides[d]) * (std::max<int64_t>(1, DimSize(d)) - 1);
    if (Below(6) == 0) {
      DynamicOffset shift{static_cast<int>(k_.params.size()), Below(8), Below(3) + 1};
      int64_t reads = 1;
      // The shift has a number for each point, or one for several points together.
      if (!injective && Below(2) == 0) {
        shift.strides.assign(rank, 0);
        for (int d = 0; d < (outer ? kept : rank); ++d) {
          if (Below(3) == 0) continue;
          shift.strides[d] = reads;
          reads *= std::max<int64_t>(1, DimSize(d));
        }
        shift.offset = Below(3);
        reads += shift.offset;
      }
      constexpr DType kNumbers[] = {DType::kS32, DType::kS64, DType::kU8, DType::kU32, DType::kS16};
      k_.params.push_back({kNumbers[Below(5)], reads, false});
      access->shifts.push_back(shift);
      high += shift.max * shift.stride;
    }
    return high + 1 + Below(4);
  }

  void AddLoad(bool outer) {
    Access access;
    const int64_t size = MakeAccess(outer, /*injective=*/false, &access);
    k_.params.push_back({PickDType(), size, false});
    k_.nodes.push_back(LoadOf(k_, static_cast<int>(k_.params.size()) - 1, access));
    if (k_.nodes.back().dtype == DType::kBF16)
      Append(ScalarPrim::kConvert, DType::kF32, {LastNode()});
  }
  void AddIndex() {
    Node node;
    node.kind = Node::Kind::kIndex;
    node.dtype = Below(2) ? DType::kS32 : DType::kS64;
    node.access.offset = Below(9) - 4;
    for (int d = 0; d < k_.rank(); ++d) node.access.strides.push_back(Below(5) - 2);
    k_.nodes.push_back(node);
  }
  int LastNode() const { return static_cast<int>(k_.nodes.size()) - 1; }
  int Append(ScalarPrim prim, DType dtype, std::vector<int> args) {
    k_.nodes.push_back(ScalarOf(prim, dtype, std::move(args)));
    return LastNode();
  }

  // Returns a node from number `from` on whose dtype has arithmetic (any dtype but bf16).
  int Pick(int from) {
    while (true) {
      const int id = from + Below(static_cast<int>(k_.nodes.size()) - from);
      if (k_.nodes[id].dtype != DType::kBF16) return id;
      if (from == LastNode()) return Append(ScalarPrim::kConvert, DType::kF32, {id});
    }
  }
  int ConvertTo(DType dtype, int id) {
    return k_.nodes[id].dtype == dtype ? id : Append(ScalarPrim::kConvert, dtype, {id});
  }

  // Appends a random scalar op on nodes from number `from` on. It converts the operands to one
  // dtype. If the primitive is not defined for that dtype it appends nothing, so that the kernel
  // always passes Verify.
  void AddScalar(int from) {
    constexpr ScalarPrim kExact[] = {
        ScalarPrim::kAdd, ScalarPrim::kSub, ScalarPrim::kMul,   ScalarPrim::kMax,
        ScalarPrim::kMin, ScalarPrim::kNeg, ScalarPrim::kAbs,   ScalarPrim::kLt,
        ScalarPrim::kEq,  ScalarPrim::kAnd, ScalarPrim::kFloor, ScalarPrim::kSelect,
        ScalarPrim::kXor, ScalarPrim::kDiv, ScalarPrim::kShl,   ScalarPrim::kConvert};
    constexpr ScalarPrim kFunctions[] = {ScalarPrim::kExp, ScalarPrim::kTanh, ScalarPrim::kLog,
                                         ScalarPrim::kRsqrt};
    const int x = Pick(from);
    const DType dtype = k_.nodes[x].dtype;
    ScalarPrim prim = kExact[Below(16)];
    if (options_.functions && Below(3) == 0 && dtype == DType::kF32) prim = kFunctions[Below(4)];
    if (prim == ScalarPrim::kSelect) {
      const int pred = ConvertTo(DType::kBool, Pick(from));
      Append(prim, dtype, {pred, x, ConvertTo(dtype, Pick(from))});
      return;
    }
    if (prim == ScalarPrim::kConvert) {
      DType to = PickDType();
      if (to == DType::kBF16) to = DType::kF32;
      Append(prim, to, {x});
      return;
    }
    const DType result = prim == ScalarPrim::kLt || prim == ScalarPrim::kEq ? DType::kBool : dtype;
    if (FindScalarFn(prim, dtype, result) == nullptr) return;
    std::vector<int> args = {x};
    if (InfoOf(prim).arity() == 2) args.push_back(ConvertTo(dtype, Pick(from)));
    Append(prim, result, args);
  }

  void AddReduce(int before) {
    constexpr ReduceKind kKinds[] = {ReduceKind::kSum,  ReduceKind::kMax,    ReduceKind::kMin,
                                     ReduceKind::kProd, ReduceKind::kArgMax, ReduceKind::kArgMin,
                                     ReduceKind::kAnd,  ReduceKind::kOr};
    int arg = Below(before);
    // The conversion of a bf16 follows its load.
    if (k_.nodes[arg].dtype == DType::kBF16) arg = 1 + arg;
    const DType dtype = k_.nodes[arg].dtype;
    ReduceKind kind = kKinds[Below(8)];
    const bool is_arg = kind == ReduceKind::kArgMax || kind == ReduceKind::kArgMin;
    const bool is_arithmetic = kind == ReduceKind::kSum || kind == ReduceKind::kProd;
    const bool is_bitwise = kind == ReduceKind::kAnd || kind == ReduceKind::kOr;
    if ((is_arg && (k_.num_reduced != 1 || k_.scans)) || (is_arithmetic && dtype == DType::kBool) ||
        (is_bitwise && ir::IsFloat(dtype)) ||
        (is_arithmetic && ir::IsFloat(dtype) && options_.exact_reductions))
      kind = ReduceKind::kMax;
    Node node;
    node.kind = Node::Kind::kReduce;
    node.reduce = kind;
    node.dtype = kind == ReduceKind::kArgMax || kind == ReduceKind::kArgMin
                     ? (Below(2) ? DType::kS32 : DType::kS64)
                     : dtype;
    node.args = {arg};
    k_.nodes.push_back(node);
  }

  // Adds an update, as a scatter has it: each point adds an element to a row of the output, and a
  // number that is read from a param chooses the row. No two parallel points share an element.
  void AddUpdate() {
    Access access;
    access.strides.assign(k_.rank(), 0);
    int64_t width = 1;
    for (int d = k_.num_parallel() - 1; d >= 0; --d) {
      access.strides[d] = width;
      width *= std::max<int64_t>(1, DimSize(d));
    }
    DynamicOffset shift{static_cast<int>(k_.params.size()), Below(8), width, 0, {}};
    int64_t numbers = 1;
    shift.strides.assign(k_.rank(), 0);
    for (int d = 0; d < k_.rank(); ++d) {
      if (d < k_.num_parallel() && Below(3) > 0) continue;
      shift.strides[d] = numbers;
      numbers *= std::max<int64_t>(1, DimSize(d));
    }
    k_.params.push_back({Below(2) ? DType::kS32 : DType::kU16, numbers, false});
    access.shifts.push_back(shift);
    int node = Pick(0);
    const DType dtype = k_.nodes[node].dtype;
    k_.params.push_back({dtype, width * (shift.max + 1), true});
    const int param = static_cast<int>(k_.params.size()) - 1;
    k_.nodes.push_back(LoadOf(k_, param, access));
    if (dtype != DType::kBool) node = Append(ScalarPrim::kAdd, dtype, {LastNode(), node});
    k_.stores.push_back({node, param, access});
  }

  void AddStore() {
    int node =
        LastNode() - Below(std::min<int>(2, static_cast<int>(k_.nodes.size()) - first_after_));
    if (k_.nodes[node].dtype == DType::kF32 && Below(4) == 0)
      node = Append(ScalarPrim::kConvert, DType::kBF16, {node});
    Store store;
    store.node = node;
    const int64_t size = MakeAccess(/*outer=*/!k_.scans, /*injective=*/true, &store.access);
    store.param = static_cast<int>(k_.params.size());
    k_.params.push_back({k_.nodes[node].dtype, size, true});
    k_.stores.push_back(store);
  }

  std::mt19937 random_;
  const RandomKernelOptions options_;
  Kernel k_;
  int first_after_ = 0;
};

}  // namespace

Kernel RandomKernel(uint32_t seed, const RandomKernelOptions& options) {
  const Kernel kernel = Generator(seed, options).Make();
  const absl::Status status = Verify(kernel);
  TESSERA_CHECK(status.ok()) << "seed " << seed << ": " << status << "\n" << kernel.ToString();
  return kernel;
}

}  // namespace tessera::worker::codegen
