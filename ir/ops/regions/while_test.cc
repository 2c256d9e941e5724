// The op while: results and tangents against a scan of as many steps, partial evaluation, batching,
// types, devices that run different numbers of iterations, and cancellation.
#include "ir/transform/testing/transform_checks.h"
#include "ir/transform/transform.h"

namespace tessera::ir {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): helpers of tests
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using V = std::vector<Value>;

Type S32() { return MakeType(DType::kS32, {}); }
Array Int(int64_t i) { return Array::ScalarInt(DType::kS32, i); }
Value Plus(Value x, double y) { return x + FullLike(x, y); }

// Counted is the loop (limit, c; i, x) -> (i + 1, sin(x) c + x) while i < limit.
FunctionRef Predicate() {
  return Fn({S32(), S32(), F64({3})},
            [](Builder&, const V& v) { return V{Compare(v[1], v[0], "LT")}; });
}
FunctionRef Step() {
  return Fn({F64({3}), S32(), F64({3})}, [](Builder&, const V& v) {
    return V{Plus(v[1], 1), Sin(v[2]) * v[0] + v[2]};
  });
}
FunctionRef Counted() {
  return Fn({S32(), F64({3}), S32(), F64({3})},
            [](Builder& b, const V& p) { return While(b, Predicate(), Step(), p, 1, 1); });
}
// Returns the same computation as a scan of `n` steps.
FunctionRef Scanned(int64_t n) {
  return Fn({F64({3}), S32(), F64({3})},
            [n](Builder& b, const V& p) { return Scan(b, Step(), p, 1, 2, n); });
}

TEST(While, RunsForAsLongAsThePredicateHolds) {
  const Array c = Array::Of(DType::kF64, {3}, {1, 2, 3}),
              x = Array::Of(DType::kF64, {3}, {3, 2, 1});
  for (int64_t n : {0, 1, 5}) {
    const auto got = Eval(*Counted(), {Int(n), c, Int(0), x});
    ExpectNear(got, Eval(*Scanned(n), {c, Int(0), x}), 0, "the scan");
    EXPECT_EQ(got[0].IntAt(0), n);
  }
  // The predicate does not hold before the first iteration.
  EXPECT_EQ(Eval(*Counted(), {Int(-2), c, Int(0), x})[1], x);
}

TEST(While, TangentsAreThoseOfAScan) {
  const FunctionRef loop = Jvp(*Counted(), {false, true, false, true})->fn;
  const FunctionRef scan = Jvp(*Scanned(4), {true, false, true})->fn;
  const auto x = RandomArgs({F64({3}), F64({3}), F64({3}), F64({3})}, 1);
  ExpectNear(Eval(*loop, {Int(4), x[0], Int(0), x[1], x[2], x[3]}),
             Eval(*scan, {x[0], Int(0), x[1], x[2], x[3]}), 1e-12, "the scan's");
}

// One carry starts without a tangent and gets one from another carry.
TEST(While, ActiveCarriesReachAFixpoint) {
  const std::vector<Type> carry = {S32(), F64({}), F64({}), F64({})};
  const FunctionRef predicate =
      Fn(carry, [](Builder&, const V& v) { return V{Compare(v[0], FullLike(v[0], 4), "LT")}; });
  const FunctionRef step = Fn(carry, [](Builder&, const V& v) {
    return V{Plus(v[0], 1), Sin(v[2]), v[3] * v[1], v[3]};
  });
  const FunctionRef f = Fn({F64({}), F64({})}, [&](Builder& b, const V& p) {
    return While(b, predicate, step,
                 {Constant(b, Int(0)), Constant(b, DType::kF64, 0.3), p[0], p[1]}, 0, 0);
  });
  const FunctionRef g = Fn({F64({}), F64({})}, [&](Builder& b, const V& p) {
    return Scan(b, step, {Constant(b, Int(0)), Constant(b, DType::kF64, 0.3), p[0], p[1]}, 0, 4, 4);
  });
  const auto x = RandomArgs({F64({}), F64({}), F64({}), F64({})}, 1);
  ExpectNear(Eval(*Jvp(*f, {true, true})->fn, x), Eval(*Jvp(*g, {true, true})->fn, x), 1e-12,
             "the scan's");
}

// The known part of the loop runs once, and the part that depends on a tangent runs the whole loop
// again.
TEST(While, LinearizesToALoopThatRunsAgain) {
  const FunctionRef f = Counted();
  const std::vector<bool> active = {false, true, false, true};
  const Linearized lin = *Linearize(*f, active);
  const auto x = RandomArgs(f->param_types(), 1), t = RandomArgs({F64({3}), F64({3})}, 2);
  const std::vector<Array> forward = Eval(*lin.forward, x);
  ExpectNear({forward.begin(), forward.begin() + 2}, Eval(*f, x), 0, "the primal");
  std::vector<Array> args(forward.end() - lin.num_residuals, forward.end());
  args.insert(args.end(), t.begin(), t.end());
  const std::vector<Array> jvp = Eval(*Jvp(*f, active)->fn, Cat(x, t));
  ExpectNear(Eval(*lin.linear, args), {jvp.begin() + 2, jvp.end()}, 1e-12, "the tangent");
}

TEST(While, ReverseModeIsRefused) {
  const Linearized lin = *Linearize(*Counted(), {false, true, false, true});
  std::vector<bool> linear(lin.linear->num_params, true);
  std::fill_n(linear.begin(), lin.num_residuals, false);
  const absl::Status status = TransposeFunction(*lin.linear, linear).status();
  EXPECT_THAT(status, ReasonIs("NOT_IMPLEMENTED"));
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr("for 'while_loop' not implemented: Reverse-mode differentiation does not work"));
}

// A gradient passes beside a loop that no tangent enters.
TEST(While, ALoopOverKnownValuesIsKnown) {
  const std::vector<Type> carry = {S32(), F64({})};
  const FunctionRef predicate =
      Fn(carry, [](Builder&, const V& v) { return V{Compare(v[0], FullLike(v[0], 4), "LT")}; });
  const FunctionRef step = Fn(carry, [](Builder&, const V& v) {
    return V{Plus(v[0], 1), v[1] + v[1]};
  });
  CheckDerivatives(*Fn({S32(), F64({})}, [&](Builder& b, const V& p) {
    return V{p[1] * While(b, predicate, step, {p[0], Constant(b, DType::kF64, 1)}, 0, 0)[1]};
  }));
}

TEST(While, Batches) {
  const FunctionRef f = Counted();
  CheckBatch(*f, {-1, -1, -1, 0});
  CheckBatch(*f, {-1, 1, -1, -1});
  CheckBatch(*f, {0, -1, -1, 1});  // members end in different iterations
  CheckBatch(*f, {-1, -1, 0, -1});
  CheckBatch(*f, {0, 0, 0, 0});
}

TEST(While, NestedTransforms) {
  const FunctionRef f = Counted();
  const FunctionRef jvp = Jvp(*f, {false, true, false, true})->fn;
  CheckBatch(*jvp, {0, -1, -1, 1, -1, 0});
  // Both the predicate and the body contain a loop.
  const std::vector<Type> carry = {S32(), F64({3}), S32(), F64({3})};
  const FunctionRef inner_holds = Fn(carry, [&](Builder& b, const V& v) {
    return V{Compare(Call(b, f, v)[0], FullLike(v[0], 5), "LT")};
  });
  const FunctionRef inner_step = Fn(carry, [&](Builder& b, const V& v) {
    const V out = Call(b, f, v);
    return V{Plus(v[0], 1), v[1], v[2], out[1]};
  });
  CheckBatch(*Fn(carry, [&](Builder& b,
                            const V& p) { return While(b, inner_holds, inner_step, p, 0, 0); }),
             {0, -1, -1, 0});
}

TEST(While, TypesMustAgree) {
  const auto error_of = [](const FunctionRef& predicate, const FunctionRef& body) {
    return std::string(
        TryFn({}, {F64({3})},
              [&](Builder& b, const V& p) { return While(b, predicate, body, p, 0, 0); })
            .status()
            .message());
  };
  const FunctionRef same = Fn({F64({3})}, [](Builder&, const V& v) { return v; });
  const FunctionRef sum =
      Fn({F64({3})}, [](Builder&, const V& v) { return V{ReduceSum(v[0], {0})}; });
  const FunctionRef holds = Fn({F64({3})}, [](Builder&, const V& v) {
    return V{Compare(ReduceSum(v[0], {0}), FullLike(ReduceSum(v[0], {0}), 0), "GT")};
  });
  EXPECT_THAT(error_of(same, same),
              HasSubstr("cond_fun must return a boolean scalar, but got f64[3]"));
  EXPECT_THAT(error_of(holds, sum),
              HasSubstr("while_loop body function carry input and carry output must have equal "
                        "types, but they differ: carry[0] has type f64[3] on input and f64[]"));
  const FunctionRef two = Fn({F64({3})}, [](Builder&, const V& v) { return V{v[0], v[0]}; });
  EXPECT_THAT(error_of(holds, two), HasSubstr("the 1 carries, but returns 2 values"));
}

// Device d runs d iterations.
TEST(While, DevicesMayRunDifferentNumbersOfIterations) {
  const Scope outer = MeshScope({{"i", 4, AxisType::kAuto}});
  const Scope inner = MeshScope({{"i", 4, AxisType::kManual}});
  const std::vector<Type> carry = {Varying(S32(), {"i"}), Varying(F64({1}), {"i"})};
  const FunctionRef holds = Fn(
      inner, carry, [](Builder&, const V& v) { return V{Compare(v[0], FullLike(v[0], 0), "GT")}; });
  const FunctionRef step = Fn(inner, carry, [](Builder&, const V& v) {
    return V{Plus(v[0], -1), v[1] + v[1]};
  });
  const FunctionRef body = Fn(inner, {carry[1]}, [&](Builder& b, const V& v) {
    return V{While(b, holds, step, {AxisIndex(b, {"i"}), v[0]}, 0, 0)[1]};
  });
  const PartitionSpec on_i{{{"i"}}, {}, {}, {}};
  const FunctionRef f = Fn(outer, {F64({4})}, [&](Builder& b, const V& v) {
    return ManualComputation(b, body, v, {on_i}, {on_i}, {"i"});
  });
  EXPECT_THAT(Eval1(*f, {Array::Of(DType::kF64, {4}, {1, 1, 1, 1})}), ElementsAre(1, 2, 4, 8));
}

TEST(While, AnEndlessLoopIsCancelled) {
  const FunctionRef always = Fn({S32()}, [](Builder& b, const V&) {
    return V{Constant(b, Array::Of(DType::kBool, {}, {1}))};
  });
  const FunctionRef same = Fn({S32()}, [](Builder&, const V& v) { return v; });
  const FunctionRef f =
      Fn({S32()}, [&](Builder& b, const V& p) { return While(b, always, same, p, 0, 0); });
  int polls = 0;
  EvalOptions options;
  options.check_cancel = [&] {
    return ++polls > 1000 ? absl::CancelledError("enough") : absl::OkStatus();
  };
  EXPECT_EQ(Evaluator(options).Run(*f, {Int(0)}).status().message(), "enough");
}

}  // namespace
}  // namespace tessera::ir
