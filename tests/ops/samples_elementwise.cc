// Samples of the ops in ir/ops/elementwise.cc. A sample, or row, is one op with given attributes
// and operands: a test case (samples.h). samples.cc collects the rows, and the tests of this folder
// check them. JAX recorded the expected values. Where a function of JAX is off by more than
// rounding, the tolerance of the row says by how much.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "ir/op_def.h"
#include "ir/registry.h"
#include "tests/ops/samples.h"

namespace tessera::ir::samples {
namespace {

using enum DType;
constexpr char kKinks[] = "infinities, NaNs and kinks have no finite difference";

// Returns the tolerance for the error of XLA, which recorded the values, in units in the last
// place. Our evaluator rounds a wide result once. XLA gets a bf16 result by rounding an f32 result.
Tolerance Near(DType dtype, double ulps32, double ulps64) {
  return Ulps(dtype == kBF16 ? 1 : dtype == kF32 ? ulps32 : ulps64);
}
const std::vector<double>& Specials() {
  static const auto* const kAll = new std::vector<double>{
      0, -0.0, 1, -1, 0.5, -1.5, 2.5, -2.5, 3, 50, -50, kInf, -kInf, kNan, 1e30, -1e30};
  return *kAll;
}
// Returns special values in another order, so that a binary op gets the pairs of values that
// matter.
const std::vector<double>& OtherSpecials() {
  static const auto* const kAll = new std::vector<double>{
      0, 0, -0.0, 1, 2, 0.5, kInf, -kInf, kNan, -1, 3, 2, -kInf, 0, -1e30, 1e30};
  return *kAll;
}
double Least(DType dtype) { return IsSignedInt(dtype) ? -std::ldexp(1.0, BitWidth(dtype) - 1) : 0; }
double Greatest(DType dtype) {  // the largest value that a double can hold
  const int digits = BitWidth(dtype) - (IsSignedInt(dtype) ? 1 : 0);
  return digits > 53 ? std::ldexp(1.0, digits) - std::ldexp(1.0, digits - 53)
                     : std::ldexp(1.0, digits) - 1;
}
std::vector<DType> SignedNumbers() {
  std::vector<DType> all = Numbers();
  all.erase(std::remove_if(all.begin(), all.end(), IsUnsignedInt), all.end());
  return all;
}
std::vector<DType> WithBool(std::vector<DType> dtypes) {
  dtypes.push_back(kBool);
  return dtypes;
}

class Rows {
 public:
  // Adds rows of a function of one float: usual and special values for every float dtype.
  void FloatUnary(std::string_view op, Fill fill, double ulps32 = 0, double ulps64 = 0,
                  bool record_specials = true) {
    for (DType d : Floats()) {
      const Tolerance t = ulps32 == 0 && ulps64 == 0 ? kExact : Near(d, ulps32, ulps64);
      Add(Make(op, N(d), {Of(d, {4, 4}, fill)}).Within(t));
      Sample s = Make(op, absl::StrCat(N(d), "/special"), {Of(d, {4, 4}, Values(Specials()))})
                     .Within(t)
                     .NotSmooth(kKinks);
      if (!record_specials)
        s.Without(CheckKind::kRecorded, "tiny and huge results differ by range reduction");
      Add(std::move(s));
    }
  }
  // Adds rows of an exact function of one number.
  void ExactUnary(std::string_view op, const std::vector<DType>& dtypes) {
    for (DType d : dtypes) {
      Add(Make(op, N(d), {Of(d, {4, 4})}));
      Edges(op, d, 1);
    }
  }
  void ExactBinary(std::string_view op, const std::vector<DType>& dtypes,
                   const std::vector<std::vector<int>>& linear = {}) {
    for (DType d : dtypes) {
      Add(Make(op, N(d), {Of(d, {4, 4}), Of(d, {4, 4})}).Linear(linear));
      Edges(op, d, 2, linear);
    }
  }
  // Adds rows with extreme values of the dtype and, for integers, rows with random bits.
  void Edges(std::string_view op, DType d, int operands,
             const std::vector<std::vector<int>>& linear = {}) {
    if (d == kBool) return;
    std::vector<Operand> in;
    if (IsFloat(d)) {
      in = {Of(d, {4, 4}, Values(Specials())), Of(d, {4, 4}, Values(OtherSpecials()))};
    } else {
      in = {Of(d, {8}, Values({0, 1, Least(d), Greatest(d), 5, Least(d), 31, 64})),
            Of(d, {8}, Values({1, 0, IsSignedInt(d) ? -1.0 : 1.0, 1, 0, 31, 32, 63}))};
    }
    in.resize(operands);
    Add(Make(op, absl::StrCat(N(d), "/edges"), in).NotSmooth(kKinks).Linear(linear));
    if (operands == 1 && IsInteger(d))
      Add(Make(op, absl::StrCat(N(d), "/bits"), {Of(d, {8}, Bits())}));
    if (operands == 2 && IsInteger(d))
      Add(Make(op, absl::StrCat(N(d), "/bits"), {Of(d, {8}, Bits()), Of(d, {8}, Bits())})
              .Linear(linear));
  }
  void Scalar(std::string_view op, const std::vector<std::vector<int>>& linear = {}) {
    Add(Make(op, "f64/rank0",
             std::vector<Operand>(FindOp(op)->num_operands, Of(kF64, {}, Uniform(0.25, 0.75))))
            .Within(Ulps(4))
            .Linear(linear));
  }
  Sample& Add(Sample s) {
    rows_.push_back(std::move(s));
    return rows_.back();
  }
  std::vector<Sample> Take() { return std::move(rows_); }

 private:
  std::vector<Sample> rows_;
};

// Adds functions of one float. The two numbers of a row are the errors of XLA, which recorded the
// values, in f32 and in f64, in units in the last place. A row without them is exact.
void AddFloatFunctions(Rows& r) {
  r.FloatUnary("exponential", Uniform(-4, 4), 2, 2);
  r.FloatUnary("exponential_minus_one", Uniform(-4, 4), 4, 4);
  r.FloatUnary("log", Uniform(0.1, 20), 2, 2);
  r.FloatUnary("log_plus_one", Uniform(-0.9, 8), 4, 4);
  r.FloatUnary("logistic", Uniform(-6, 6), 4, 4);
  r.FloatUnary("tanh", Uniform(-3, 3), 4, 4);
  r.FloatUnary("sine", Uniform(-6, 6), 2, 2);
  r.FloatUnary("cosine", Uniform(-6, 6), 2, 2);
  r.FloatUnary("tan", Uniform(-1.4, 1.4), 4, 4, /*record_specials=*/false);
  r.FloatUnary("sqrt", Uniform(0, 9), 1, 1);
  r.FloatUnary("rsqrt", Uniform(0.1, 9), 2, 2);
  r.FloatUnary("cbrt", Uniform(-9, 9), 2, 2);
  r.FloatUnary("erf", Uniform(-3, 3), 4, 4);
  r.FloatUnary("erf_inv", Uniform(-0.99, 0.99), 8, 8);
  r.FloatUnary("ceil", Uniform(-9, 9));
  r.FloatUnary("floor", Uniform(-9, 9));
  r.FloatUnary("round_nearest_afz", Uniform(-9, 9));
  r.FloatUnary("round_nearest_even", Uniform(-9, 9));
  r.FloatUnary("is_finite", Uniform(-9, 9));
  for (DType d : Floats()) {
    r.Add(Make("erf_inv", absl::StrCat(N(d), "/tails"),
               {Of(d, {8}, Values({0.9921875, -0.9921875, 0.99609375, 0, 0.984375, 1, -1, 0.5}))})
              .Within(Near(d, 8, 8))
              .NotSmooth("it is infinite at 1"));
    for (const char* op : {"round_nearest_afz", "round_nearest_even"})
      r.Add(Make(op, absl::StrCat(N(d), "/ties"),
                 {Of(d, {8}, Values({0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 3.5, 0.25}))})
                .NotSmooth(kKinks));
  }
  for (const char* op : {"exponential", "log", "tanh", "sqrt", "erf", "floor"}) r.Scalar(op);
}

// Adds functions in which XLA rounds more often or is further off, so that their tolerances are
// larger.
void AddMoreFunctions(Rows& r) {
  for (DType d : Floats()) {
    r.Add(Make("exp2", N(d), {Of(d, {4, 4}, Uniform(-4, 4))}).Within(Ulps(4)));
    r.Add(Make("exp2", absl::StrCat(N(d), "/special"), {Of(d, {4, 4}, Values(Specials()))})
              .Within(Ulps(4))
              .Without(CheckKind::kRecorded, "the recording backend rounds x log 2 to the dtype")
              .NotSmooth(kKinks));
  }
  r.FloatUnary("asin", Uniform(-0.9, 0.9), 8, 8);
  r.FloatUnary("acos", Uniform(-0.9, 0.9), 8, 8);
  r.FloatUnary("atan", Uniform(-5, 5), 4, 4);
  r.FloatUnary("sinh", Uniform(-3, 3), 16, 16);
  r.FloatUnary("cosh", Uniform(-3, 3), 16, 16);
  r.FloatUnary("asinh", Uniform(-5, 5), 8, 8);
  r.FloatUnary("acosh", Uniform(1.5, 9), 8, 8);
  // In f64 XLA is up to a hundred units off. The formula (log1p(x) - log1p(-x)) / 2 is only two
  // units off.
  r.FloatUnary("atanh", Uniform(-0.9, 0.9), 8, 128);
  r.FloatUnary("erfc", Uniform(-2.5, 2.5), 16, 16, /*record_specials=*/false);
  r.FloatUnary("lgamma", Uniform(2.5, 9), 16, 16, /*record_specials=*/false);
  r.FloatUnary("digamma", Uniform(2.5, 9), 16, 16, /*record_specials=*/false);
  for (DType d : Floats()) {
    r.Add(Make("lgamma", absl::StrCat(N(d), "/reflected"), {Of(d, {4, 4}, Uniform(-2.4, -2.2))})
              .Within(Near(d, 64, 64)));
    // These arguments avoid the root at -2.61, near which no bound in units of the result holds.
    r.Add(Make("digamma", absl::StrCat(N(d), "/reflected"), {Of(d, {4, 4}, Uniform(-2.85, -2.65))})
              .Within(Near(d, 64, 64)));
    r.Add(Make("erfc", absl::StrCat(N(d), "/tail"), {Of(d, {4, 4}, Uniform(3, 5))})
              .Within(Near(d, 64, 64)));
    r.Add(Make("nextafter", N(d), {Of(d, {4, 4}), Of(d, {4, 4})})
              .NotSmooth("it moves by less than any difference"));
    r.Edges("nextafter", d, 2);
  }
  for (DType d : Numbers())
    for (const int64_t y : {0, 1, 2, 3, 7, -1, -3}) {
      if (y < 0 && IsInteger(d)) continue;
      r.Add(Make("integer_pow", absl::StrCat(N(d), "/", y), {Of(d, {4, 4})})
                .With({{"y", y}})
                .Within(IsFloat(d) ? Ulps(8) : kExact));
    }
}

// Adds arithmetic. In the usual rows no divisor is zero and the base of a float power is positive,
// so that derivatives exist. Rows of edges and special values cover the other operands.
void AddArithmetic(Rows& r) {
  const std::vector<std::vector<int>> sum = {{0}, {1}, {0, 1}}, product = {{0}, {1}};
  r.ExactUnary("abs", SignedNumbers());
  r.ExactUnary("sign", Numbers());
  for (DType d : Numbers()) {
    r.Add(Make("negate", N(d), {Of(d, {4, 4})}).Linear({{0}}));
    r.Edges("negate", d, 1, {{0}});
  }
  r.ExactBinary("add", Numbers(), sum);
  r.ExactBinary("subtract", Numbers(), sum);
  r.ExactBinary("multiply", Numbers(), product);
  r.ExactBinary("maximum", WithBool(Numbers()));
  r.ExactBinary("minimum", WithBool(Numbers()));
  r.Scalar("add", sum);
  r.Scalar("multiply", product);
  for (DType d : Numbers()) {
    const Fill divisor =
        IsFloat(d) ? Uniform(0.5, 3) : Values({1, 2, 3, 5, IsSignedInt(d) ? -2.0 : 7});
    r.Add(Make("divide", N(d), {Of(d, {4, 4}), Of(d, {4, 4}, divisor)}).Linear({{0}}));
    r.Edges("divide", d, 2, {{0}});
    r.Add(Make("remainder", N(d), {Of(d, {4, 4}), Of(d, {4, 4}, divisor)}));
    r.Edges("remainder", d, 2);
    const Fill base = IsFloat(d) ? Uniform(0.2, 3) : Ints(IsSignedInt(d) ? -3 : 0, 3);
    const Fill power = IsFloat(d) ? Uniform(-3, 3) : Ints(0, 5);
    r.Add(Make("power", N(d), {Of(d, {4, 4}, base), Of(d, {4, 4}, power)})
              .Within(IsFloat(d) ? Near(d, 4, 4) : kExact));
  }
  for (DType d : Floats()) {
    r.Add(Make("power", absl::StrCat(N(d), "/special"),
               {Of(d, {4, 4}, Values(Specials())), Of(d, {4, 4}, Values(OtherSpecials()))})
              .Within(Near(d, 4, 4))
              .NotSmooth(kKinks));
    r.Add(Make("power", absl::StrCat(N(d), "/negative_base"),
               {Of(d, {8}, Values({-2, -2, -2, -0.5, -3, -1, -1, 0})),
                Of(d, {8}, Values({2, 3, 0.5, -1, 0, 5, kInf, 0}))})
              .Within(Near(d, 4, 4))
              .NotSmooth(kKinks));
    r.Add(Make("atan2", N(d), {Of(d, {4, 4}), Of(d, {4, 4})}).Within(Near(d, 4, 4)));
    r.Add(Make("atan2", absl::StrCat(N(d), "/special"),
               {Of(d, {4, 4}, Values(Specials())), Of(d, {4, 4}, Values(OtherSpecials()))})
              .Within(Near(d, 4, 4))
              .NotSmooth(kKinks));
  }
}

void AddBits(Rows& r) {
  r.ExactUnary("not", WithBool(Integers()));
  r.ExactUnary("popcnt", Integers());
  r.ExactUnary("count_leading_zeros", Integers());
  for (const char* op : {"and", "or", "xor"}) r.ExactBinary(op, WithBool(Integers()));
  for (const char* op : {"shift_left", "shift_right_arithmetic", "shift_right_logical"})
    for (DType d : Integers()) {
      r.Add(Make(op, N(d), {Of(d, {4, 4}, Bits()), Of(d, {4, 4}, Ints(0, 31))}));
      r.Edges(op, d, 2);
    }
}

// Adds comparisons and the ops that choose or pass on elements: select, clamp, stop_gradient and
// checkpoint_name.
void AddChoices(Rows& r) {
  for (const char* direction : {"EQ", "NE", "LT", "LE", "GT", "GE"})
    for (DType d : WithBool(Numbers())) {
      r.Add(Make("compare", absl::StrCat(N(d), "/", direction),
                 {Of(d, {4, 4}, IsFloat(d) ? Values({0, 1, -1}) : UsualFill(d)),
                  Of(d, {4, 4}, IsFloat(d) ? Values({1, -0.0, -1, 2}) : UsualFill(d))})
                .With({{"direction", std::string(direction)}})
                .Without(CheckKind::kJvp, "a predicate has no tangent"));
    }
  for (DType d : Floats())
    for (const char* direction : {"EQ", "NE", "LT", "GE"})
      r.Add(Make("compare", absl::StrCat(N(d), "/special/", direction),
                 {Of(d, {4, 4}, Values(Specials())), Of(d, {4, 4}, Values(OtherSpecials()))})
                .With({{"direction", std::string(direction)}})
                .Without(CheckKind::kJvp, "a predicate has no tangent"));
  for (DType d : Floats())
    for (const char* direction : {"EQ", "LT", "LE"})
      r.Add(Make("compare", absl::StrCat(N(d), "/total_order/", direction),
                 {Of(d, {4, 4}, Values(Specials())), Of(d, {4, 4}, Values(OtherSpecials()))})
                .With({{"direction", std::string(direction)},
                       {"compare_type", std::string("TOTALORDER")}})
                .Without(CheckKind::kJvp, "a predicate has no tangent"));
  const std::vector<std::vector<int>> cases = {{1}, {2}, {1, 2}};
  for (DType d : AllDTypes())
    r.Add(Make("select", N(d), {Of(kBool, {4, 4}), Of(d, {4, 4}), Of(d, {4, 4})})
              .Main(1)
              .Linear(cases)
              .Moves());
  for (DType d : Computable()) {
    r.Add(Make("select", absl::StrCat(N(d), "/scalar_pred"),
               {Of(kBool, {}), Of(d, {4, 4}), Of(d, {4, 4})})
              .Main(1)
              .Linear(cases));
    const Fill low = IsFloat(d) ? Uniform(-1, -0.5) : Values({0}),
               high = IsFloat(d) ? Uniform(0.5, 1) : Values({4});
    r.Add(Make("clamp", N(d), {Of(d, {4, 4}, low), Of(d, {4, 4}), Of(d, {4, 4}, high)}));
    r.Add(Make("clamp", absl::StrCat(N(d), "/scalar_bounds"),
               {Of(d, {}, low), Of(d, {4, 4}), Of(d, {}, high)}));
    if (IsFloat(d))
      r.Add(
          Make("clamp", absl::StrCat(N(d), "/special"),
               {Of(d, {}, Values({-1})), Of(d, {4, 4}, Values(Specials())), Of(d, {}, Values({2}))})
              .NotSmooth(kKinks));
    r.Add(Make("stop_gradient", N(d), {Of(d, {4, 4})})
              .Linear({{0}})
              .Without(CheckKind::kJvp, "its tangent is zero by definition"));
    r.Add(Make("checkpoint_name", N(d), {Of(d, {4, 4})})
              .With({{"name", std::string("hidden")}})
              .Linear({{0}}));
  }
}

// Returns numbers that test the rounding to narrow floats: numbers halfway between two such floats,
// and numbers slightly above and below halfway.
std::vector<double> Halves() {
  std::vector<double> all = Specials();
  for (double v : {1.0625, 1.125,   1.1875,  1.25,   1.375,   1.75,    2.5,     3.0,    3.5,
                   5.0,    448.0,   464.0,   480.0,  240.0,   248.0,   15.5,    15.75,  30.0,
                   31.0,   57344.0, 61440.0, 0x1p-7, 0x1p-10, 0x3p-11, 0x1p-17, 0x3p-18})
    for (double side : {1.0, 1 + 0x1p-20, -(1 - 0x1p-20)}) all.push_back(v * side);
  all.resize(64);
  return all;
}

// Adds casts between all pairs of dtypes. If one of the two dtypes is only stored and not computed
// with, the row converts many elements, because such a cast has rounding code of its own. The other
// pairs have a usual and an extreme row.
void AddCasts(Rows& r) {
  for (DType from : AllDTypes())
    for (DType to : AllDTypes()) {
      const std::string label = absl::StrCat(N(from), "/to_", N(to));
      if (!IsComputable(from) || !IsComputable(to)) {
        // Converts every bit pattern of a narrow dtype, or numbers at which narrow floats round.
        const bool all = BitWidth(from) <= 8;
        Fill fill = Bits();
        if (all) fill = Codes();
        if (!all && IsInexact(from)) fill = Values(Halves());
        Sample s = Make("convert", label, {Of(from, {all && BitWidth(from) == 8 ? 256 : 64}, fill)})
                       .With({{"dtype", to}})
                       .NotSmooth("it is stored and moved, not computed with");
        if (IsFloat(from) && IsFloat(to)) s.Linear({{0}});
        if (from == kF4E2M1FN && (IsInteger(to)))
          s.Without(CheckKind::kRecorded, "XLA takes 6, the largest, for infinity");
        r.Add(std::move(s));
        continue;
      }
      const bool linear = IsFloat(from) && IsFloat(to);
      Sample s = Make("convert", label, {Of(from, {4, 4})}).With({{"dtype", to}});
      if (linear) s.Linear({{0}});
      if (from != to)
        s.Without(CheckKind::kJvp, "rounding to a narrower dtype hides the difference");
      r.Add(std::move(s));
      Sample edges = Make("convert", label + "/edges",
                          {IsFloat(from)   ? Of(from, {4, 4}, Values(Specials()))
                           : from == kBool ? Of(from, {8})
                                           : Of(from, {8}, Bits())})
                         .With({{"dtype", to}})
                         .NotSmooth(kKinks);
      if (linear) edges.Linear({{0}});
      r.Add(std::move(edges));
      if (ByteWidth(from) == ByteWidth(to) && (from == kBool) == (to == kBool))
        r.Add(Make("bitcast_convert", label,
                   {Of(from, {8}, from == kBool ? Bits() : UsualFill(from))})
                  .With({{"dtype", to}})
                  .Without(CheckKind::kJvp, "bits have no tangents"));
    }
  for (DType d : Floats()) {
    // With as many bits as an f64 has, reduce_precision is the identity.
    r.Add(
        Make("reduce_precision", absl::StrCat(N(d), "/e11m52"), {Of(d, {4, 4}, Uniform(-300, 300))})
            .With({{"exponent_bits", int64_t{11}}, {"mantissa_bits", int64_t{52}}})
            .Linear({{0}}));
    for (auto [exponent, mantissa] : {std::pair<int64_t, int64_t>{5, 10}, {8, 7}, {4, 3}, {8, 0}}) {
      const Attrs attrs{{"exponent_bits", exponent}, {"mantissa_bits", mantissa}};
      const std::string label = absl::StrCat(N(d), "/e", exponent, "m", mantissa);
      r.Add(Make("reduce_precision", label, {Of(d, {4, 4}, Uniform(-300, 300))})
                .With(attrs)
                .Linear({{0}})
                .NotSmooth("rounding is linear only in the limit"));
      Sample special =
          Make("reduce_precision", label + "/special", {Of(d, {4, 4}, Values(Specials()))})
              .With(attrs)
              .Linear({{0}})
              .NotSmooth(kKinks);
      if (mantissa == 0)
        special.Without(CheckKind::kRecorded,
                        "XLA's compiler keeps NaN; its evaluator and StableHLO's make it infinity");
      r.Add(std::move(special));
    }
  }
}

// Adds the ops that split complex numbers into parts and make them of parts. Complex arithmetic
// consists of these ops and of arithmetic on the parts; client_complex_test covers its derivatives.
void AddParts(Rows& r) {
  for (const auto& [number, part] :
       {std::pair{DType::kC64, DType::kF32}, {DType::kC128, DType::kF64}}) {
    constexpr char kReason[] = "finite differences are of real numbers";
    for (const char* const op : {"real", "imag"})
      r.Add(Make(op, N(number), {Of(number, {4, 4}, Bits())}).NotSmooth(kReason));
    r.Add(Make("complex", N(part), {Of(part, {4, 4}), Of(part, {4, 4})}).NotSmooth(kReason));
  }
}

}  // namespace

std::vector<Sample> ElementwiseSamples() {
  Rows r;
  AddFloatFunctions(r);
  AddMoreFunctions(r);
  AddArithmetic(r);
  AddBits(r);
  AddChoices(r);
  AddCasts(r);
  AddParts(r);
  return r.Take();
}

}  // namespace tessera::ir::samples
