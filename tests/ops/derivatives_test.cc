// Proves the derivative rules of every op on its samples. A sample, or row, is one op with given
// attributes and operands: a test case (samples.h). The jvp of the op, and the jvp of this jvp,
// must agree with finite differences; linearize must agree with the jvp; and the transpose must
// pass the dot-product test. For an op in Manual code, the operands of all shards are perturbed at
// the same time, each shard's in its own direction.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_join.h"
#include "ir/op_def.h"
#include "ir/strided.h"
#include "ir/transform/transform.h"
#include "tests/ops/op_test.h"

namespace tessera::ir::samples {
namespace {

using Arguments = std::vector<Shards>;

bool AllF64(const std::vector<Type>& types) {
  for (const Type& t : types)
    if (IsInexact(t.dtype) && t.dtype != DType::kF64) return false;
  return true;
}
std::vector<Type> TypesWhere(const std::vector<Type>& types, const std::vector<bool>& mask) {
  std::vector<Type> out;
  for (size_t i = 0; i < types.size(); ++i)
    if (mask[i]) out.push_back(types[i]);
  return out;
}
Arguments FillAll(const std::vector<Type>& types, const Fill& fill, const Scope& scope,
                  const std::string& key) {
  Arguments out;
  for (size_t i = 0; i < types.size(); ++i)
    out.push_back(FilledShards(types[i], fill, scope, absl::StrCat(key, i)));
  return out;
}
Arguments Joined(Arguments a, const Arguments& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
// Returns args + step * tangents, where only the active arguments have tangents.
Arguments Moved(Arguments args, const std::vector<bool>& active, const Arguments& tangents,
                double step) {
  size_t next = 0;
  for (size_t i = 0; i < args.size(); ++i) {
    if (!active[i]) continue;
    const Shards& t = tangents[next++];
    for (size_t shard = 0; shard < args[i].size(); ++shard)
      for (int64_t k = 0; k < args[i][shard].num_elements(); ++k)
        args[i][shard].Set(k, args[i][shard].At(k) + step * t[shard].At(k));
  }
  return args;
}

// Compares the jvp of f at args, along random tangents, with finite differences. The jvp must give
// one tangent for each inexact result. For order 1, checks the jvp of the jvp, too.
std::string CheckAgainstDifferences(const Function& f, const std::vector<bool>& active,
                                    const Arguments& args, const std::string& key, int order) {
  const std::vector<Type> results = f.result_types();
  const JvpResult jvp = ValueOrThrow(Jvp(f, active, /*instantiate=*/true));
  const std::vector<bool> inexact = Inexact(results);
  if (jvp.out_active != inexact) return "instantiated jvp leaves an inexact result without tangent";
  const Arguments tangents =
      FillAll(TypesWhere(f.param_types(), active), Uniform(-1, 1), f.scope, key);
  const Arguments all = Joined(args, tangents);
  const std::vector<Shards> got = ValueOrThrow(RunShards(*jvp.fn, all));
  const std::vector<Shards> primal = ValueOrThrow(RunShards(f, args));
  if (got.size() != results.size() + TypesWhere(results, inexact).size())
    return "jvp has another number of results";
  for (size_t r = 0; r < results.size(); ++r)
    if (got[r] != primal[r]) return absl::StrCat("jvp changes result ", r);
  constexpr double kStep = 1e-5;
  const std::vector<Shards> high = ValueOrThrow(RunShards(f, Moved(args, active, tangents, kStep)));
  const std::vector<Shards> low = ValueOrThrow(RunShards(f, Moved(args, active, tangents, -kStep)));
  size_t next = results.size();
  for (size_t r = 0; r < results.size(); ++r) {
    if (!inexact[r]) continue;
    const Shards& t = got[next++];
    for (size_t shard = 0; shard < t.size(); ++shard) {
      if (t[shard].shape() != results[r].shape || t[shard].dtype() != results[r].dtype)
        return absl::StrCat("the tangent of result ", r, " is not a ", results[r].ToString());
      for (int64_t k = 0; k < t[shard].num_elements(); ++k) {
        const double want = (high[r][shard].At(k) - low[r][shard].At(k)) / (2 * kStep);
        // Allows for truncation (step^2 f''') and cancellation (eps f / step) of well-scaled
        // functions.
        const double allowed = 1e-6 * (1 + std::abs(want) + std::abs(primal[r][shard].At(k)));
        if (!(std::abs(t[shard].At(k) - want) <= allowed))
          return absl::StrCat("order ", order, ": tangent ", k, " of result ", r, " on shard ",
                              shard, " is ", t[shard].At(k), ", differences give ", want);
      }
    }
  }
  if (order > 1) return "";
  return CheckAgainstDifferences(*jvp.fn, Inexact(jvp.fn->param_types()), all, key + "'",
                                 order + 1);
}

// Returns the sets of operands to differentiate by: all inexact operands together, and each alone.
std::vector<std::vector<bool>> Choices(const std::vector<bool>& inexact) {
  std::vector<std::vector<bool>> out = {inexact};
  for (size_t i = 0; i < inexact.size(); ++i) {
    if (!inexact[i]) continue;
    std::vector<bool> one(inexact.size(), false);
    one[i] = true;
    if (one != inexact) out.push_back(one);
  }
  return out;
}

class JvpTest : public OpTest {};

TEST_P(JvpTest, AgreesWithFiniteDifferences) {
  if (op().jvp.refused()) GTEST_SKIP() << "no jvp: " << op().jvp.reason;
  int64_t checked = 0, inexact = 0;
  ForEachSample([&](const Sample& s) -> std::string {
    const FunctionRef f = FunctionOf(s);
    const std::vector<Type> params = f->param_types();
    inexact += Any(Inexact(params)) && Any(Inexact(f->result_types()));
    if (s.Excludes(CheckKind::kJvp) || !Any(Inexact(params)) || !AllF64(params) ||
        !AllF64(f->result_types()))
      return "";
    ++checked;
    for (const std::vector<bool>& active : Choices(Inexact(params))) {
      const std::string why = CheckAgainstDifferences(*f, active, ArgsOf(s), s.name + "#t", 1);
      if (!why.empty()) return why;
    }
    return "";
  });
  // If an op on floats has no row whose derivative is checked, each of its f64 rows must give a
  // reason.
  if (inexact > 0 && checked == 0)
    ForEachSample([](const Sample& s) -> std::string {
      return s.dtype() != DType::kF64 || s.Excludes(CheckKind::kJvp) ? "" : "is not differentiated";
    });
}

// A row may exclude the check of its jvp only if it would fail the check.
TEST_P(JvpTest, ExcludedRowsFailTheCheck) {
  if (op().jvp.refused()) GTEST_SKIP() << "no jvp: " << op().jvp.reason;
  ForEachSample([](const Sample& s) -> std::string {
    const FunctionRef f = FunctionOf(s);
    const std::vector<bool> active = Inexact(f->param_types());
    if (!s.Excludes(CheckKind::kJvp) || !Any(active) || !AllF64(f->param_types()) ||
        !AllF64(f->result_types()) || !Any(Inexact(f->result_types())))
      return "";
    for (const std::vector<bool>& choice : Choices(active)) {
      std::string why;
      const absl::Status status = CatchStatus(
          [&] { why = CheckAgainstDifferences(*f, choice, ArgsOf(s), s.name + "#t", 1); });
      if (!status.ok() || !why.empty()) return "";
    }
    return absl::StrCat("is left out, '", s.excluded.at(CheckKind::kJvp), "', and yet passes");
  });
}

// A tangent must have the type of its result, for every dtype. The jvp also runs on special values,
// such as NaN.
TEST_P(JvpTest, KeepsTypes) {
  if (op().jvp.refused()) GTEST_SKIP() << "no jvp: " << op().jvp.reason;
  ForEachSample([](const Sample& s) -> std::string {
    const FunctionRef f = FunctionOf(s);
    const std::vector<bool> active = Inexact(f->param_types());
    if (!Any(active)) return "";
    const absl::StatusOr<JvpResult> made = Jvp(*f, active);
    if (absl::IsUnimplemented(made.status()) && s.Excludes(CheckKind::kJvp)) return "";
    const JvpResult& jvp = ValueOrThrow(made);
    const std::vector<Type> results = f->result_types(), types = jvp.fn->result_types();
    size_t next = results.size();
    for (size_t r = 0; r < results.size(); ++r)
      if (jvp.out_active[r]) {
        Type want = results[r], got = types.at(next++);
        want.weak = got.weak = false;
        if (got != want)
          return absl::StrCat("tangent of ", want.ToString(), " is ", got.ToString());
      }
    const Arguments tangents =
        FillAll(TypesWhere(f->param_types(), active), Uniform(-1, 1), s.scope, s.name + "#t");
    return StatusText(RunShards(*jvp.fn, Joined(ArgsOf(s), tangents)).status());
  });
}
TESSERA_FOR_EVERY_OP(JvpTest);

// ---- Transposes. ----

double Accuracy(DType dtype) {
  return dtype == DType::kF64 ? 1e-12 : dtype == DType::kF32 ? 1e-5 : 2e-2;
}

// An inner product of values that are spread over shards, and the sum of the magnitudes of its
// terms. A value that several shards hold counts once.
struct InnerProduct {
  double sum = 0, magnitude = 0, accuracy = 0;
  void Add(const Type& type, const Shards& a, const Shards& b, const Mesh& mesh) {
    double copies = 1;
    if (a.size() > 1)
      for (const MeshAxis& axis : mesh.axes)
        if (axis.type == AxisType::kManual && !type.varying.contains(axis.name))
          copies *= static_cast<double>(axis.size);
    for (size_t shard = 0; shard < a.size(); ++shard)
      for (int64_t k = 0; k < a[shard].num_elements(); ++k) {
        const double term = a[shard].At(k) * b[shard].At(k) / copies;
        sum += term;
        magnitude += std::abs(term);
      }
    accuracy = std::max(accuracy, Accuracy(type.dtype));
  }
};
std::string ProductDifference(const InnerProduct& forward, const InnerProduct& back) {
  const double accuracy = std::max(forward.accuracy, back.accuracy);
  if (std::abs(forward.sum - back.sum) <= accuracy * (forward.magnitude + back.magnitude) + 1e-300)
    return "";
  return absl::StrCat("<ct, J t> is ", forward.sum, ", <J' ct, t> is ", back.sum);
}

std::string CotangentTypeDifference(const std::vector<Type>& got, std::vector<Type> want) {
  for (size_t i = 0; i < want.size(); ++i) {
    want[i] = CotangentType(want[i]);
    if (!EqualButWeak(got.at(i), want[i]))
      return absl::StrCat("cotangent ", i, " is ", got[i].ToString(), ", expected ",
                          want[i].ToString());
  }
  return got.size() == want.size() ? "" : "another number of cotangents";
}

// Checks that <ct, f(x) - f(0)> = <f'(ct), x>, where x are the operands in `set`, in which f is
// linear, and f' is the transpose of f in these operands.
std::string CheckLinearIn(const Sample& s, const std::vector<int>& set) {
  const FunctionRef f = FunctionOf(s);
  std::vector<bool> linear(s.operands.size(), false);
  for (int i : set) linear.at(i) = true;
  const FunctionRef transposed = ValueOrThrow(TransposeFunction(*f, linear));
  Arguments args = ArgsOf(s), zero, known, xs;
  const std::vector<Type> params = f->param_types(), results = f->result_types();
  std::vector<Type> x_types = TypesWhere(params, linear);
  // With small whole numbers, arithmetic in narrow floats stays exact.
  for (size_t i = 0; i < args.size(); ++i)
    if (linear[i])
      args[i] = FilledShards(params[i], Ints(-3, 3), s.scope, absl::StrCat(s.name, "#x", i));
  zero = args;
  for (size_t i = 0; i < args.size(); ++i) {
    if (!linear[i]) known.push_back(args[i]);
    if (!linear[i]) continue;
    xs.push_back(args[i]);
    for (Array& a : zero[i]) a = Array(a.dtype(), a.shape());
  }
  if (std::string why = CotangentTypeDifference(transposed->result_types(), x_types); !why.empty())
    return why;
  Arguments cts;
  for (size_t r = 0; r < results.size(); ++r)
    cts.push_back(FilledShards(results[r], IsInexact(results[r].dtype) ? Ints(-3, 3) : Values({0}),
                               s.scope, absl::StrCat(s.name, "#ct", r)));
  const std::vector<Shards> high = ValueOrThrow(RunShards(*f, args)),
                            low = ValueOrThrow(RunShards(*f, zero));
  const std::vector<Shards> back = ValueOrThrow(RunShards(*transposed, Joined(known, cts)));
  InnerProduct forward, backward;
  for (size_t r = 0; r < results.size(); ++r) {
    if (!IsInexact(results[r].dtype)) continue;
    forward.Add(results[r], cts[r], high[r], s.scope.mesh);
    InnerProduct base;
    base.Add(results[r], cts[r], low[r], s.scope.mesh);
    forward.sum -= base.sum;
    forward.magnitude += base.magnitude;
  }
  for (size_t i = 0; i < xs.size(); ++i) backward.Add(x_types[i], xs[i], back[i], s.scope.mesh);
  const std::string why = ProductDifference(forward, backward);
  return why.empty() ? "" : absl::StrCat(why, " for operands ", absl::StrJoin(set, ","));
}

class TransposeTest : public OpTest {};

TEST_P(TransposeTest, LinearOpsPassTheDotProductTest) {
  if (op().transpose.refused()) GTEST_SKIP() << "no transpose: " << op().transpose.reason;
  int64_t floats = 0, checked = 0;
  ForEachSample(CheckKind::kTranspose, [&](const Sample& s) -> std::string {
    const std::vector<bool> inexact = Inexact(FunctionOf(s)->param_types());
    floats += Any(inexact);
    for (const std::vector<int>& set : s.linear) {
      bool tangible = true;
      for (int i : set) tangible = tangible && inexact.at(i);
      if (!tangible) continue;
      ++checked;
      const std::string why = CheckLinearIn(s, set);
      if (!why.empty()) return why;
    }
    return "";
  });
  EXPECT_TRUE(checked > 0 || floats == 0)
      << op().name << " has a transpose; its rows must say in which operands it is linear";
}

// Tries every set of operands. TransposeFunction must refuse, with a reason, a set in which the op
// is not linear.
TEST_P(TransposeTest, NonLinearOperandsAreRefused) {
  ForEachSample([](const Sample& s) -> std::string {
    const FunctionRef f = FunctionOf(s);
    const std::vector<Type> results = f->result_types();
    if (!Any(Inexact(results))) return "";
    const size_t n = std::min<size_t>(s.operands.size(), 4);
    for (unsigned set = 1; set < 1u << n; ++set) {
      std::vector<bool> linear(s.operands.size(), false);
      std::vector<int> operands;
      for (size_t i = 0; i < n; ++i)
        if ((linear[i] = set >> i & 1)) operands.push_back(static_cast<int>(i));
      const absl::Status status = TransposeFunction(*f, linear).status();
      bool is_linear = false;
      for (std::vector<int> known : s.linear) {
        std::sort(known.begin(), known.end());
        is_linear = is_linear || known == operands;
      }
      if (is_linear && !s.def->transpose.refused() && !s.Excludes(CheckKind::kTranspose) &&
          !status.ok())
        return StatusText(status);
      if (!status.ok() && ReasonOf(status) != "NOT_IMPLEMENTED")
        return absl::StrCat("operands ", absl::StrJoin(operands, ","), ": ", status.ToString());
      if (!status.ok() && status.message().empty()) return "is refused without a reason";
    }
    return "";
  });
}

// Checks that the linearized f gives the tangents of the jvp, and that its transpose passes the
// dot-product test.
std::string CheckReverse(const Function& f, const std::vector<bool>& active, const Arguments& args,
                         const std::string& key) {
  const Linearized lin = ValueOrThrow(Linearize(f, active));
  if (!Any(lin.out_active)) return "";
  const std::vector<Type> in_types = TypesWhere(f.param_types(), active);
  const Arguments tangents = FillAll(in_types, Uniform(-1, 1), f.scope, key + "#t");
  std::vector<Shards> forward = ValueOrThrow(RunShards(*lin.forward, args));
  const std::vector<Shards> primal = ValueOrThrow(RunShards(f, args));
  for (size_t r = 0; r < primal.size(); ++r)
    if (forward.at(r) != primal[r]) return absl::StrCat("linearize changes result ", r);
  const Arguments residuals(forward.begin() + static_cast<int64_t>(primal.size()), forward.end());
  if (static_cast<int>(residuals.size()) != lin.num_residuals) return "another number of residuals";
  const std::vector<Shards> out = ValueOrThrow(RunShards(*lin.linear, Joined(residuals, tangents)));

  const JvpResult jvp = ValueOrThrow(Jvp(f, active));
  std::vector<Shards> want = ValueOrThrow(RunShards(*jvp.fn, Joined(args, tangents)));
  want.erase(want.begin(), want.begin() + static_cast<int64_t>(primal.size()));
  if (const std::string why = FirstDifference(out, want, Ulps(64), nullptr); !why.empty())
    return absl::StrCat("linearized and jvp disagree: ", why);

  std::vector<bool> linear(lin.linear->num_params, true);
  std::fill(linear.begin(), linear.begin() + lin.num_residuals, false);
  const FunctionRef transposed = ValueOrThrow(TransposeFunction(*lin.linear, linear));
  const std::vector<Type> out_types = lin.linear->result_types();
  if (std::string why = CotangentTypeDifference(transposed->result_types(), in_types); !why.empty())
    return why;
  const Arguments cts = FillAll(out_types, Uniform(-1, 1), f.scope, key + "#ct");
  const std::vector<Shards> back = ValueOrThrow(RunShards(*transposed, Joined(residuals, cts)));
  InnerProduct forth, backward;
  for (size_t r = 0; r < cts.size(); ++r) forth.Add(out_types[r], cts[r], out[r], f.scope.mesh);
  for (size_t i = 0; i < tangents.size(); ++i)
    backward.Add(in_types[i], tangents[i], back[i], f.scope.mesh);
  return ProductDifference(forth, backward);
}

// This is how reverse mode differentiates any op: linearize it, then transpose the linear part.
TEST_P(TransposeTest, LinearizedOpsPassTheDotProductTest) {
  if (op().jvp.refused()) GTEST_SKIP() << "no jvp: " << op().jvp.reason;
  ForEachSample(CheckKind::kTranspose, [](const Sample& s) -> std::string {
    const FunctionRef f = FunctionOf(s);
    const std::vector<bool> active = Inexact(f->param_types());
    if (!Any(active) || !AllF64(f->param_types()) || !AllF64(f->result_types())) return "";
    return CheckReverse(*f, active, ArgsOf(s), s.name);
  });
}
TESSERA_FOR_EVERY_OP(TransposeTest);

// ---- Second derivatives of an op alone, under vmap, and in the body of a shard_map. ----

// A function and its arguments.
struct Call {
  FunctionRef f;
  Arguments args;
};

Call OpAlone(const Sample& s) { return {FunctionOf(s), ArgsOf(s)}; }

// Returns the op under vmap. Each operand has a batch of two equal members, whose tangents differ.
// The batch dim is the first dim of one operand and the last dim of the next, in turns.
Call OpUnderVmap(const Sample& s) {
  constexpr int64_t kSize = 2;
  const FunctionRef f = FunctionOf(s);
  std::vector<int> dims;
  Call out;
  out.args = ArgsOf(s);
  for (size_t i = 0; i < s.operands.size(); ++i) {
    const int dim = dims.emplace_back(i % 2 == 0 ? 0 : s.operands[i].type.rank());
    for (Array& a : out.args[i]) {
      Dims one = a.shape(), both = a.shape(), start(a.rank() + 1, 0);
      one.insert(one.begin() + dim, 1);
      both.insert(both.begin() + dim, kSize);
      Array stacked(a.dtype(), both);
      for (int64_t k = 0; k < kSize; ++k) {
        start[dim] = k;
        WriteBlock(&stacked, start, a.Reshaped(one));
      }
      a = stacked;
    }
  }
  out.f = ValueOrThrow(Batch(*f, dims, kSize, std::vector<int>(f->results.size(), 0))).fn;
  return out;
}

// Returns the op in the body of a shard_map over two devices. Operands alternate: every other
// operand is invarying and is cast to vary, so that its cotangent is summed over the devices. The
// operands between them are typed as varying. The length of the row's name decides which kind the
// first operand is.
Call OpInShardMap(const Sample& s) {
  const Scope scope{{{{"d", 2, AxisType::kManual}}}, true};
  std::vector<Type> varying;
  Builder b(scope, "in_shard_map");
  std::vector<Value> in;
  Call out;
  out.args = ArgsOf(s);
  for (size_t i = 0; i < s.operands.size(); ++i) {
    Type type = s.operands[i].type;
    const bool same = (i + s.name.size()) % 2 == 0;
    if (!same) type.varying = {"d"};
    const Value param = b.Param(type);
    in.push_back(same ? Pvary(param, {"d"}) : param);
    varying.push_back(in.back().type());
    out.args[i].push_back(out.args[i][0]);
  }
  out.f = b.Build(Inline(b, *ValueOrThrow(Rescope(*FunctionOf(s), scope, varying)), in));
  return out;
}

// Returns a function from the arguments of f and cotangents of its results to the cotangents of the
// active arguments.
FunctionRef ReverseOf(const Function& f, const std::vector<bool>& active) {
  const Linearized lin = ValueOrThrow(Linearize(f, active));
  if (!Any(lin.out_active)) return nullptr;
  std::vector<bool> linear(lin.linear->num_params, true);
  std::fill(linear.begin(), linear.begin() + lin.num_residuals, false);
  const FunctionRef transposed = ValueOrThrow(TransposeFunction(*lin.linear, linear));
  Builder b(f.scope, "reverse");
  std::vector<Value> params;
  for (const Type& type : f.param_types()) params.push_back(b.Param(type));
  std::vector<Value> in = Inline(b, *lin.forward, params);
  in.erase(in.begin(), in.begin() + static_cast<int64_t>(f.results.size()));
  for (int i = lin.num_residuals; i < transposed->num_params; ++i)
    in.push_back(b.Param(transposed->types[i]));
  return b.Build(Inline(b, *transposed, in));
}

// Checks all four compositions of two derivatives, because each of them uses other rules: forward
// over forward, forward over reverse, reverse over reverse, and reverse over forward.
std::string CheckSecondOrder(const Call& call, const std::string& key) {
  const std::vector<bool> active = Inexact(call.f->param_types());
  // This checks the jvp and the jvp of the jvp.
  std::string why = CheckAgainstDifferences(*call.f, active, call.args, key + "#f", 1);
  if (!why.empty()) return absl::StrCat("forward over forward: ", why);
  why = CheckReverse(*call.f, active, call.args, key);
  if (!why.empty()) return absl::StrCat("reverse: ", why);
  const FunctionRef reverse = ReverseOf(*call.f, active);
  if (!reverse) return "";
  std::vector<Type> types = reverse->param_types();
  const std::vector<bool> all = Inexact(types);
  types.erase(types.begin(), types.begin() + call.f->num_params);
  const Arguments args =
      Joined(call.args, FillAll(types, Uniform(-1, 1), call.f->scope, key + "#c"));
  why = CheckAgainstDifferences(*reverse, all, args, key + "#fr", 2);
  if (!why.empty()) return absl::StrCat("forward over reverse: ", why);
  why = CheckReverse(*reverse, all, args, key + "#rr");
  if (!why.empty()) return absl::StrCat("reverse over reverse: ", why);
  const JvpResult jvp = ValueOrThrow(Jvp(*call.f, active));
  const Arguments tangents =
      FillAll(TypesWhere(call.f->param_types(), active), Uniform(-1, 1), call.f->scope, key + "#v");
  why = CheckReverse(*jvp.fn, Inexact(jvp.fn->param_types()), Joined(call.args, tangents),
                     key + "#rf");
  return why.empty() ? "" : absl::StrCat("reverse over forward: ", why);
}

class SecondDerivativeTest : public OpTest {
 protected:
  // Checks the rows that have derivatives and for which `has` is true. `call` returns the function
  // to differentiate.
  void ForEachSmoothSample(const std::function<bool(const Sample&)>& has,
                           const std::function<Call(const Sample&)>& call) {
    if (op().jvp.refused()) GTEST_SKIP() << "no jvp: " << op().jvp.reason;
    ForEachSample([&](const Sample& s) -> std::string {
      const FunctionRef f = FunctionOf(s);
      if (s.Excludes(CheckKind::kJvp) || s.Excludes(CheckKind::kTranspose) ||
          !Any(Inexact(f->param_types())) || !AllF64(f->param_types()) ||
          !AllF64(f->result_types()) || !has(s))
        return "";
      return CheckSecondOrder(call(s), s.name);
    });
  }
};

TEST_P(SecondDerivativeTest, OfTheOp) {
  ForEachSmoothSample([](const Sample&) { return true; }, OpAlone);
}
TEST_P(SecondDerivativeTest, OfTheOpUnderVmap) {
  if (op().batch.refused()) GTEST_SKIP() << "no batching: " << op().batch.reason;
  ForEachSmoothSample([](const Sample& s) { return !s.Excludes(CheckKind::kBatch); }, OpUnderVmap);
}
TEST_P(SecondDerivativeTest, OfTheOpInAShardMap) {
  ForEachSmoothSample([](const Sample& s) { return s.scope.mesh.empty(); }, OpInShardMap);
}
TESSERA_FOR_EVERY_OP(SecondDerivativeTest);

}  // namespace
}  // namespace tessera::ir::samples
