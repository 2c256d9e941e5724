// Fills the operands of samples, builds and runs their functions, and compares results. A sample,
// or row, is one op with given attributes and operands: a test case (samples.h). The samples
// themselves are in samples_*.cc. The tests of this folder walk them through op_test.h, and
// scripts/record_samples.py through dump_samples. All random numbers come from a generator that is
// written out here, because the generators of the standard library differ between implementations.
#include "tests/ops/samples.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_exception.h"
#include "ir/op_def.h"
#include "ir/registry.h"

namespace tessera::ir::samples {
namespace {

// SplitMix64, seeded with the FNV-1a hash of a key. It gives the same numbers with every library
// and on every machine.
class SplitMix64 {
 public:
  explicit SplitMix64(std::string_view key) {
    for (unsigned char c : key) state_ = (state_ ^ c) * 0x100000001b3u;
  }
  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  double Unit() { return static_cast<double>(Next() >> 11) * 0x1p-53; }  // [0, 1)

 private:
  uint64_t state_ = 0xcbf29ce484222325u;
};

double IntIn(SplitMix64& r, const Fill& fill) {
  const double n = fill.high - fill.low + 1;
  return fill.low + std::floor(r.Unit() * n);
}

void FillBits(SplitMix64& r, Array* a) {
  if (a->dtype() == DType::kBool) {
    for (int64_t i = 0; i < a->num_elements(); ++i) a->Set(i, static_cast<double>(r.Next() >> 63));
    return;
  }
  const int64_t w = ByteWidth(a->dtype());
  const int64_t words = std::max<int64_t>(w / 8, 1);
  std::byte* p = a->MutableData();
  for (int64_t i = 0; i < a->num_elements() * words; ++i) {
    const uint64_t bits = r.Next();
    // An integer of fewer than 8 bits is stored sign-extended in a byte, which Set() does.
    if (IsInteger(a->dtype()) && BitWidth(a->dtype()) < 8)
      a->Set(i, static_cast<double>(bits >> 60));
    else
      std::memcpy(p + i * (w / words), &bits, w / words);
  }
}

void FillCodes(Array* a) {
  const int bits = BitWidth(a->dtype());
  const int64_t w = ByteWidth(a->dtype());
  for (int64_t i = 0; i < a->num_elements(); ++i) {
    const int64_t code =
        a->dtype() == DType::kBool ? i % 2 : i % (int64_t{1} << std::min(bits, 62));
    if (IsInteger(a->dtype()) && bits < 8)
      a->Set(i, static_cast<double>(code));
    else
      std::memcpy(a->MutableData() + i * w, &code, w);
  }
}

void FillDistinct(SplitMix64& r, const Fill& fill, Array* a) {
  const int64_t n = a->num_elements();
  std::vector<int64_t> order(n);
  for (int64_t i = 0; i < n; ++i) order[i] = i;
  for (int64_t i = n - 1; i > 0; --i) std::swap(order[i], order[r.Next() % (i + 1)]);
  for (int64_t i = 0; i < n; ++i) {
    const double v = fill.low + (fill.high - fill.low) * (static_cast<double>(order[i]) + 0.5) / n;
    a->Set(i, IsInexact(a->dtype()) ? v : std::floor(v));
  }
}

// Returns the real and imaginary parts of a complex array as a new last dim of size 2.
Array AsParts(const Array& a) {
  Dims shape = a.shape();
  shape.push_back(2);
  Array parts(a.dtype() == DType::kC64 ? DType::kF32 : DType::kF64, std::move(shape));
  if (a.num_elements() > 0)
    std::memcpy(parts.MutableData(), a.data(), a.num_elements() * ByteWidth(a.dtype()));
  return parts;
}
void FillImaginary(SplitMix64& r, const Fill& fill, Array* a) {
  if (!IsComplex(a->dtype())) return;
  Array parts = AsParts(*a);
  const int64_t cols = a->shape().empty() ? 1 : a->shape().back();
  for (int64_t i = 0; i < a->num_elements(); ++i) {
    const double im = fill.low + (fill.high - fill.low) * r.Unit();
    const int64_t row = i / cols % cols;  // row index if the matrices are square
    const bool is_real = fill.kind == Fill::kDominant && row == i % cols;
    parts.Set(2 * i + 1, is_real ? 0 : im);
  }
  if (a->num_elements() > 0)
    std::memcpy(a->MutableData(), parts.data(), a->num_elements() * ByteWidth(a->dtype()));
}

// Returns an array whose elements depend on the type, the fill and the key alone. Each kind of fill
// draws its numbers in the order of the elements, and recorded values rely on that order: a change
// here changes the digest of every row that uses the kind, and those rows must then be recorded
// again.
Array Filled(const Type& type, const Fill& fill, std::string_view key) {
  SplitMix64 r(key);
  Array a(type.dtype, type.shape);
  const int64_t n = a.num_elements();
  switch (fill.kind) {
    case Fill::kUniform:
      for (int64_t i = 0; i < n; ++i) a.Set(i, fill.low + (fill.high - fill.low) * r.Unit());
      break;
    case Fill::kInts:
      for (int64_t i = 0; i < n; ++i) a.Set(i, IntIn(r, fill));
      break;
    case Fill::kBits:
      FillBits(r, &a);
      break;
    case Fill::kCodes:
      FillCodes(&a);
      break;
    case Fill::kValues:
      for (int64_t i = 0; i < n; ++i) a.Set(i, fill.values[i % fill.values.size()]);
      break;
    case Fill::kPicks:
      for (int64_t i = 0; i < n; ++i) a.Set(i, fill.values[r.Next() % fill.values.size()]);
      break;
    case Fill::kDominant: {
      const int64_t cols = type.shape.back(), rows = type.shape[type.shape.size() - 2];
      for (int64_t i = 0; i < n; ++i) {
        const int64_t row = i / cols % rows, col = i % cols;
        const double add = row == col ? static_cast<double>(rows + row) : 0;
        a.Set(i, fill.low + (fill.high - fill.low) * r.Unit() + add);
      }
      FillImaginary(r, fill, &a);
      break;
    }
    case Fill::kDistinct:
      FillDistinct(r, fill, &a);
      FillImaginary(r, fill, &a);
      break;
  }
  return a;
}

// Returns the position of a float in the ordered list of all floats of its width, so that
// neighbours differ by one.
int64_t Ordinal(const Array& a, int64_t i) {
  auto ordered = [](int64_t bits, int width) {
    const int64_t magnitude = bits & ((int64_t{1} << (width - 1)) - 1);
    return bits >> (width - 1) & 1 ? -magnitude : magnitude;
  };
  switch (a.dtype()) {
    case DType::kF64: {
      const auto bits = std::bit_cast<int64_t>(a.At(i));
      const int64_t magnitude = bits & std::numeric_limits<int64_t>::max();
      return bits < 0 ? -magnitude : magnitude;
    }
    case DType::kF32:
      return ordered(std::bit_cast<uint32_t>(static_cast<float>(a.At(i))), 32);
    case DType::kBF16:
    case DType::kF16:
      return ordered(a.As<uint16_t>()[i], 16);
    default:
      TESSERA_CHECK(false) << "no ordinals for this dtype";
      return 0;
  }
}

double Epsilon(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return 0x1p-52;
    case DType::kF32:
      return 0x1p-23;
    case DType::kF16:
      return 0x1p-10;
    default:
      return 0x1p-7;
  }
}

bool SameBits(const Array& a, const Array& b, int64_t i) {
  const int64_t w = ByteWidth(a.dtype());
  return std::memcmp(a.data() + i * w, b.data() + i * w, w) == 0;
}

std::string Element(const Array& a, int64_t i) {
  if (!IsFloat(a.dtype())) return absl::StrCat(a.IntAt(i));
  char buf[40];
  std::snprintf(buf, sizeof buf, "%.17g", a.At(i));
  return buf;
}

}  // namespace

Fill Uniform(double low, double high) { return {Fill::kUniform, low, high, {}}; }
Fill Ints(int64_t low, int64_t high) {
  return {Fill::kInts, static_cast<double>(low), static_cast<double>(high), {}};
}
Fill Bits() { return {Fill::kBits, 0, 0, {}}; }
Fill Codes() { return {Fill::kCodes, 0, 1, {}}; }
Fill Values(std::vector<double> values) { return {Fill::kValues, 0, 0, std::move(values)}; }
Fill Picks(std::vector<double> values) { return {Fill::kPicks, 0, 0, std::move(values)}; }
Fill Dominant(double low, double high) { return {Fill::kDominant, low, high, {}}; }
Fill Distinct(double low, double high) { return {Fill::kDistinct, low, high, {}}; }
Fill UsualFill(DType dtype) {
  if (dtype == DType::kF8E8M0FNU) return Uniform(0.25, 8);
  if (IsInexact(dtype)) return Uniform(-2, 2);
  if (dtype == DType::kBool) return Bits();
  const int bits = std::min(BitWidth(dtype), 8);
  if (IsUnsignedInt(dtype)) return Ints(0, std::min(9, (1 << bits) - 1));
  const int half = 1 << (bits - 1);
  return Ints(std::max(-9, -half), std::min(9, half - 1));
}

Operand Of(DType dtype, Dims shape) { return Of(dtype, std::move(shape), UsualFill(dtype)); }
Operand Of(DType dtype, Dims shape, Fill fill) {
  return {MakeType(dtype, std::move(shape)), std::move(fill)};
}
Operand Varying(DType dtype, Dims shape, AxisSet axes) {
  return Varying(dtype, std::move(shape), std::move(axes), UsualFill(dtype));
}
Operand Varying(DType dtype, Dims shape, AxisSet axes, Fill fill) {
  Operand o = Of(dtype, std::move(shape), std::move(fill));
  o.type.varying = std::move(axes);
  return o;
}

bool Sample::manual() const {
  return !scope.mesh.empty() &&
         static_cast<size_t>(scope.mesh.AxesOfType(AxisType::kManual).size()) ==
             scope.mesh.axes.size();
}
Sample& Sample::With(Attrs a) {
  attrs = std::move(a);
  return *this;
}
Sample& Sample::Region(FunctionRef f) {
  regions.push_back(std::move(f));
  return *this;
}
Sample& Sample::In(Scope s) {
  scope = std::move(s);
  return *this;
}
Sample& Sample::Within(Tolerance t) {
  tolerance = t;
  return *this;
}
Sample& Sample::Main(int operand) {
  main = operand;
  return *this;
}
Sample& Sample::Linear(std::vector<std::vector<int>> sets) {
  linear = std::move(sets);
  return *this;
}
Sample& Sample::Without(CheckKind kind, std::string reason) {
  excluded.emplace(kind, std::move(reason));
  return *this;
}

Sample& Sample::UpToSigns(std::string reason) {
  free_signs = std::move(reason);
  return *this;
}
Sample& Sample::NotSmooth(std::string reason) {
  return Without(CheckKind::kJvp, reason).Without(CheckKind::kTranspose, reason);
}
Sample& Sample::Moves() {
  if (IsComputable(dtype())) return *this;
  if (BitWidth(dtype()) < 8)
    Without(CheckKind::kRecorded,
            "XLA packs elements of fewer than 8 bits, and aborts on some moves");
  return NotSmooth("it is stored and moved, not computed with");
}

FunctionRef Computation(const std::vector<DType>& params,
                        const std::function<std::vector<Value>(const std::vector<Value>&)>& body) {
  Builder b({}, "computation");
  std::vector<Value> in;
  for (DType d : params) in.push_back(b.Param(MakeType(d, {})));
  return b.Build(body(in));
}

Sample Make(std::string_view wire_name, std::string_view label, std::vector<Operand> operands) {
  Sample s;
  s.def = FindOp(wire_name);
  TESSERA_CHECK(s.def != nullptr) << "samples: no op is called " << std::string(wire_name);
  s.name = absl::StrCat(ToAbsl(wire_name), "/", ToAbsl(label));
  s.operands = std::move(operands);
  return s;
}

const std::vector<SampleFamily>& Families() {
  static const std::vector<Sample>* const kRows[] = {
      new std::vector<Sample>(ElementwiseSamples()),
      new std::vector<Sample>(DataMovementSamples()),
      new std::vector<Sample>(IndexingSamples()),
      new std::vector<Sample>(ReductionSamples()),
      new std::vector<Sample>(ContractionSamples()),
      new std::vector<Sample>(RandomSamples()),
      new std::vector<Sample>(CollectiveSamples()),
      new std::vector<Sample>(ControlSamples()),
      new std::vector<Sample>(LinearAlgebraSamples())};
  static const auto* const kFamilies = new std::vector<SampleFamily>{
      {"elementwise", *kRows[0]}, {"data_movement", *kRows[1]}, {"indexing", *kRows[2]},
      {"reduction", *kRows[3]},   {"contraction", *kRows[4]},   {"random", *kRows[5]},
      {"collectives", *kRows[6]}, {"control", *kRows[7]},       {"linear_algebra", *kRows[8]}};
  return *kFamilies;
}

const std::vector<const Sample*>& AllSamples() {
  static const auto* const kAll = [] {
    auto* all = new std::vector<const Sample*>;
    std::set<std::string> names;
    for (const SampleFamily& f : Families())
      for (const Sample& s : f.samples) {
        TESSERA_CHECK(names.insert(s.name).second) << "samples: two rows are called " << s.name;
        all->push_back(&s);
      }
    return all;
  }();
  return *kAll;
}

std::vector<const Sample*> SamplesOf(const OpDef& def) {
  std::vector<const Sample*> out;
  for (const Sample* s : AllSamples())
    if (s->def == &def) out.push_back(s);
  return out;
}

namespace {
std::vector<DType> DTypesThat(bool (*hold)(DType)) {
  std::vector<DType> all;
  for (int d = 0; d < kNumDTypes; ++d)
    if (hold(static_cast<DType>(d))) all.push_back(static_cast<DType>(d));
  return all;
}
}  // namespace

std::vector<DType> AllDTypes() {
  return DTypesThat([](DType) { return true; });
}
const std::vector<DType>& Computable() {
  static const auto* const kAll = new std::vector<DType>(DTypesThat(IsComputable));
  return *kAll;
}
std::vector<DType> Floats() {
  return DTypesThat([](DType d) { return IsComputable(d) && IsFloat(d); });
}
std::vector<DType> Integers() {
  return DTypesThat([](DType d) { return IsComputable(d) && IsInteger(d); });
}
std::vector<DType> Numbers() {
  return DTypesThat([](DType d) { return IsComputable(d) && d != DType::kBool; });
}
std::string N(DType dtype) { return std::string(DTypeName(dtype)); }

FunctionRef FunctionOf(const Sample& s) {
  Builder b(s.scope);
  std::vector<Value> in;
  for (const Operand& o : s.operands) in.push_back(b.Param(o.type));
  return b.Build(b.Emit(*s.def, in, s.attrs, s.regions));
}

std::vector<int64_t> DevicesOf(const Scope& scope) {
  const bool manual = !scope.mesh.empty() &&
                      std::any_of(scope.mesh.axes.begin(), scope.mesh.axes.end(),
                                  [](const MeshAxis& a) { return a.type == AxisType::kManual; });
  std::vector<int64_t> devices(manual ? scope.mesh.num_devices() : 1);
  for (size_t i = 0; i < devices.size(); ++i) devices[i] = static_cast<int64_t>(i);
  return devices;
}

Shards FilledShards(const Type& type, const Fill& fill, const Scope& scope, std::string_view key) {
  Shards shards;
  for (int64_t device : DevicesOf(scope)) {
    std::string name(key);
    for (const std::string& axis : type.varying)
      absl::StrAppend(&name, "@", axis, scope.mesh.IndexAlong(device, {axis}));
    shards.push_back(Filled(type, fill, name));
  }
  return shards;
}

std::vector<Shards> ArgsOf(const Sample& s) {
  std::vector<Shards> args;
  for (size_t i = 0; i < s.operands.size(); ++i)
    args.push_back(FilledShards(s.operands[i].type, s.operands[i].fill, s.scope,
                                absl::StrCat(s.name, "#", i)));
  return args;
}

absl::StatusOr<std::vector<Shards>> RunShards(const Function& f, std::vector<Shards> args) {
  return Evaluator().RunOnDevices(DevicesOf(f.scope), f, std::move(args));
}

// Compares complex arrays by their parts, since a tolerance bounds real numbers. Equal bits pass
// before any arithmetic, because infinities and NaNs have no distance.
std::string Difference(const Array& got, const Array& want, const Tolerance& tolerance,
                       const Array* magnitude) {
  if (got.dtype() != want.dtype() || got.shape() != want.shape())
    return absl::StrCat("is a ", MakeType(got.dtype(), got.shape()).ToString(), ", expected a ",
                        MakeType(want.dtype(), want.shape()).ToString());
  if (IsComplex(got.dtype()) && tolerance.kind != Tolerance::kExact) {
    const Array parts = magnitude != nullptr ? AsParts(*magnitude) : Array();
    return Difference(AsParts(got), AsParts(want), tolerance,
                      magnitude != nullptr ? &parts : nullptr);
  }
  const bool is_float = IsFloat(got.dtype());
  double largest = 0;
  if (is_float && tolerance.kind == Tolerance::kScaled)
    for (int64_t i = 0; i < want.num_elements(); ++i)
      if (std::isfinite(want.At(i))) largest = std::max(largest, std::abs(want.At(i)));
  for (int64_t i = 0; i < got.num_elements(); ++i) {
    if (SameBits(got, want, i)) continue;
    std::string text =
        absl::StrCat("element ", i, " is ", Element(got, i), ", expected ", Element(want, i));
    if (!is_float || tolerance.kind == Tolerance::kExact) {
      if (is_float && std::isnan(got.At(i)) && std::isnan(want.At(i))) continue;
      return text;
    }
    const double g = got.At(i), w = want.At(i);
    if (std::isnan(g) && std::isnan(w)) continue;
    if (!std::isfinite(g) || !std::isfinite(w)) return text;
    if (tolerance.kind == Tolerance::kUlps) {
      const double ulps = std::abs(static_cast<double>(Ordinal(got, i) - Ordinal(want, i)));
      if (ulps > tolerance.bound)
        return absl::StrCat(text, ": ", ulps, " ulps apart, allowed ", tolerance.bound);
      continue;
    }
    const double bound = tolerance.bound * Epsilon(got.dtype()) *
                         (tolerance.kind == Tolerance::kScaled ? largest : magnitude->At(i));
    if (!(std::abs(g - w) <= bound))
      return absl::StrCat(text, ": ", std::abs(g - w), " apart, allowed ", bound);
  }
  return "";
}

absl::StatusOr<std::vector<Shards>> MagnitudesOf(const Sample& s, std::vector<Shards> args) {
  for (Shards& shards : args)
    for (Array& a : shards)
      if (IsFloat(a.dtype()))
        for (int64_t i = 0; i < a.num_elements(); ++i) a.Set(i, std::abs(a.At(i)));
  FunctionRef f;
  TESSERA_RETURN_IF_ERROR(CatchStatus([&] { f = FunctionOf(s); }));
  return RunShards(*f, std::move(args));
}

std::string FirstDifference(const std::vector<Shards>& got, const std::vector<Shards>& want,
                            const Tolerance& tolerance, const std::vector<Shards>* magnitudes) {
  if (got.size() != want.size())
    return absl::StrCat(got.size(), " results, expected ", want.size());
  for (size_t r = 0; r < got.size(); ++r) {
    if (got[r].size() != want[r].size())
      return absl::StrCat("result ", r, " has ", got[r].size(), " shards, expected ",
                          want[r].size());
    for (size_t shard = 0; shard < got[r].size(); ++shard) {
      const std::string d = Difference(got[r][shard], want[r][shard], tolerance,
                                       magnitudes ? &(*magnitudes)[r][shard] : nullptr);
      if (!d.empty()) return absl::StrCat("result ", r, " of shard ", shard, ": ", d);
    }
  }
  return "";
}

}  // namespace tessera::ir::samples
