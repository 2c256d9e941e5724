// Proves for every op that it has rows, and for every row that its text and wire forms read back
// equal, that the evaluator gives the inferred types and the values recorded from JAX, that its
// cost is sensible, and that a rule that the op refuses to have gives a reason. A row, or sample,
// is one op with given attributes and operands: a test case (samples.h). Each section below is one
// such property, checked for all ops.
#include <gmock/gmock.h>

#include <cmath>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "base/testing/datadriven.h"
#include "ir/op_def.h"
#include "ir/program_hash.h"
#include "ir/text.h"
#include "ir/transform/transform.h"
#include "ir/verify.h"
#include "tests/ops/op_test.h"
#include "tests/ops/sample_json.h"
#include "tests/ops/wire.h"

namespace tessera::ir::samples {
namespace {

std::vector<Type> TypesOf(const Sample& s) {
  std::vector<Type> types;
  for (const Operand& o : s.operands) types.push_back(o.type);
  return types;
}

// ---- Coverage. ----

class CoverageTest : public OpTest {};

TEST_P(CoverageTest, HasARow) {
  EXPECT_FALSE(SamplesOf(op()).empty())
      << op().name << " has no sample: add a row to tests/ops/samples_<family>.cc";
}

// If a row's op also accepts another dtype in place of the row's own, the op needs a row of that
// dtype, too.
TEST_P(CoverageTest, HasARowForEveryDtypeItTakes) {
  std::set<DType> have;
  for (const Sample* s : SamplesOf(op())) have.insert(s->dtype());
  for (const Sample* s : SamplesOf(op())) {
    if (s->operands.empty() || !op().regions.empty()) continue;
    for (DType d : Computable()) {
      if (have.count(d) > 0) continue;
      std::vector<Type> in = TypesOf(*s);
      for (Type& t : in)
        if (t.dtype == s->dtype()) t.dtype = d;
      EXPECT_FALSE(InferTypes(op(), s->scope, in, s->attrs, s->regions).ok())
          << op().name << " takes " << DTypeName(d) << " and has no row for it";
    }
  }
}
TESSERA_FOR_EVERY_OP(CoverageTest);

TEST(SampleTest, ValuesDependOnTheRowAlone) {
  const Sample a = Make("add", "x", {Of(DType::kF64, {4}), Of(DType::kF64, {4})});
  const Sample b = Make("add", "x", {Of(DType::kF64, {4}), Of(DType::kF64, {4})});
  EXPECT_TRUE(ArgsOf(a)[0][0] == ArgsOf(b)[0][0]);
  EXPECT_FALSE(ArgsOf(a)[0][0] == ArgsOf(a)[1][0]);
  // This number must never change, because recorded values rest on it.
  EXPECT_EQ(FilledShards(MakeType(DType::kU32, {2}), Bits(), {}, "key")[0].IntAt(0), 1025243542);
}

TEST(SampleTest, ADifferenceBeyondTheToleranceIsFound) {
  const Array one = Array::Scalar(DType::kF32, 1), next = Array::Scalar(DType::kF32, 1 + 0x1p-23);
  const Array nan = Array::Scalar(DType::kF32, NAN), zero = Array::Scalar(DType::kF32, 0);
  EXPECT_EQ(Difference(one, one, kExact, nullptr), "");
  EXPECT_NE(Difference(one, next, kExact, nullptr), "");
  EXPECT_EQ(Difference(one, next, Ulps(1), nullptr), "");
  EXPECT_NE(Difference(one, Array::Scalar(DType::kF32, 1 + 0x1p-22), Ulps(1), nullptr), "");
  EXPECT_EQ(Difference(nan, nan, Ulps(1), nullptr), "");
  EXPECT_NE(Difference(nan, one, Ulps(1e18), nullptr), "");
  EXPECT_NE(Difference(one, Array::Scalar(DType::kF32, INFINITY), Ulps(1e18), nullptr), "");
  EXPECT_EQ(Difference(one, next, Reordered(1), &one), "");
  EXPECT_NE(Difference(one, next, Reordered(1), &zero), "");
  EXPECT_NE(Difference(one, Array::Scalar(DType::kF64, 1), Ulps(1), nullptr), "");
}

// ---- Forms. ----

class FormsTest : public OpTest {};

// Returns how two programs that should be equal differ, or "".
std::string ProgramDifference(const Program& got, const Program& want) {
  if (got.entry->types != want.entry->types) return "types differ";
  if (StructuralHash(got) != StructuralHash(want))
    return absl::StrCat("the hash differs; it is now\n", PrintProgram(got), "and was\n",
                        PrintProgram(want));
  return PrintProgram(got) == PrintProgram(want) ? "" : "the text differs";
}

TEST_P(FormsTest, TextComesBackEqual) {
  ForEachSample([](const Sample& s) -> std::string {
    const Program p{kOpset, FunctionOf(s), {}, {}};
    if (const absl::Status v = Verify(p); !v.ok()) return StatusText(v);
    const std::string text = PrintProgram(p);
    const absl::StatusOr<Program> back = ParseProgram(text);
    return back.ok() ? ProgramDifference(*back, p)
                     : absl::StrCat(back.status().ToString(), "\n", text);
  });
}

TEST_P(FormsTest, WireComesBackEqual) {
  if (!ThroughTheWire({kOpset, Builder({}).Build({}), {}, {}}))
    GTEST_SKIP() << "this build has no gRPC, hence no wire form";
  ForEachSample([](const Sample& s) -> std::string {
    const Program p{kOpset, FunctionOf(s), {}, {}};
    const absl::StatusOr<Program> back = *ThroughTheWire(p);
    return back.ok() ? ProgramDifference(*back, p) : StatusText(back.status());
  });
}
TESSERA_FOR_EVERY_OP(FormsTest);

// ---- Values. ----

class ValuesTest : public OpTest {};

TEST_P(ValuesTest, InferredTypesAreTheEvaluatedOnes) {
  ForEachSample([](const Sample& s) -> std::string {
    const FunctionRef f = FunctionOf(s);
    const std::vector<Shards> out = ValueOrThrow(RunShards(*f, ArgsOf(s)));
    const std::vector<Type> types = f->result_types();
    if (out.size() != types.size())
      return absl::StrCat(out.size(), " results for ", types.size(), " types");
    for (size_t r = 0; r < out.size(); ++r) {
      if (out[r].size() != DevicesOf(s.scope).size()) return "a shard is missing";
      for (const Array& a : out[r])
        if (a.dtype() != types[r].dtype || a.shape() != types[r].shape)
          return absl::StrCat("result ", r, " is inferred ", types[r].ToString(), ", evaluated ",
                              MakeType(a.dtype(), a.shape()).ToString());
    }
    return "";
  });
}

// Along an axis on which a result is invarying or reduced, all shards must hold the same values.
TEST_P(ValuesTest, InvaryingResultsAreEqualAcrossTheAxis) {
  ForEachSample([](const Sample& s) -> std::string {
    if (!s.manual()) return "";
    const FunctionRef f = FunctionOf(s);
    const std::vector<Shards> out = ValueOrThrow(RunShards(*f, ArgsOf(s)));
    const Mesh& mesh = s.scope.mesh;
    for (size_t r = 0; r < out.size(); ++r)
      for (const MeshAxis& axis : mesh.axes)
        if (const Type type = f->result_types()[r];
            !type.varying.contains(axis.name) && !type.unreduced.contains(axis.name))
          for (int64_t device : DevicesOf(s.scope))
            if (!(out[r][device] == out[r][mesh.GroupOf(device, {axis.name})[0]]))
              return absl::StrCat("result ", r, " is typed ", type.ToString(),
                                  " and differs along '", axis.name, "'");
    return "";
  });
}

const Recorded* FindRecorded(const Sample& s, std::string* why) {
  static const auto* const kAll = [] {
    auto* all = new std::map<std::string_view, absl::StatusOr<Recording>>;
    for (const SampleFamily& f : Families())
      all->emplace(
          f.name,
          ReadRecording(SourcePath(absl::StrCat("tests/ops/recorded/", ToAbsl(f.name), ".jsonl"))));
    return all;
  }();
  for (const SampleFamily& f : Families()) {
    if (f.samples.empty() || &s < &f.samples.front() || &s > &f.samples.back()) continue;
    const absl::StatusOr<Recording>& recording = kAll->at(f.name);
    *why = StatusText(recording.status());
    if (!recording.ok()) return nullptr;
    auto it = recording->samples.find(s.name);
    if (it != recording->samples.end()) return &it->second;
  }
  *why = "no value is recorded for it; run scripts/record_samples.py";
  return nullptr;
}

// Returns the absolute value of every element, for complex elements the modulus.
std::vector<Shards> AbsoluteValues(std::vector<Shards> values) {
  for (Shards& shards : values) {
    for (Array& shard : shards) {
      Array out(IsComplex(shard.dtype()) ? PartDType(shard.dtype()) : shard.dtype(), shard.shape());
      for (int64_t i = 0; i < shard.num_elements(); ++i)
        out.Set(i, std::hypot(shard.At(i), shard.ImaginaryAt(i)));
      shard = std::move(out);
    }
  }
  return values;
}

TEST_P(ValuesTest, EvaluatorGivesTheRecordedValues) {
  ForEachSample(CheckKind::kRecorded, [](const Sample& s) -> std::string {
    std::string why;
    const Recorded* want = FindRecorded(s, &why);
    if (want == nullptr) return why;
    if (want->digest != DigestOf(s))
      return "the row has changed since its values were recorded; run scripts/record_samples.py";
    const std::vector<Shards> got = ValueOrThrow(RunShards(*FunctionOf(s), ArgsOf(s)));
    if (!s.free_signs.empty())
      return FirstDifference(AbsoluteValues(got), AbsoluteValues(want->results), s.tolerance,
                             nullptr);
    if (s.tolerance.kind != Tolerance::kReordered)
      return FirstDifference(got, want->results, s.tolerance, nullptr);
    const std::vector<Shards> magnitudes = ValueOrThrow(MagnitudesOf(s, ArgsOf(s)));
    return FirstDifference(got, want->results, s.tolerance, &magnitudes);
  });
}
TESSERA_FOR_EVERY_OP(ValuesTest);

// ---- Cost. ----

class CostTest : public OpTest {};

Cost CostOf(const Function& f) {
  Cost sum;
  for (const Op& op : f.ops) {
    std::vector<Type> in, out;
    for (ValueId v : op.operands) in.push_back(f.types[v]);
    for (ValueId v : op.results) out.push_back(f.types[v]);
    const InferContext c{*op.def, f.scope, in, op.attrs, op.regions};
    const Cost cost =
        op.def->cost.written() ? op.def->cost.fn(c, out) : derive::CostByFactors(c, out);
    sum.flops += cost.flops;
    sum.bytes += cost.bytes;
  }
  return sum;
}

// Compares the cost of a batch of 2 with that of a batch of 6.
TEST_P(CostTest, IsPositiveAndGrowsWithTheBatch) {
  ForEachSample([](const Sample& s) -> std::string {
    const FunctionRef f = FunctionOf(s);
    const Cost cost = CostOf(*f);
    if (!(cost.flops >= 0 && std::isfinite(cost.flops) && std::isfinite(cost.bytes)))
      return "is not a number";
    bool empty = true;
    for (const Type& t : f->types) empty = empty && t.num_elements() == 0;
    const bool free = s.Excludes(CheckKind::kCost);
    if (free && cost.bytes != 0)
      return absl::StrCat("moves ", cost.bytes, " bytes; the row says none");
    if (!free && !empty && !(cost.bytes > 0)) return "moves no bytes";
    if (s.operands.empty() || s.def->batch.refused()) return "";
    std::vector<int> dims(s.operands.size(), 0);
    const Cost small = CostOf(*ValueOrThrow(Batch(*f, dims, 2)).fn);
    const Cost large = CostOf(*ValueOrThrow(Batch(*f, dims, 6)).fn);
    if (large.flops < small.flops)
      return absl::StrCat(small.flops, " flops for 2, ", large.flops, " for 6");
    if (large.bytes < small.bytes)
      return absl::StrCat(small.bytes, " bytes for 2, ", large.bytes, " for 6");
    // The batched form of an op that does nothing may contain no op at all, and then moves no
    // bytes.
    if (small.bytes > 0 && !(large.bytes > small.bytes))
      return "costs the same for a batch of 2 and of 6";
    return "";
  });
}
TESSERA_FOR_EVERY_OP(CostTest);

// ---- Varying axes. ----

class VaryingTest : public OpTest {};

// Returns the elements of an array, or the real and imaginary parts of complex elements.
std::vector<double> NumbersOf(const Array& x) {
  if (x.dtype() == DType::kC64) {
    const absl::Span<const float> parts(reinterpret_cast<const float*>(x.data()),
                                        2 * x.num_elements());
    return {parts.begin(), parts.end()};
  }
  if (x.dtype() == DType::kC128) {
    const absl::Span<const double> parts(reinterpret_cast<const double*>(x.data()),
                                         2 * x.num_elements());
    return {parts.begin(), parts.end()};
  }
  return x.ToDoubles();
}
void SetNumber(Array* x, size_t i, double value) {
  if (x->dtype() == DType::kC64)
    reinterpret_cast<float*>(x->MutableData())[i] = static_cast<float>(value);
  else if (x->dtype() == DType::kC128)
    reinterpret_cast<double*>(x->MutableData())[i] = value;
  else
    x->Set(static_cast<int64_t>(i), value);
}

// Checks whether the op is additive: whether f(a + b) = f(a) + f(b), up to rounding. Returns "" if
// it is, and otherwise the difference.
std::string AdditivityError(const Sample& s) {
  const FunctionRef f = FunctionOf(s);
  std::vector<Array> a, b, sum;
  for (const Shards& shards : ArgsOf(s)) {
    const Array& x = shards[0];
    Array other = x, both = x;
    if (IsInexact(x.dtype())) {
      const std::vector<double> v = NumbersOf(x);
      if (!std::all_of(v.begin(), v.end(), [](double n) { return std::isfinite(n); })) return "";
      for (size_t i = 0; i < v.size(); ++i) SetNumber(&other, i, -0.5 * v[v.size() - 1 - i]);
      const std::vector<double> w = NumbersOf(other);
      for (size_t i = 0; i < v.size(); ++i) SetNumber(&both, i, v[i] + w[i]);
    }
    a.push_back(x);
    b.push_back(std::move(other));
    sum.push_back(std::move(both));
  }
  const std::vector<Array> of_a = ValueOrThrow(Evaluate(*f, a)),
                           of_b = ValueOrThrow(Evaluate(*f, b)),
                           of_sum = ValueOrThrow(Evaluate(*f, sum));
  for (size_t r = 0; r < of_sum.size(); ++r) {
    const std::vector<double> x = NumbersOf(of_a[r]), y = NumbersOf(of_b[r]),
                              z = NumbersOf(of_sum[r]);
    double scale = 0, worst = 0;
    for (size_t i = 0; i < z.size(); ++i) {
      scale = std::max({scale, std::abs(x[i]), std::abs(y[i])});
      worst = std::max(worst, std::abs(x[i] + y[i] - z[i]));
    }
    if (worst > 0.02 * scale)
      return absl::StrCat("pending sums are accepted, but the op of a sum is ", worst,
                          " from the sum of the op of each, of ", scale, " at most");
  }
  return "";
}

// Operands of the wrong type along a Manual axis must be refused: an operand that varies gives a
// result that varies, and an op accepts pending sums only if it is additive.
TEST_P(VaryingTest, AWrongVaryingSetIsRefused) {
  ForEachSample(CheckKind::kVarying, [](const Sample& s) -> std::string {
    const OpDef& def = *s.def;
    if (def.has_planned_regions() || def.has_rules() || s.operands.empty())
      return "";  // the regions of such an op are typed in their own scope
    Scope scope = s.scope;
    std::vector<Type> all = TypesOf(s);
    const bool collective = s.manual();
    if (!collective) {
      scope.mesh.axes.push_back({"i", 2, AxisType::kManual});
      for (Type& t : all) t.varying = {"i"};
      const std::vector<Type> out = ValueOrThrow(InferTypes(def, scope, all, s.attrs, s.regions));
      for (const Type& t : out)
        if (t.varying != AxisSet{"i"})
          return absl::StrCat("a varying operand gives ", t.ToString());
      // An operand that is unreduced, which is a pending sum along `i`, is allowed only if the op
      // commutes with the sum.
      std::vector<Type> partial = all;
      for (Type& t : partial) {
        t.varying.clear();
        if (IsInexact(t.dtype)) t.unreduced = {"i"};
      }
      if (Any(Inexact(partial)) && s.linear.empty() &&
          InferTypes(def, scope, partial, s.attrs, s.regions).ok())
        if (std::string wrong = AdditivityError(s); !wrong.empty()) return wrong;
    }
    if (!collective && all.size() < 2) return "";
    for (size_t i = 0; i < all.size(); ++i) {
      std::vector<Type> wrong = all;
      wrong[i].varying.clear();
      const absl::Status status = InferTypes(def, scope, wrong, s.attrs, s.regions).status();
      if (status.ok()) return absl::StrCat("operand ", i, " may be invarying");
      if (!absl::StrContains(status.message(), "varying"))
        return absl::StrCat("the refusal does not speak of varying axes: ", status.message());
    }
    return "";
  });
}
TESSERA_FOR_EVERY_OP(VaryingTest);

// ---- Refusals. ----

class RefusalTest : public OpTest {};

// Returns what is wrong with a status that should refuse an op, or "".
std::string RefusalFault(const absl::Status& status, std::string_view what, const OpDef& def,
                         std::string_view reason) {
  if (status.ok()) return absl::StrCat(ToAbsl(what), " is refused and yet done");
  for (std::string_view part : {what, def.lax_name, reason})
    if (!absl::StrContains(status.message(), ToAbsl(part)))
      return absl::StrCat("the refusal lacks '", ToAbsl(part), "': ", status.message());
  return ReasonOf(status) == "NOT_IMPLEMENTED"
             ? ""
             : "the refusal is a " + std::string(ReasonOf(status));
}

TEST_P(RefusalTest, EveryRefusedRuleSaysWhy) {
  const auto says_why = [](const auto& rule) { return !rule.refused() || !rule.reason.empty(); };
  EXPECT_TRUE(says_why(op().jvp));
  EXPECT_TRUE(says_why(op().transpose));
  EXPECT_TRUE(says_why(op().batch));
  EXPECT_TRUE(says_why(op().partition));
  EXPECT_TRUE(says_why(op().sharding));
  EXPECT_TRUE(says_why(op().varying));
}

TEST_P(RefusalTest, TransformsGiveTheReason) {
  ForEachSample([](const Sample& s) -> std::string {
    const FunctionRef f = FunctionOf(s);
    const std::vector<bool> active = Inexact(f->param_types());
    const std::vector<bool> results = Inexact(f->result_types());
    if (s.def->jvp.refused() && Any(active)) {
      const std::string fault =
          RefusalFault(Jvp(*f, active).status(), "Differentiation rule", *s.def, s.def->jvp.reason);
      if (!fault.empty()) return fault;
    }
    if (s.def->transpose.refused() && Any(active) && Any(results)) {
      const std::string fault = RefusalFault(TransposeFunction(*f, active).status(),
                                             "Transpose rule", *s.def, s.def->transpose.reason);
      if (!fault.empty()) return fault;
    }
    if (s.def->batch.refused() && !s.operands.empty())
      return RefusalFault(Batch(*f, std::vector<int>(s.operands.size(), 0), 2).status(),
                          "Batching rule", *s.def, s.def->batch.reason);
    return "";
  });
}
TESSERA_FOR_EVERY_OP(RefusalTest);

}  // namespace
}  // namespace tessera::ir::samples
