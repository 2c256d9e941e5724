// The op case: the choice of a branch, derivatives, batching with one index or with an index for
// each member, checks of the branches, and devices that take different branches. The generic checks
// of transform_checks.h drive most tests.
#include "ir/op_def.h"
#include "ir/transform/testing/transform_checks.h"
#include "ir/transform/transform.h"
#include "ir/verify.h"

namespace tessera::ir {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): helpers of tests
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Type S32() { return MakeType(DType::kS32, {}); }
Array Int(int64_t i) { return Array::ScalarInt(DType::kS32, i); }

// Returns branches that keep different residuals for a gradient: sin(x) y; x y exp(x y); y.
std::vector<FunctionRef> Branches() {
  const std::vector<Type> in = {F64({3}), F64({3})};
  using V = std::vector<Value>;
  return {Fn(in,
             [](Builder&, const V& v) {
               return V{Sin(v[0]) * v[1], v[0]};
             }),
          Fn(in,
             [](Builder&, const V& v) {
               return V{v[0] * v[1] * Exp(v[0] * v[1]), v[1]};
             }),
          Fn(in, [](Builder&, const V& v) {
            return V{v[1], v[1] * v[1]};
          })};
}
// Returns a function (index, x, y) -> (cos of the chosen branch's first result, its second result).
// If `index` is given, the function uses this constant instead of its param.
FunctionRef CaseFn(std::optional<int> index = {}) {
  return Fn({S32(), F64({3}), F64({3})}, [&](Builder& b, const std::vector<Value>& p) {
    const Value i = index ? Constant(b, Array::ScalarInt(DType::kS32, *index)) : p[0];
    const auto out = Case(i, Branches(), {p[1], p[2]});
    return std::vector<Value>{Cos(out[0]), out[1]};
  });
}

TEST(Case, RunsTheBranchThatTheClampedIndexNames) {
  const FunctionRef f = Fn({S32(), F64({})}, [](Builder&, const std::vector<Value>& p) {
    std::vector<FunctionRef> branches;
    for (const double by : {1, 10, 100})
      branches.push_back(Fn({F64({})}, [by](Builder&, const std::vector<Value>& v) {
        return std::vector<Value>{v[0] * FullLike(v[0], by)};
      }));
    return Case(p[0], branches, {p[1]});
  });
  const auto at = [&](int64_t i) { return Eval1(*f, {Int(i), Array::Scalar(DType::kF64, 3)})[0]; };
  EXPECT_EQ(at(0), 3);
  EXPECT_EQ(at(1), 30);
  EXPECT_EQ(at(2), 300);
  EXPECT_EQ(at(-5), 3);
  EXPECT_EQ(at(99), 300);
}

TEST(Case, Derivatives) {
  for (int i : {0, 1, 2}) CheckDerivatives(*CaseFn(i), 2, 1e-5);
  CheckDerivatives(*CaseFn(), 2, 1e-5);
}

TEST(Case, Batches) {
  CheckBatch(*CaseFn(), {-1, 0, -1});
  CheckBatch(*CaseFn(), {-1, -1, 1});
  CheckBatch(*CaseFn(), {0, -1, -1});
  CheckBatch(*CaseFn(), {0, 1, 0});
}

TEST(Case, NestedTransforms) {
  CheckDerivatives(*Batch(*CaseFn(), {0, 0, -1}, 3)->fn, 1, 1e-5);
  CheckBatch(*VjpFn(*CaseFn(), InexactParams(*CaseFn())), {0, 0, -1, 0, 0});
  CheckBatch(*VjpFn(*CaseFn(), InexactParams(*CaseFn())), {-1, 0, -1, 0, 0});
}

// A branch that a member does not take is run for the member too, and its results are dropped.
TEST(Case, ABatchedBranchThatIsNotTakenGivesNoNanToAGradient) {
  const FunctionRef f = Fn({S32(), F64({})}, [](Builder&, const std::vector<Value>& p) {
    using V = std::vector<Value>;
    return Case(p[0],
                {Fn({F64({})}, [](Builder&, const V& v) { return V{v[0]}; }),
                 Fn({F64({})}, [](Builder&, const V& v) { return V{Log(v[0])}; })},
                {p[1]});
  });
  const FunctionRef grad = GradFn(*f, {false, true});
  const FunctionRef batched = Batch(*grad, {0, 0}, 2)->fn;
  const std::vector<double> got =
      Eval1(*batched, {Array::Of(DType::kS32, {2}, {0, 1}), Array::Of(DType::kF64, {2}, {0, 2})});
  EXPECT_THAT(got, ElementsAre(1, 0.5));
}

// The branches share the results of the op that hold residuals of one type: each branch fills them
// with its own.
TEST(Case, ResidualsOfOneTypeAreShared) {
  const Linearized lin = *Linearize(*CaseFn(), {false, true, true});
  size_t results = 0;
  for (const Op& op : lin.forward->ops)
    if (op.def->name == "case") results = op.results.size();
  // These are the two primal results, and the residuals of the branch that has the most.
  EXPECT_GE(results, 3u);
  EXPECT_LE(results, 6u);
}

// Every kind of disagreement between operands and branches is refused with a text that names it.
TEST(Case, OperandsAndResultsOfBranchesMustAgree) {
  const auto status_of = [](const std::vector<Type>& in,
                            const std::vector<FunctionRef>& branches) -> absl::Status {
    return TryFn({}, in,
                 [&](Builder&, const std::vector<Value>& p) {
                   return Case(p[0], branches, absl::MakeConstSpan(p).subspan(1));
                 })
        .status();
  };
  using V = std::vector<Value>;
  const FunctionRef same = Fn({F64({3})}, [](Builder&, const V& v) { return V{v[0]}; });
  const FunctionRef sum =
      Fn({F64({3})}, [](Builder&, const V& v) { return V{ReduceSum(v[0], {0})}; });
  const FunctionRef two = Fn({F64({3})}, [](Builder&, const V& v) { return V{v[0], v[0]}; });
  const absl::Status types = status_of({S32(), F64({3})}, {same, sum});
  EXPECT_THAT(types, ReasonIs("TYPE_ERROR"));
  EXPECT_THAT(std::string(types.message()),
              HasSubstr("branches must have equal output types but they differ: result 0 is "
                        "f64[3] in branch 0 and f64[] in branch 1"));
  EXPECT_THAT(std::string(status_of({S32(), F64({3})}, {same, two}).message()),
              HasSubstr("branch 0 returns 1, branch 1 returns 2"));
  EXPECT_THAT(std::string(status_of({S32(), F64({2})}, {same, same}).message()),
              HasSubstr("operand 0 has type f64[2]; branch 0 takes f64[3]"));
  EXPECT_THAT(std::string(status_of({F64({}), F64({3})}, {same, same}).message()),
              HasSubstr("the index of the branch is f64[]; expected s32[]"));
  EXPECT_THAT(status_of({S32(), F64({3})}, {}), ReasonIs("MALFORMED_PROGRAM"));
}

TEST(Case, BranchesCountAgainstTheLimits) {
  const FunctionRef f = Fn({S32(), F64({})}, [](Builder&, const std::vector<Value>& p) {
    const FunctionRef same = Fn({F64({})}, [](Builder&, const std::vector<Value>& v) { return v; });
    return Case(p[0], std::vector<FunctionRef>(5, same), {p[1]});
  });
  EXPECT_THAT(VerifyFunction(*f, {.values_per_op = 5}), IsOk());
  EXPECT_THAT(VerifyFunction(*f, {.values_per_op = 4}), ReasonIs("LIMIT_EXCEEDED"));
  // A branch without ops counts as one op.
  EXPECT_THAT(VerifyFunction(*f, {.ops = 6}), IsOk());
  EXPECT_THAT(VerifyFunction(*f, {.ops = 5}), ReasonIs("LIMIT_EXCEEDED"));
}

TEST(A10, BranchesThatVaryOverDifferentAxesAreRefusedWithAHint) {
  const Scope scope = MeshScope({{"x", 1, AxisType::kManual}, {"y", 1, AxisType::kManual}});
  const std::vector<Type> in = {Varying(F32({}), {"x"}), Varying(F32({}), {"y"})};
  using V = std::vector<Value>;
  const auto f = TryFn(scope, in, [&](Builder& b, const std::vector<Value>& p) {
    return Case(Constant(b, Int(0)),
                {Fn(scope, in, [](Builder&, const V& v) { return V{v[0]}; }),
                 Fn(scope, in, [](Builder&, const V& v) { return V{v[1]}; })},
                p);
  });
  EXPECT_THAT(f.status(), ReasonIs("TYPE_ERROR"));
  const std::string message(f.status().message());
  EXPECT_THAT(message, HasSubstr("branches must have equal output types"));
  EXPECT_THAT(message, HasSubstr("pcast(..., ('y',), to='varying') to result 0 of branch 0"));
  EXPECT_THAT(message, HasSubstr("pcast(..., ('x',), to='varying') to result 0 of branch 1"));
}

// Returns a function on four devices, in which the devices with an odd index along `i` take branch
// 1.
FunctionRef OddDevicesTakeBranch1(bool exchanges) {
  const Scope outer = MeshScope({{"i", 4, AxisType::kAuto}});
  const Scope inner = MeshScope({{"i", 4, AxisType::kManual}});
  const std::vector<Type> in = {Varying(F64({1}), {"i"})};
  using V = std::vector<Value>;
  const FunctionRef same = Fn(inner, in, [](Builder&, const V& v) { return V{v[0]}; });
  const FunctionRef other = Fn(inner, in, [&](Builder&, const V& v) {
    return V{exchanges ? Pvary(Psum(v[0], {"i"}), {"i"}) : -v[0]};
  });
  const FunctionRef body = Fn(inner, in, [&](Builder& b, const V& v) {
    const Value i = AxisIndex(b, {"i"});
    return Case(And(i, FullLike(i, 1)), {same, other}, v);
  });
  const PartitionSpec on_i{{{"i"}}, {}, {}, {}};
  return Fn(outer, {F64({4})}, [&](Builder& b, const V& v) {
    return ManualComputation(b, body, v, {on_i}, {on_i}, {"i"});
  });
}

TEST(Case, DevicesMayTakeDifferentBranches) {
  const Array x = Array::Of(DType::kF64, {4}, {1, 2, 3, 4});
  EXPECT_THAT(Eval1(*OddDevicesTakeBranch1(false), {x}), ElementsAre(1, -2, 3, -4));
}

TEST(Case, ABranchThatSomeDevicesTakeMayNotExchangeWithTheOthers) {
  const Array x = Array::Of(DType::kF64, {4}, {1, 2, 3, 4});
  const absl::Status status = Evaluate(*OddDevicesTakeBranch1(true), {x}).status();
  EXPECT_THAT(status, ReasonIs("VALUE_ERROR"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("it runs another branch"));
}

}  // namespace
}  // namespace tessera::ir
