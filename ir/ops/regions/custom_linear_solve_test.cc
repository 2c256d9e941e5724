// The op custom_linear_solve: implicit derivatives, batching and checks of the regions. Most tests
// solve a 2 x 2 system whose solver is a formula; one has a solver with a loop, which could not be
// differentiated itself.
#include "ir/op_def.h"
#include "ir/registry.h"
#include "ir/transform/testing/transform_checks.h"
#include "ir/transform/transform.h"
#include "ir/verify.h"

namespace tessera::ir {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): helpers of tests
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using V = std::vector<Value>;

// Returns a function of a0, a1, and the two elements of a vector.
FunctionRef OnPair(const std::function<V(Value a0, Value a1, Value x0, Value x1)>& body) {
  return Fn({F64({}), F64({}), F64({}), F64({})},
            [&](Builder&, const V& v) { return body(v[0], v[1], v[2], v[3]); });
}
// Returns the functions of the system with A = [[a0, a1], [0, a1]], which is not symmetric. The
// solutions of A x = b and of the transposed equation are in closed form.
LinearSolveFns SolverFns(bool with_transpose = true) {
  LinearSolveFns fns;
  fns.matvec = OnPair([](Value a, Value c, Value x, Value y) { return V{a * x + c * y, c * y}; });
  fns.solve = OnPair([](Value a, Value c, Value x, Value y) { return V{(x - y) / a, y / c}; });
  if (!with_transpose) return fns;
  fns.transpose_matvec = OnPair([](Value a, Value c, Value x, Value y) {
    return V{a * x, c * x + c * y};
  });
  fns.transpose_solve = OnPair([](Value a, Value c, Value x, Value y) {
    return V{x / a, y / c - x / a};
  });
  return fns;
}
// Returns a function (a0, a1, b0, b1) -> (sin(x0), x1), where x is the solution for the constants
// exp(a0) and exp(a1), which are never zero.
FunctionRef SolvingFn(bool with_transpose = true) {
  return OnPair([&](Value a, Value c, Value x, Value y) {
    const Value a2 = Exp(a), c2 = Exp(c);
    const V out = CustomLinearSolve(a.builder(), SolverFns(with_transpose), {a2, c2, x, y}, 2);
    return V{Sin(out[0]), out[1]};
  });
}

TEST(CustomLinearSolve, Derivatives) { CheckDerivatives(*SolvingFn(), 2, 1e-4); }

TEST(CustomLinearSolve, IsLinearInB) {
  const FunctionRef f = OnPair([](Value a, Value c, Value x, Value y) {
    return CustomLinearSolve(a.builder(), SolverFns(), {a, c, x, y}, 2);
  });
  const FunctionRef transposed = *TransposeFunction(*f, {false, false, true, true});
  const auto scalar = [](double x) { return Array::Scalar(DType::kF64, x); };
  const std::vector<Array> got = Eval(*transposed, {scalar(2), scalar(4), scalar(6), scalar(8)});
  EXPECT_THAT(got[0].ToDoubles(), ElementsAre(3));   // 6 / 2
  EXPECT_THAT(got[1].ToDoubles(), ElementsAre(-1));  // 8 / 4 - 6 / 2
  EXPECT_THAT(std::string(TransposeFunction(*f, {true, false, true, true}).status().message()),
              HasSubstr("not linear in operand 0"));
}

TEST(CustomLinearSolve, Batches) {
  CheckBatch(*SolvingFn(), {-1, -1, 0, -1});
  CheckBatch(*SolvingFn(), {0, -1, -1, -1});
  CheckBatch(*SolvingFn(), {0, 0, 0, 0});
}

TEST(CustomLinearSolve, NestedTransforms) {
  CheckDerivatives(*Batch(*SolvingFn(), {0, -1, -1, 0}, 3)->fn, 1, 1e-4);
  CheckBatch(*VjpFn(*SolvingFn(), {true, true, true, true}), {0, -1, 0, -1, 0, -1});
}

// The solver is a `while` that runs until b - a x is small, so it could not be transposed.
TEST(CustomLinearSolve, TheSolverIsNotDifferentiated) {
  const FunctionRef f = Fn({F64({}), F64({})}, [](Builder& b, const V& v) {
    const Type s = F64({});
    LinearSolveFns fns;
    fns.matvec = Fn({s, s}, [](Builder&, const V& p) { return V{p[0] * p[1]}; });
    // x <- x + (b - a x) / 2 as long as |b - a x| > 1e-12.
    fns.solve = Fn({s, s}, [s](Builder& c, const V& p) {
      const FunctionRef going = Fn({s, s, s}, [](Builder&, const V& q) {
        const Value rest = Abs(q[1] - q[0] * q[2]);
        return V{Compare(rest, FullLike(rest, 1e-12), "GT")};
      });
      const FunctionRef step = Fn({s, s, s}, [](Builder&, const V& q) {
        return V{q[2] + FullLike(q[2], 0.5) * (q[1] - q[0] * q[2])};
      });
      return While(c, going, step, {p[0], p[1], p[0], p[1], Zeros(c, s)}, 2, 2);
    });
    fns.transpose_solve = fns.solve;
    fns.transpose_matvec = fns.matvec;
    return CustomLinearSolve(b, fns, v, 1);
  });
  const std::vector<Array> args = {Array::Scalar(DType::kF64, 2), Array::Scalar(DType::kF64, 3)};
  EXPECT_NEAR(Eval1(*f, args)[0], 1.5, 1e-9);
  const std::vector<Array> grad = Eval(*GradFn(*f, {true, true}), args);
  EXPECT_NEAR(grad[0].At(0), -0.75, 1e-9);  // -b / a^2
  EXPECT_NEAR(grad[1].At(0), 0.5, 1e-9);    // 1 / a
}

TEST(CustomLinearSolve, AGradientNeedsTheTransposedSolver) {
  const FunctionRef f = SolvingFn(/*with_transpose=*/false);
  EXPECT_THAT(Jvp(*f, {true, true, true, true}), IsOk());
  const Linearized lin = *Linearize(*f, {true, true, true, true});
  std::vector<bool> linear(lin.linear->num_params, true);
  std::fill_n(linear.begin(), lin.num_residuals, false);
  const absl::Status status = TransposeFunction(*lin.linear, linear).status();
  EXPECT_THAT(status, ReasonIs("TYPE_ERROR"));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("transpose_solve required for backwards mode automatic differentiation of "
                        "custom_linear_solve"));
}

TEST(CustomLinearSolve, RegionsMustFitB) {
  const auto status_of = [](const Type& t, const LinearSolveFns& fns, int num_consts) {
    return TryFn({}, {t},
                 [&](Builder& b, const V& v) { return CustomLinearSolve(b, fns, v, num_consts); })
        .status();
  };
  const Type t = F64({2}), i = MakeType(DType::kS32, {2});
  const FunctionRef same = Fn({t}, [](Builder&, const V& v) { return v; });
  const FunctionRef sum = Fn({t}, [](Builder&, const V& v) { return V{ReduceSum(v[0], {0})}; });
  const FunctionRef two = Fn({t}, [](Builder&, const V& v) { return V{v[0], v[0]}; });
  const FunctionRef ints = Fn({i}, [](Builder&, const V& v) { return v; });
  EXPECT_THAT(status_of(t, {same, same, same, same}, 0), IsOk());
  EXPECT_THAT(std::string(status_of(t, {same, sum, {}, {}}, 0).message()),
              HasSubstr("matvec() output types must match b, got f64[] and f64[2]"));
  EXPECT_THAT(std::string(status_of(t, {same, same, two, same}, 0).message()),
              HasSubstr("transpose_solve() output must match b, got 2 values and 1"));
  EXPECT_THAT(status_of(i, {ints, ints, {}, {}}, 0), ReasonIs("TYPE_ERROR"));
  EXPECT_THAT(status_of(t, {same, same, {}, {}}, 2), ReasonIs("VALUE_ERROR"));
  for (const std::vector<FunctionRef>& regions :
       {std::vector<FunctionRef>{same}, {same, same, same}, {same, same, same, same, same}})
    EXPECT_FALSE(
        InferTypes(*FindOp("custom_linear_solve"), {}, {t}, {{"num_consts", int64_t{0}}}, regions)
            .ok());
}

}  // namespace
}  // namespace tessera::ir
