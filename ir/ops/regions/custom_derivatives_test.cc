// The ops custom_jvp_call, custom_vjp_call and custom_lin: that the function runs, that derivatives
// follow the user's rules under every transform, and that rules which do not fit are refused. Some
// rules are wrong on purpose, so that a test can see whether the rule was used.
#include <cmath>
#include <limits>

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

Array F64s(const std::vector<double>& values) {
  return Array::Of(DType::kF64, {static_cast<int64_t>(values.size())}, values);
}
int CountNamed(const Function& f, std::string_view name) {
  int n = 0;
  for (const Op& op : f.ops) {
    n += op.def->name == name;
    for (const FunctionRef& region : op.regions) n += CountNamed(*region, name);
  }
  return n;
}

// ---- custom_jvp_call. ----

// Product returns the function (x, y, n) -> (x y, n + 1), and ProductRule its JVP rule. The rule is
// right. It contains a sine, which the derivative of the function itself does not, so that tests
// can see which of the two a program contains.
FunctionRef Product() {
  return Fn({F64({3}), F64({3}), MakeType(DType::kS32, {})}, [](Builder& b, const V& v) {
    return V{v[0] * v[1], v[2] + Constant(b, DType::kS32, 1)};
  });
}
FunctionRef ProductRule() {
  const std::vector<Type> in = {F64({3}), F64({3}), MakeType(DType::kS32, {}), F64({3}), F64({3})};
  return Fn(in, [](Builder& b, const V& v) {
    const Value one = Sin(v[0]) * Sin(v[0]) + Cos(v[0]) * Cos(v[0]);
    return V{v[0] * v[1], v[2] + Constant(b, DType::kS32, 1), one * (v[3] * v[1] + v[0] * v[4])};
  });
}
// Returns the function (x, y, n) -> (cos(x y), n + 1), which calls Product with its rule.
FunctionRef FnCallingProduct() {
  return Fn({F64({3}), F64({3}), MakeType(DType::kS32, {})}, [](Builder& b, const V& v) {
    const V out = CustomJvpCall(b, Product(), ProductRule(), v, 0);
    return V{Cos(out[0]), out[1]};
  });
}

TEST(CustomJvp, Derivatives) { CheckDerivatives(*FnCallingProduct(), 2, 1e-5); }

// Square returns f(x) = x^2. SquareWithWrongRule calls it with a rule that gives the wrong tangent
// 10 dx + x.
FunctionRef Square() {
  return Fn({F64({2})}, [](Builder&, const V& v) { return V{v[0] * v[0]}; });
}
FunctionRef SquareWithWrongRule() {
  return Fn({F64({2})}, [](Builder& b, const V& v) {
    const FunctionRef rule = Fn({F64({2}), F64({2})}, [](Builder&, const V& p) {
      return V{p[0] * p[0], p[1] * FullLike(p[1], 10) + p[0]};
    });
    return CustomJvpCall(b, Square(), rule, v, 0);
  });
}

TEST(CustomJvp, RunsTheFunctionAndDifferentiatesByTheRule) {
  const FunctionRef f = SquareWithWrongRule();
  EXPECT_THAT(Eval1(*f, {F64s({2, 3})}), ElementsAre(4, 9));
  const JvpResult jvp = *Jvp(*f, {true});
  EXPECT_THAT(Eval(*jvp.fn, {F64s({2, 3}), F64s({1, 2})})[1].ToDoubles(), ElementsAre(12, 23));
}

TEST(CustomJvp, AbsentTangentsAreZerosForTheRule) {
  const JvpResult jvp = *Jvp(*FnCallingProduct(), {true, false, false});
  const std::vector<Array> args = {F64s({1, 2, 3}), F64s({4, 5, 6}),
                                   Array::ScalarInt(DType::kS32, 7)};
  const std::vector<Array> both = {F64s({1, 1, 1}), F64s({0, 0, 0})};
  const JvpResult all = *Jvp(*FnCallingProduct(), {true, true, false});
  EXPECT_EQ(Eval(*jvp.fn, Cat(args, {both[0]}))[2].ToDoubles(),
            Eval(*all.fn, Cat(args, both))[2].ToDoubles());
  EXPECT_THAT(jvp.out_active, ElementsAre(true, false));
}

TEST(CustomJvp, Batches) {
  CheckBatch(*FnCallingProduct(), {0, -1, -1});
  CheckBatch(*FnCallingProduct(), {1, 0, 0});
  CheckBatch(*FnCallingProduct(), {-1, -1, 0});
  // The rule is batched with its function, and the derivative of the batch uses it.
  const FunctionRef batched = Batch(*SquareWithWrongRule(), {1}, 3)->fn;
  const JvpResult jvp = *Jvp(*batched, {true});
  const Array x = Array::Of(DType::kF64, {2, 3}, {1, 2, 3, 4, 5, 6});
  const Array ones = Array::Of(DType::kF64, {2, 3}, {1, 1, 1, 1, 1, 1});
  // The batch dim has moved to the front.
  EXPECT_THAT(Eval(*jvp.fn, {x, ones})[1].ToDoubles(), ElementsAre(11, 14, 12, 15, 13, 16));
}

TEST(CustomJvp, NestedTransforms) {
  CheckDerivatives(*Batch(*FnCallingProduct(), {0, -1, -1}, 3)->fn, 1, 1e-5);
  const FunctionRef vjp = VjpFn(*FnCallingProduct(), {true, true, false});
  CheckBatch(*vjp, {0, -1, -1, 0});
}

TEST(CustomJvp, TheRuleIsUsedInEveryStepOfAScan) {
  const FunctionRef f = Fn({F64({2})}, [](Builder& b, const V& v) {
    const FunctionRef body =
        Fn({F64({2})}, [](Builder& c, const V& p) { return Inline(c, *SquareWithWrongRule(), p); });
    return Scan(b, body, v, 0, 1, 2);
  });
  const JvpResult jvp = *Jvp(*f, {true});
  // At x = 2 the tangent is 10 + 2 = 12, and x becomes 4. Then the tangent is 120 + 4, and x
  // becomes 16.
  EXPECT_THAT(Eval(*jvp.fn, {F64s({2, 2}), F64s({1, 1})})[1].ToDoubles(), ElementsAre(124, 124));
}

TEST(CustomJvp, ATransposeUsesTheFunctionNotTheRule) {
  const FunctionRef f = Fn({F64({2}), F64({2})}, [](Builder& b, const V& v) {
    return CustomJvpCall(
        b, Fn({F64({2}), F64({2})}, [](Builder&, const V& p) { return V{p[0] * p[1]}; }),
        Fn({F64({2}), F64({2}), F64({2}), F64({2})},
           [](Builder&, const V& p) {
             return V{p[0] * p[1], p[2] + p[3]};
           }),
        v, 0);
  });
  const FunctionRef transposed = *TransposeFunction(*f, {false, true});
  EXPECT_THAT(Eval1(*transposed, {F64s({2, 3}), F64s({10, 100})}), ElementsAre(20, 300));
}

// f(x, y) = x y has the rule dx log y + dy x / y, which is wrong on purpose. At (1, 0) the tangent
// by x alone is minus infinity, by y alone it is infinity, and by both it is NaN.
TEST(CustomJvp, SymbolicZerosLeaveOutTermsOfAbsentTangents) {
  const auto f = [](bool symbolic_zeros) {
    return Fn({F64({1}), F64({1})}, [=](Builder& b, const V& v) {
      const FunctionRef product =
          Fn({F64({1}), F64({1})}, [](Builder&, const V& p) { return V{p[0] * p[1]}; });
      const FunctionRef rule =
          Fn({F64({1}), F64({1}), F64({1}), F64({1})}, [](Builder&, const V& p) {
            const Value by_x = p[2] * Log(p[1]);
            const Value by_y = p[3] * (p[0] / p[1]);
            return V{p[0] * p[1], by_x + by_y};
          });
      return b.Emit(*FindOp("custom_jvp_call"), v,
                    {{"num_consts", int64_t{0}}, {"symbolic_zeros", symbolic_zeros}},
                    {product, rule});
    });
  };
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const auto tangent = [&](bool symbolic_zeros, std::vector<bool> active) {
    const JvpResult jvp = *Jvp(*f(symbolic_zeros), active);
    std::vector<Array> in = {F64s({1}), F64s({0})};
    for (const bool on : active)
      if (on) in.push_back(F64s({1}));
    return Eval(*jvp.fn, in)[1].ToDoubles()[0];
  };
  EXPECT_EQ(tangent(true, {true, false}), -kInf);
  EXPECT_EQ(tangent(true, {false, true}), kInf);
  EXPECT_TRUE(std::isnan(tangent(true, {true, true})));
  EXPECT_TRUE(std::isnan(tangent(false, {true, false})));
}

TEST(CustomJvp, ACapturedValueHasNoDerivative) {
  const FunctionRef f = Fn({F64({2})}, [](Builder& b, const V& v) {
    const FunctionRef rule = Fn({F64({2})}, [](Builder&, const V& p) {
      return V{p[0] * p[0], p[0]};
    });
    return CustomJvpCall(b, Square(), rule, v, /*num_consts=*/1);
  });
  const absl::Status status = Jvp(*f, {true}).status();
  EXPECT_THAT(status, ReasonIs("NOT_IMPLEMENTED"));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("Detected differentiation of a custom_jvp function with respect to a "
                        "closed-over value."));
}

absl::Status JvpCallStatus(const FunctionRef& f, const FunctionRef& rule, int num_consts = 0) {
  return TryFn({}, {F64({2})},
               [&](Builder& b, const V& v) { return CustomJvpCall(b, f, rule, v, num_consts); })
      .status();
}

// Each way in which a JVP rule may not fit its function is refused, with JAX's words.
TEST(CustomJvp, TheRuleMustFitTheFunction) {
  const FunctionRef same = Fn({F64({2})}, [](Builder&, const V& v) { return v; });
  const auto rule = [](const Body& body) { return Fn({F64({2}), F64({2})}, body); };
  EXPECT_THAT(JvpCallStatus(same, rule([](Builder&, const V& v) { return v; })), IsOk());
  const absl::Status tangent = JvpCallStatus(same, rule([](Builder&, const V& v) {
                                               return V{v[0], ReduceSum(v[1], {0})};
                                             }));
  EXPECT_THAT(tangent, ReasonIs("TYPE_ERROR"));
  EXPECT_THAT(std::string(tangent.message()),
              HasSubstr("Custom JVP rule must produce primal and tangent outputs with "
                        "corresponding shapes and dtypes. Expected f64[2] for tangent 0 but got "
                        "f64[]"));
  EXPECT_THAT(std::string(JvpCallStatus(same, rule([](Builder&, const V& v) {
                                          return V{ReduceSum(v[0], {0}), v[1]};
                                        }))
                              .message()),
              HasSubstr("Expected f64[2] for result 0 but got f64[]"));
  EXPECT_THAT(
      std::string(
          JvpCallStatus(same, rule([](Builder&, const V& v) { return V{v[0]}; })).message()),
      HasSubstr("must produce the 1 results and 1 tangents, but got 1 values"));
  EXPECT_THAT(std::string(JvpCallStatus(same, same).message()),
              HasSubstr("region 1 takes 1 params, the op has 2 operands for it"));
  EXPECT_THAT(std::string(JvpCallStatus(same, Fn({F64({2}), F64({})},
                                                 [](Builder&, const V& v) {
                                                   return V{v[0], v[0]};
                                                 }))
                              .message()),
              HasSubstr("param 1 of the JVP rule has type f64[]; expected f64[2]"));
  EXPECT_THAT(std::string(JvpCallStatus(same, same, 2).message()),
              HasSubstr("num_consts=2 does not fit 1 operands"));
  EXPECT_THAT(JvpCallStatus(same, same, -1), ReasonIs("VALUE_ERROR"));
}

// ---- custom_vjp_call. ----

// Returns the function (x, y, n) -> (x y, n), its fwd rule with the residuals x and y, and its bwd
// rule. The rules are right.
std::vector<FunctionRef> ProductVjp() {
  const std::vector<Type> in = {F64({3}), F64({3}), MakeType(DType::kS32, {})};
  return {Fn(in,
             [](Builder&, const V& v) {
               return V{v[0] * v[1], v[2]};
             }),
          Fn(in,
             [](Builder&, const V& v) {
               return V{v[0] * v[1], v[2], v[0], v[1]};
             }),
          Fn({F64({3}), F64({3}), F64({3})}, [](Builder&, const V& v) {
            return V{v[2] * v[1], v[2] * v[0]};
          })};
}
FunctionRef FnCallingProductVjp() {
  return Fn({F64({3}), F64({3}), MakeType(DType::kS32, {})}, [](Builder& b, const V& v) {
    const std::vector<FunctionRef> fns = ProductVjp();
    const V out = CustomVjpCall(b, fns[0], fns[1], fns[2], v, 0);
    return V{Cos(out[0]), out[1]};
  });
}
// Returns the sum of x, whose rule gives the wrong gradient 10 x.
FunctionRef SumWithWrongRule() {
  return Fn({F64({2})}, [](Builder& b, const V& v) {
    return CustomVjpCall(
        b, Fn({F64({2})}, [](Builder&, const V& p) { return V{ReduceSum(p[0], {0})}; }),
        Fn({F64({2})},
           [](Builder&, const V& p) {
             return V{ReduceSum(p[0], {0}), p[0] * FullLike(p[0], 10)};
           }),
        Fn({F64({2}), F64({})},
           [](Builder&, const V& p) { return V{p[0] * BroadcastInDim(p[1], {2}, {})}; }),
        v, 0);
  });
}

TEST(CustomVjp, Derivatives) { CheckDerivatives(*FnCallingProductVjp(), 2, 1e-5); }

TEST(CustomVjp, RunsTheFunctionAndTakesTheGradientFromTheRules) {
  const FunctionRef f = SumWithWrongRule();
  EXPECT_THAT(Eval1(*f, {F64s({2, 3})}), ElementsAre(5));
  EXPECT_THAT(Eval1(*GradFn(*f, {true}), {F64s({2, 3})}), ElementsAre(20, 30));
  // The gradient is itself differentiated through fwd and bwd.
  const FunctionRef second = Fn({F64({2})}, [&](Builder& b, const V& v) {
    const V g = Inline(b, *GradFn(*f, {true}), v);
    return V{ReduceSum(g[0] * g[0], {0})};
  });
  EXPECT_THAT(Eval1(*GradFn(*second, {true}), {F64s({2, 3})}), ElementsAre(400, 600));
}

TEST(CustomVjp, Batches) {
  CheckBatch(*FnCallingProductVjp(), {0, -1, -1});
  CheckBatch(*FnCallingProductVjp(), {1, 0, 0});
  CheckBatch(*FnCallingProductVjp(), {-1, -1, 0});
}

TEST(CustomVjp, NestedTransforms) {
  // If the whole batch shares an argument, its cotangent is a sum over the batch.
  for (const std::vector<int>& dims :
       {std::vector<int>{0, -1, -1}, {-1, 1, -1}, {1, 0, -1}, {0, 0, 0}})
    CheckDerivatives(*Batch(*FnCallingProductVjp(), dims, 3)->fn, 1, 1e-5);
  const FunctionRef vjp = VjpFn(*FnCallingProductVjp(), {true, true, false});
  CheckBatch(*vjp, {0, -1, -1, 0});
}

TEST(CustomVjp, WorksInACheckpointInAScan) {
  const FunctionRef f = Fn({F64({2})}, [](Builder& b, const V& v) {
    // x <- x + sum(x), where the rule gives 10 x for the sum, has the gradient g + 10 x sum(g).
    const FunctionRef body = Fn({F64({2})}, [](Builder& c, const V& p) {
      const FunctionRef step = Fn({F64({2})}, [](Builder& d, const V& q) {
        const Value sum = Inline(d, *SumWithWrongRule(), q)[0];
        return V{q[0] + BroadcastInDim(sum, {2}, {})};
      });
      return Checkpoint(c, step, p);
    });
    return V{ReduceSum(Scan(b, body, v, 0, 1, 2)[0], {0})};
  });
  // x0 = (1, 2), x1 = (4, 5); g1 = 1 + 10 x1 * 2 = (81, 101), g0 = g1 + 10 x0 * 182.
  EXPECT_THAT(Eval1(*GradFn(*f, {true}), {F64s({1, 2})}), ElementsAre(81 + 1820, 101 + 3640));
}

TEST(CustomVjp, ForwardModeCannotBePlanned) {
  const FunctionRef f = SumWithWrongRule();
  const JvpResult jvp = *Jvp(*f, {true});
  const absl::Status status = DropRules(jvp.fn).status();
  EXPECT_THAT(status, ReasonIs("TYPE_ERROR"));
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr("can't apply forward-mode differentiation (jvp) to a custom_vjp function."));
  for (const absl::Status& refusal :
       {Jvp(*jvp.fn, {true, true}).status(), Batch(*jvp.fn, {0, 0}, 3).status()})
    EXPECT_THAT(std::string(refusal.message()),
                HasSubstr("can't apply forward-mode differentiation (jvp)"));
  // The gradient contains no op of forward mode.
  EXPECT_THAT(DropRules(GradFn(*f, {true})), IsOk());
}

// Each way in which a fwd or bwd rule may not fit the function is refused, with JAX's words.
TEST(CustomVjp, RulesMustFitTheFunction) {
  const auto status_of = [](const FunctionRef& f, const FunctionRef& fwd, const FunctionRef& bwd) {
    return TryFn({}, {F64({2})},
                 [&](Builder& b, const V& v) { return CustomVjpCall(b, f, fwd, bwd, v, 0); })
        .status();
  };
  const FunctionRef same = Fn({F64({2})}, [](Builder&, const V& v) { return v; });
  const FunctionRef sum =
      Fn({F64({2})}, [](Builder&, const V& v) { return V{ReduceSum(v[0], {0})}; });
  const FunctionRef none = Fn({F64({2})}, [](Builder&, const V&) { return V{}; });
  EXPECT_THAT(status_of(same, same, same), IsOk());
  EXPECT_THAT(std::string(status_of(same, sum, same).message()),
              HasSubstr("Custom VJP fwd rule must produce primal outputs of the function's types. "
                        "Expected f64[2] for result 0 but got f64[]"));
  EXPECT_THAT(std::string(status_of(same, none, same).message()),
              HasSubstr("must produce the 1 results, then residuals, but got 0 values"));
  const absl::Status cotangent = status_of(same, same, sum);
  EXPECT_THAT(cotangent, ReasonIs("VALUE_ERROR"));
  EXPECT_THAT(std::string(cotangent.message()),
              HasSubstr("Custom VJP bwd rule must produce an output with the same type as the args "
                        "tuple of the primal function, but at output 0 the bwd rule produced an "
                        "output of type f64[] corresponding to an input of type f64[2]"));
  EXPECT_THAT(std::string(status_of(same, same, none).message()),
              HasSubstr("must produce the 1 cotangents of the args, but got 0 values"));
  EXPECT_THAT(std::string(status_of(sum, sum, same).message()),
              HasSubstr("param 0 of the bwd rule has type f64[2]; expected f64[]"));
}

TEST(CustomVjp, CotangentsMustVaryAsTheirArguments) {
  const Scope scope = MeshScope({{"x", 2, AxisType::kManual}});
  const std::vector<Type> in = {Varying(F64({2}), {"x"})};
  const auto f = TryFn(scope, in, [&](Builder& b, const V& p) {
    const FunctionRef same = Fn(scope, in, [](Builder&, const V& v) { return v; });
    const FunctionRef bwd =
        Fn(scope, in, [](Builder& c, const V&) { return V{Full(c, F64({2}), 1)}; });
    return CustomVjpCall(b, same, same, bwd, p, 0);
  });
  EXPECT_THAT(
      std::string(f.status().message()),
      HasSubstr("This might be fixed by applying pcast(..., ('x',), to='varying') to output "
                "0 of the bwd rule"));
}

// ---- The program that is run. ----

TEST(DropRules, LeavesOnlyTheFunction) {
  const FunctionRef f = Fn({F64({3}), F64({3})}, [](Builder& b, const V& v) {
    const FunctionRef body = Fn({F64({3}), F64({3})}, [](Builder& c, const V& p) {
      const Value n = Constant(c, DType::kS32, 1);
      const FunctionRef within = Fn(
          {F64({3}), F64({3}), MakeType(DType::kS32, {})},
          [](Builder& d, const V& q) { return CustomJvpCall(d, Product(), ProductRule(), q, 0); });
      return V{Call(c, within, {p[0], p[1], n})[0]};
    });
    return Scan(b, body, v, 1, 1, 3);
  });
  EXPECT_EQ(CountNamed(*f, "custom_jvp_call"), 1);
  EXPECT_GT(CountNamed(*f, "sine"), 0);
  const FunctionRef plain = *DropRules(f);
  EXPECT_EQ(CountNamed(*plain, "custom_jvp_call"), 0);
  EXPECT_EQ(CountNamed(*plain, "sine"), 0);
  const std::vector<Array> args = RandomArgs(f->param_types(), 1);
  EXPECT_EQ(Eval1(*plain, args), Eval1(*f, args));
  EXPECT_EQ(plain->result_types(), f->result_types());
  // A function without rules is returned as it is.
  EXPECT_EQ(*DropRules(plain), plain);
}

TEST(Dce, AnOpWithRulesStaysWhole) {
  const FunctionRef f =
      Fn({F64({3}), F64({3}), MakeType(DType::kS32, {})}, [](Builder& b, const V& v) {
        const std::vector<FunctionRef> fns = ProductVjp();
        return V{CustomVjpCall(b, fns[0], fns[1], fns[2], v, 0)[0]};
      });
  const FunctionRef kept = Dce(*f);
  EXPECT_THAT(VerifyFunction(*kept, {}), IsOk());
  const std::vector<Array> args = RandomArgs(f->param_types(), 1);
  EXPECT_EQ(Eval1(*kept, args), Eval1(*f, args));
  CheckDerivatives(*kept);
}

TEST(Rescope, TypesOfRulesFollowTheOperands) {
  const Scope scope = MeshScope({{"x", 2, AxisType::kManual}});
  const Type x = Varying(F64({3}), {"x"}), n = Varying(MakeType(DType::kS32, {}), {"x"});
  for (const FunctionRef& f : {FnCallingProduct(), FnCallingProductVjp()}) {
    TESSERA_ASSERT_OK_AND_ASSIGN(const FunctionRef g, Rescope(*f, scope, {x, x, n}));
    EXPECT_EQ(g->result_types()[0].varying, AxisSet{"x"});
    EXPECT_THAT(VerifyFunction(*g, {}), IsOk());
    EXPECT_THAT(Linearize(*g, {true, true, false}), IsOk());
  }
}

}  // namespace
}  // namespace tessera::ir
