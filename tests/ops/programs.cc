// Makes random programs from samples. A sample, or row, is one op with given attributes and
// operands: a test case (samples.h). programs_test runs the programs under several shardings and
// compares them with the results that JAX recorded; dump_samples prints them for the recorder. Most
// of the code decides which earlier results an op may take so that its own result is still known.
#include "tests/ops/programs.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <random>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_exception.h"
#include "ir/op_def.h"
#include "ir/registry.h"

namespace tessera::ir::samples {
namespace {

constexpr int kOpsMin = 2, kOpsMax = 12;
constexpr int kParamsMax = 10;
constexpr int64_t kElementsMax = 4096;  // limit for an operand made from an earlier value

class Random {
 public:
  explicit Random(uint64_t seed) : bits_(seed) {}
  uint64_t Below(uint64_t n) { return bits_() % n; }
  bool Chance(int percent) { return Below(100) < static_cast<uint64_t>(percent); }
  template <class T>
  const T& Pick(const std::vector<T>& of) {
    return of[Below(of.size())];
  }

 private:
  std::mt19937_64 bits_;
};

// The operands that an op may take instead of its row's own, so that its result is still known as
// exactly as the row's.
enum class AllowedOperands : uint8_t {
  kAnything,  // any values that are known bit for bit: the op is exact
  kMoves,     // any values, also inexact ones: the op only moves them
  kSmall,     // small whole numbers: the op sums or multiplies floats
  kSums,      // small whole numbers, or the row's own numbers, whose sums are exact
  kInRange,   // values in the range of the row's own numbers: the op is a function of floats whose
              // error is known there
  kOwn,       // only the row's own operands
};

bool HasPredicate(const OpDef& def) {
  return std::find(def.regions.begin(), def.regions.end(), RegionRole::kPredicate) !=
         def.regions.end();
}
// Returns by how many units in the last place XLA is off on the numbers of a row, if that is more
// than the row allows, else 0. Our implementation rounds a wide result once, so it is within one
// unit. (The exception is lgamma in f64 near its zero at 2, where both implementations are up to 16
// units off.)
double XlaUlps(const Sample& s) {
  const struct {
    std::string_view op;
    DType dtype;
    double ulps;
  } kOff[] = {{"log_plus_one", DType::kF64, 128}, {"exponential_minus_one", DType::kF32, 8},
              {"logistic", DType::kBF16, 2},      {"acosh", DType::kBF16, 2},
              {"erf_inv", DType::kF64, 32},       {"lgamma", DType::kF32, 64},
              {"lgamma", DType::kF64, 32}};
  for (const auto& off : kOff)
    if (off.op == s.def->name && off.dtype == s.dtype()) return off.ulps;
  return 0;
}
int MantissaBits(DType dtype) {
  return dtype == DType::kF64 ? 52 : dtype == DType::kF32 ? 23 : dtype == DType::kF16 ? 10 : 7;
}
// Returns whether the indices of a row keep a promise that other indices would break.
bool KeepsIndexPromise(const Attrs& attrs) {
  const auto holds = [&](std::string_view name) { return attrs.Has(name) && attrs.Bool(name); };
  return (attrs.Has("mode") && attrs.Str("mode") == "promise_in_bounds") ||
         holds("unique_indices") || holds("indices_are_sorted");
}
// Returns whether the ops of a region only add, multiply or move floats. That holds if no op is a
// division and no op has a row with a tolerance in units in the last place.
bool StaysWhole(const Function& f) {
  return std::all_of(f.ops.begin(), f.ops.end(), [](const Op& op) {
    if (op.def->name == "divide") return false;
    for (const Sample* s : SamplesOf(*op.def))
      if (s->tolerance.kind == Tolerance::kUlps) return false;
    return true;
  });
}
// Returns whether the regions of a row only sum and multiply wide floats. Numbers grow in such a
// region, and only a wide float represents the large whole numbers exactly.
bool SumsInRegions(const Sample& s) {
  return s.def->has_planned_regions() && (s.dtype() == DType::kF32 || s.dtype() == DType::kF64) &&
         std::all_of(s.regions.begin(), s.regions.end(),
                     [](const FunctionRef& f) { return StaysWhole(*f); });
}
bool SumsFloats(const OpDef& def) {
  const std::vector<const Sample*> rows = SamplesOf(def);
  return std::any_of(rows.begin(), rows.end(),
                     [](const Sample* s) { return s->tolerance.kind == Tolerance::kReordered; });
}
// Returns nullopt if the row is not used in programs.
std::optional<AllowedOperands> AllowedOperandsOf(const Sample& s) {
  if (!s.scope.mesh.empty() || s.Excludes(CheckKind::kRecorded)) return std::nullopt;
  if (NotInPrograms().count(std::string(s.def->name)) > 0) return std::nullopt;
  for (const Operand& o : s.operands)
    if (o.type.num_elements() == 0) return std::nullopt;
  switch (s.tolerance.kind) {
    case Tolerance::kReordered:
      if (!s.def->regions.empty() && !SumsInRegions(s)) return std::nullopt;
      return AllowedOperands::kSmall;
    case Tolerance::kUlps:
      if (!s.def->regions.empty() && s.def->name != "custom_linear_solve")
        return std::nullopt;  // its result is known only for the row's own numbers
      return AllowedOperands::kInRange;
    case Tolerance::kScaled:
      return std::nullopt;
    case Tolerance::kExact:
      if (HasPredicate(*s.def))
        return AllowedOperands::kOwn;  // other operands may make it run forever
      if (s.def->name == "power")
        return AllowedOperands::kOwn;  // jnp's version reads 6 bits of an exponent
      if (s.def->name == "reduce")
        return AllowedOperands::kOwn;  // its initial values must be neutral
      if (s.def->name == "sort_by")
        return AllowedOperands::kSums;  // its comparators do not order NaN
      if (s.def->lowering == Lowering::kIndexMap || s.def->lowering == Lowering::kAlias)
        return AllowedOperands::kMoves;
      return SumsFloats(*s.def) ? AllowedOperands::kSums : AllowedOperands::kAnything;
  }
  return std::nullopt;
}

struct Row {
  const Sample* sample;
  AllowedOperands allowed;
};
// Returns the usable rows, grouped by op. Ops without usable rows are left out.
const std::vector<std::vector<Row>>& Rows() {
  static const auto* const kRows = [] {
    auto* all = new std::vector<std::vector<Row>>;
    for (const OpDef* def : AllOps()) {
      std::vector<Row> rows;
      for (const Sample* s : SamplesOf(*def))
        if (const std::optional<AllowedOperands> allowed = AllowedOperandsOf(*s))
          rows.push_back({s, *allowed});
      if (!rows.empty()) all->push_back(std::move(rows));
    }
    return all;
  }();
  return *kRows;
}

class ProgramMaker {
 public:
  explicit ProgramMaker(uint64_t seed) : random_(seed) {
    program_.seed = seed;
    program_.sample = Make("call", absl::StrCat("program/", seed), {});
    program_.sample.NotSmooth("its ops are checked one by one");
  }

  RandomProgram MakeProgram() {
    const uint64_t ops = kOpsMin + random_.Below(kOpsMax - kOpsMin + 1);
    // One op of each program is not chosen at random but is the next one of the table. So as many
    // programs as the table has ops contain all ops.
    const uint64_t next = random_.Below(ops);
    for (uint64_t i = 0; i < ops; ++i)
      AddOp(random_.Pick(i == next ? Rows()[program_.seed % Rows().size()] : random_.Pick(Rows())));
    std::vector<Value> results;
    for (const KnownValue& k : made_) {
      if (k.read && random_.Chance(80)) continue;
      results.push_back(k.value);
      program_.ulps.push_back(k.ulps);
      program_.ulps_of_xla.push_back(std::max(k.ulps, k.ulps_of_xla));
    }
    program_.sample.Region(b_.Build(results));
    return std::move(program_);
  }

 private:
  struct KnownValue {
    Value value;
    double ulps = 0, ulps_of_xla = 0;
    bool read = false;
  };

  void AddOp(const Row& row) {
    const Sample& s = *row.sample;
    std::vector<Value> in;
    double ulps = s.tolerance.kind == Tolerance::kUlps ? s.tolerance.bound : 0;
    double ulps_of_xla = XlaUlps(s);
    for (size_t i = 0; i < s.operands.size(); ++i) {
      // Operand 1 holds the indices of a gather (x, indices) or a scatter (x, indices, updates).
      const bool keeps = KeepsIndexPromise(s.attrs) && i == 1;
      in.push_back(OperandFor(s.operands[i], keeps ? AllowedOperands::kOwn : row.allowed, &ulps,
                              &ulps_of_xla));
    }
    for (const Value& v : b_.Emit(*s.def, in, s.attrs, s.regions)) {
      const bool rounds = IsInexact(v.type().dtype);
      made_.push_back({v, rounds ? ulps : 0, rounds ? ulps_of_xla : 0});
    }
  }

  // Returns an operand for `o`: an earlier value that is made to fit, or a new parameter. If it is
  // an earlier value, raises `ulps` and `ulps_of_xla` to those of that value.
  Value OperandFor(const Operand& o, AllowedOperands allowed, double* ulps, double* ulps_of_xla) {
    const bool is_float = IsFloat(o.type.dtype);
    const bool in_range = o.fill.kind == Fill::kUniform || !is_float;
    const bool may_be_earlier = allowed != AllowedOperands::kOwn &&
                                !(allowed == AllowedOperands::kInRange && !in_range) &&
                                !made_.empty();
    const bool full = program_.sample.operands.size() >= kParamsMax;
    if (may_be_earlier && (full || random_.Chance(65))) {
      for (int attempt = 0; attempt < 8; ++attempt) {
        KnownValue& k = made_[random_.Below(made_.size())];
        if (!Fits(k, o.type, allowed)) continue;
        k.read = true;
        *ulps = std::max(*ulps, k.ulps);
        *ulps_of_xla = std::max(*ulps_of_xla, k.ulps_of_xla);
        Value v = Shaped(k.value, o.type);
        if (is_float && allowed != AllowedOperands::kMoves) v = WithoutSubnormalsAndNans(v);
        if (is_float && (allowed == AllowedOperands::kSmall || allowed == AllowedOperands::kSums))
          v = SmallWholeNumbers(v);
        if (is_float && allowed == AllowedOperands::kInRange) {
          const Value high = Constant(b_, o.type.dtype, o.fill.high);
          v = Clamp(Constant(b_, o.type.dtype, o.fill.low), v, high);
        }
        return v;
      }
    }
    Operand own = o;
    if (is_float && allowed == AllowedOperands::kSmall) own.fill = Ints(-1, 2);
    program_.sample.operands.push_back(own);
    return b_.Param(o.type);
  }
  static bool Fits(const KnownValue& k, const Type& type, AllowedOperands allowed) {
    const Type& from = k.value.type();
    if (from.num_elements() == 0 || type.num_elements() > kElementsMax) return false;
    if (BitWidth(from.dtype) < 8 || BitWidth(type.dtype) < 8) return false;  // XLA aborts on some
    // Only rows of `convert` turn complex numbers into real ones or the other way round.
    if (IsComplex(from.dtype) != IsComplex(type.dtype)) return false;
    return k.ulps == 0 || (allowed == AllowedOperands::kMoves && from.dtype == type.dtype);
  }

  // Returns a value of `type` with the elements of `v` in order, repeated or cut off as needed.
  Value Shaped(Value v, const Type& type) {
    if (v.type().dtype != type.dtype)
      v = Convert(IsFloat(v.type().dtype) ? WithoutSubnormalsAndNans(v) : v, type.dtype);
    if (v.type().weak) v = Convert(v, type.dtype);
    const int64_t have = v.type().num_elements(), need = type.num_elements();
    if (v.type().shape != Dims{have}) v = Reshape(v, {have});
    if (have < need) {
      const int64_t copies = (need + have - 1) / have;
      v = BroadcastInDim(v, {copies, have}, {1});
      v = Reshape(v, {copies * have});
    }
    const int64_t extra = v.type().num_elements() - need;
    if (extra > 0) {
      const auto start = static_cast<int64_t>(random_.Below(extra + 1));
      v = Slice(v, {start}, {start + need});
    }
    return type.shape == Dims{need} ? v : Reshape(v, type.shape);
  }
  // Replaces the values on which machines differ. XLA treats subnormal numbers as zeros, so only an
  // op that moves its operands gets subnormal operands, and subnormal results count as zeros
  // (programs_test.cc). The bits of a NaN that an op makes are unspecified, and bitcast_convert and
  // top_k can see them, so every NaN is replaced by the same NaN.
  static Value WithoutSubnormalsAndNans(Value v) {
    const DType dtype = v.type().dtype;
    if (!IsComputable(dtype)) return v;
    const int width = BitWidth(dtype), mantissa = MantissaBits(dtype);
    const DType bits = width == 64 ? DType::kU64 : width == 32 ? DType::kU32 : DType::kU16;
    const uint64_t sign = uint64_t{1} << (width - 1), infinity = sign - (uint64_t{1} << mantissa);
    const auto mask = [&](Value of, uint64_t m) {
      return And(of, FullLike(of, static_cast<double>(m)));
    };
    const Value all = BitcastConvert(v, bits);
    const Value zero_bits = FullLike(all, 0);
    const Value is_small = Compare(mask(all, infinity), zero_bits, "EQ");
    const Value zero = BitcastConvert(mask(all, sign), dtype);
    if (dtype != DType::kF16) v = Select(is_small, zero, v);  // XLA computes in f32
    const Value magnitude = all - mask(all, sign);
    const Value is_nan = Compare(magnitude, FullLike(all, static_cast<double>(infinity)), "GT");
    return Select(is_nan, FullLike(v, std::nan("")), v);
  }
  // Maps every value to a whole number from -1 to 2.
  static Value SmallWholeNumbers(Value v) {
    const DType dtype = v.type().dtype;
    Value n = Convert(v, DType::kS32);
    n = And(n, FullLike(n, 3));
    n = n - FullLike(n, 1);
    return Convert(n, dtype);
  }

  Random random_;
  RandomProgram program_;
  Builder b_{Scope{}, "program"};
  std::vector<KnownValue> made_;
};

}  // namespace

RandomProgram MakeRandomProgram(uint64_t seed) { return ProgramMaker(seed).MakeProgram(); }

// A test checks that every op of the table is either here or in some program, so that a new op
// cannot be forgotten.
const std::map<std::string, std::string>& NotInPrograms() {
  constexpr char kMatrices[] = "other matrices than its rows' may have no answer, or one far off";
  constexpr char kCollective[] = "it stands in a manual_computation; placements bring collectives";
  static const auto* const kOps = new std::map<std::string, std::string>{
      {"cholesky", kMatrices},
      {"triangular_solve", kMatrices},
      {"tridiagonal_solve", kMatrices},
      {"lu", kMatrices},
      {"geqrf", kMatrices},
      {"geqp3", kMatrices},
      {"householder_product", kMatrices},
      {"qr", kMatrices},
      {"eigh", kMatrices},
      {"svd", kMatrices},
      {"eig", kMatrices},
      {"schur", kMatrices},
      {"hessenberg", kMatrices},
      {"tridiagonal", kMatrices},
      {"checkpoint_name", "it is its operand; only a checkpoint around it reads the name"},
      {"fft", "it is exact to a part of the largest result, which others do not carry on"},
      {"psum", kCollective},
      {"pmax", kCollective},
      {"pmin", kCollective},
      {"all_gather", kCollective},
      {"psum_scatter", kCollective},
      {"ppermute", kCollective},
      {"all_to_all", kCollective},
      {"axis_index", kCollective},
      {"pvary", kCollective},
      {"preduced", kCollective},
      {"vary_unreduced_cast", kCollective},
      {"reduced_vary_cast", kCollective},
      {"manual_computation", "its mesh is fixed, and a program runs on several"},
      {"sharding_constraint", "its mesh is fixed, and a program runs on several"},
      {"custom_lin", "a plan refuses it: a gradient has taken its place"},
      {"cumlogsumexp", "its rows bound sums of its terms, not its units"},
  };
  return *kOps;
}

std::vector<std::string> OpsOfRandomPrograms() {
  std::vector<std::string> names;
  for (const std::vector<Row>& rows : Rows()) names.emplace_back(rows[0].sample->def->name);
  return names;
}

const std::vector<RandomProgram>& RandomPrograms() {
  static const auto* const kPrograms = [] {
    uint64_t first = 1, last = 120;
    if (const char* asked = std::getenv("TESSERA_RANDOM_PROGRAMS")) {
      const std::pair<std::string, std::string> seeds =
          absl::StrSplit(asked, absl::MaxSplits('-', 1));
      if (!absl::SimpleAtoi(seeds.first, &first) || !absl::SimpleAtoi(seeds.second, &last))
        Throw(absl::InvalidArgumentError(absl::StrCat("TESSERA_RANDOM_PROGRAMS is ", asked,
                                                      "; expected FIRST-LAST, two seeds")));
    }
    auto* programs = new std::vector<RandomProgram>;
    for (uint64_t seed = first; seed <= last; ++seed) programs->push_back(MakeRandomProgram(seed));
    return programs;
  }();
  return *kPrograms;
}

}  // namespace tessera::ir::samples
