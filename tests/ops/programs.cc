#include "tests/ops/programs.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <random>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace tessera::ir::samples {
namespace {

constexpr int kOpsMin = 2, kOpsMax = 12;
constexpr int kParamsMax = 10;
constexpr int64_t kElementsMax = 4096;  // of what is made to fit an operand

class Random {
 public:
  explicit Random(uint64_t seed) : bits_(seed) {}
  uint64_t Below(uint64_t n) { return bits_() % n; }
  bool In(int percent) { return Below(100) < static_cast<uint64_t>(percent); }
  template <class T>
  const T& One(const std::vector<T>& of) {
    return of[Below(of.size())];
  }

 private:
  std::mt19937_64 bits_;
};

// What an op of a row may be given without its result being known worse than the row's.
enum class Takes : uint8_t {
  kAnything,  // it is exact
  kInexact,   // it only moves: also what is not known bit for bit
  kSmall,     // it sums or multiplies floats
  kInRange,   // a function of floats, known to some units on the row's own numbers
  kOwn,       // only the row's own operands
};

bool HasPredicate(const OpDef& def) {
  return std::find(def.regions.begin(), def.regions.end(), RegionRole::kPredicate) !=
         def.regions.end();
}
// Whether its indices keep a promise, which others would break.
bool Promises(const Attrs& attrs) {
  const auto holds = [&](std::string_view name) { return attrs.Has(name) && attrs.Bool(name); };
  return (attrs.Has("mode") && attrs.Str("mode") == "promise_in_bounds") ||
         holds("unique_indices") || holds("indices_are_sorted");
}
// Not in programs: nullopt.
std::optional<Takes> TakesOf(const Sample& s) {
  if (!s.scope.mesh.empty() || s.Excludes(Check::kRecorded)) return std::nullopt;
  for (const Operand& o : s.operands)
    if (o.type.num_elements() == 0) return std::nullopt;
  switch (s.tolerance.kind) {
    case Tolerance::kReordered:
      if (!s.def->regions.empty() || s.def->name == "cumlogsumexp" || Promises(s.attrs))
        return std::nullopt;  // not only a sum
      return Takes::kSmall;
    case Tolerance::kUlps:
      if (!s.def->regions.empty()) return std::nullopt;  // known on the row's own numbers alone
      return Takes::kInRange;
    case Tolerance::kExact:
      if (HasPredicate(*s.def)) return Takes::kOwn;     // it may never end on others
      if (s.def->name == "power") return Takes::kOwn;   // jnp's takes 6 bits of an exponent
      if (s.def->name == "reduce") return Takes::kOwn;  // its initial values must change nothing
      if (s.def->lowering == Lowering::kIndexMap || s.def->lowering == Lowering::kAlias)
        return Takes::kInexact;
      return Takes::kAnything;
  }
  return std::nullopt;
}

struct Row {
  const Sample* sample;
  Takes takes;
};
// The rows of each op that has some.
const std::vector<std::vector<Row>>& Rows() {
  static const auto* const kRows = [] {
    auto* all = new std::vector<std::vector<Row>>;
    for (const OpDef* def : AllOps()) {
      std::vector<Row> rows;
      for (const Sample* s : SamplesOf(*def))
        if (const std::optional<Takes> takes = TakesOf(*s)) rows.push_back({s, *takes});
      if (!rows.empty()) all->push_back(std::move(rows));
    }
    return all;
  }();
  return *kRows;
}

class Maker {
 public:
  explicit Maker(uint64_t seed) : random_(seed) {
    program_.seed = seed;
    program_.sample = Make("call", absl::StrCat("program/", seed), {});
    program_.sample.NotSmooth("its ops are checked one by one");
  }

  RandomProgram Run() {
    const uint64_t ops = kOpsMin + random_.Below(kOpsMax - kOpsMin + 1);
    for (uint64_t i = 0; i < ops; ++i) AddOp(random_.One(random_.One(Rows())));
    std::vector<Value> results;
    for (const Known& k : made_) {
      if (k.read && random_.In(80)) continue;
      results.push_back(k.value);
      program_.ulps.push_back(k.ulps);
    }
    program_.sample.Region(b_.Build(results));
    return std::move(program_);
  }

 private:
  struct Known {
    Value value;
    double ulps = 0;
    bool read = false;
  };

  void AddOp(const Row& row) {
    const Sample& s = *row.sample;
    std::vector<Value> in;
    double ulps = s.tolerance.kind == Tolerance::kUlps ? s.tolerance.bound : 0;
    for (const Operand& o : s.operands) in.push_back(OperandFor(o, row.takes, &ulps));
    for (const Value& v : b_.Emit(*s.def, in, s.attrs, s.regions))
      made_.push_back({v, IsFloat(v.type().dtype) ? ulps : 0});
  }

  // An earlier value made to fit, or a parameter.
  Value OperandFor(const Operand& o, Takes takes, double* ulps) {
    const bool is_float = IsFloat(o.type.dtype);
    const bool in_range = o.fill.kind == Fill::kUniform || !is_float;
    const bool may_be_earlier =
        takes != Takes::kOwn && !(takes == Takes::kInRange && !in_range) && !made_.empty();
    const bool full = program_.sample.operands.size() >= kParamsMax;
    if (may_be_earlier && (full || random_.In(65))) {
      for (int attempt = 0; attempt < 8; ++attempt) {
        Known& k = made_[random_.Below(made_.size())];
        if (!Fits(k, o.type, takes)) continue;
        k.read = true;
        *ulps = std::max(*ulps, k.ulps);
        Value v = Shaped(k.value, o.type);
        if (is_float && takes == Takes::kSmall) v = Small(v);
        if (is_float && takes == Takes::kInRange) {
          const Value high = Constant(b_, o.type.dtype, o.fill.high);
          v = Clamp(Constant(b_, o.type.dtype, o.fill.low), v, high);
        }
        return v;
      }
    }
    Operand own = o;
    if (is_float && takes == Takes::kSmall) own.fill = Ints(-1, 2);
    program_.sample.operands.push_back(own);
    return b_.Param(o.type);
  }
  static bool Fits(const Known& k, const Type& type, Takes takes) {
    const Type& from = k.value.type();
    if (from.num_elements() == 0 || type.num_elements() > kElementsMax) return false;
    if (BitWidth(from.dtype) < 8 || BitWidth(type.dtype) < 8) return false;  // XLA aborts on some
    // Complex numbers become real ones, and the other way round, in rows of convert only.
    if (IsComplex(from.dtype) != IsComplex(type.dtype)) return false;
    return k.ulps == 0 || (takes == Takes::kInexact && from.dtype == type.dtype);
  }

  // Its elements in order, repeated or cut off to fill `type`.
  Value Shaped(Value v, const Type& type) {
    if (v.type().dtype != type.dtype) v = Convert(v, type.dtype);
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
  // Whole numbers from -1 to 2.
  static Value Small(Value v) {
    const DType dtype = v.type().dtype;
    Value n = Convert(v, DType::kS32);
    n = And(n, FullLike(n, 3));
    n = n - FullLike(n, 1);
    return Convert(n, dtype);
  }

  Random random_;
  RandomProgram program_;
  Builder b_{Scope{}, "program"};
  std::vector<Known> made_;
};

}  // namespace

RandomProgram MakeRandomProgram(uint64_t seed) { return Maker(seed).Run(); }

std::vector<std::string> OpsOfRandomPrograms() {
  std::vector<std::string> names;
  for (const std::vector<Row>& rows : Rows()) names.emplace_back(rows[0].sample->def->name);
  return names;
}

const std::vector<RandomProgram>& RandomPrograms() {
  static const auto* const kPrograms = [] {
    uint64_t count = 100;
    if (const char* asked = std::getenv("TESSERA_RANDOM_PROGRAMS"))
      if (!absl::SimpleAtoi(asked, &count)) count = 100;
    auto* programs = new std::vector<RandomProgram>;
    for (uint64_t seed = 1; seed <= count; ++seed) programs->push_back(MakeRandomProgram(seed));
    return programs;
  }();
  return *kPrograms;
}

}  // namespace tessera::ir::samples
