// Proves the transforms on straight-line code, calls, checkpoints and loops. Derivatives are
// compared with finite differences, batches with loops, and both are nested
// (testing/transform_checks.h).
#include "ir/transform/transform.h"

#include "ir/op_def.h"
#include "ir/text.h"
#include "ir/transform/testing/transform_checks.h"

namespace tessera::ir {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): helpers of tests
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Returns the number of ops called `name`, including those in regions.
int CountNamed(const Function& f, std::string_view name) {
  int n = 0;
  for (const Op& op : f.ops) {
    n += op.def->name == name;
    for (const FunctionRef& r : op.regions) n += CountNamed(*r, name);
  }
  return n;
}
const Op* FirstOpNamed(const Function& f, std::string_view name) {
  for (const Op& op : f.ops)
    if (op.def->name == name) return &op;
  return nullptr;
}

FunctionRef Mlp() {
  return Fn({F64({3, 4}), F64({4, 2}), F64({3})}, [](Builder&, const std::vector<Value>& p) {
    const Value h = Tanh(Matmul2D(p[0], p[1]));
    const Value s = ReduceSum(Sin(h) * h, {1});
    return std::vector<Value>{s * p[2], Exp(ReduceSum(h, {0}))};
  });
}

TEST(Jvp, OfStraightLineCode) { CheckDerivatives(*Mlp(), /*order=*/2); }

TEST(Jvp, IntegersHaveNoTangents) {
  const FunctionRef f = Fn({F64({2}), MakeType(DType::kS32, {2})}, [](Builder&,
                                                                      const std::vector<Value>& p) {
    return std::vector<Value>{Convert(p[0], DType::kS32) + p[1], p[0] * Convert(p[1], DType::kF64)};
  });
  EXPECT_THAT(Jvp(*f, {true, false})->out_active, ElementsAre(false, true));
  EXPECT_THAT(Jvp(*f, {true, true}).status(), ReasonIs("TYPE_ERROR"));
  CheckDerivatives(*f);
}

TEST(Jvp, SymbolicZerosAreNotBuilt) {
  const FunctionRef f = Fn({F64({2}), F64({2})}, [](Builder&, const std::vector<Value>& p) {
    return std::vector<Value>{p[0] + Sin(p[1]), Cos(p[1])};
  });
  const JvpResult r = *Jvp(*f, {true, false});
  EXPECT_THAT(r.out_active, ElementsAre(true, false));
  EXPECT_EQ(CountNamed(*r.fn, "multiply"), 0);
  // With `instantiate` the tangent exists and is zeros.
  const JvpResult full = *Jvp(*f, {true, false}, /*instantiate=*/true);
  EXPECT_THAT(full.out_active, ElementsAre(true, true));
  const auto x = RandomArgs(full.fn->param_types(), 1);
  EXPECT_THAT(Eval(*full.fn, x)[3].ToDoubles(), ElementsAre(0, 0));
}

TEST(PartialEval, KeepsOnlyResidualsThatAreUsed) {
  const FunctionRef f = Fn({F64({2}), F64({2})}, [](Builder&, const std::vector<Value>& p) {
    const Value s = Sin(p[0]);
    const Value unused = Exp(p[0]) * p[1];
    (void)unused;
    return std::vector<Value>{s, s * p[1] + s};
  });
  const PartialEvalResult pe = *PartialEval(*f, {true, false});
  EXPECT_THAT(pe.out_known, ElementsAre(true, false));
  EXPECT_EQ(pe.num_residuals, 1);
  EXPECT_EQ(pe.known->results[0], pe.known->results[1]);
  EXPECT_EQ(CountNamed(*pe.known, "exponential"), 0);
}

TEST(PartialEval, ConstantsAreComputedAgain) {
  const FunctionRef f = Fn({F64({2})}, [](Builder& b, const std::vector<Value>& p) {
    return std::vector<Value>{p[0] * Full(b, DType::kF64, {2}, 3.0)};
  });
  const PartialEvalResult pe = *PartialEval(*f, {false});
  EXPECT_EQ(pe.num_residuals, 0);
  EXPECT_EQ(pe.known->ops.size(), 0u);
}

TEST(PartialEval, ForcedResultsAreUnknown) {
  const FunctionRef f = Fn({F64({2})}, [](Builder&, const std::vector<Value>& p) {
    return std::vector<Value>{Sin(p[0]), Cos(p[0])};
  });
  const PartialEvalResult pe = *PartialEval(*f, {true}, {true, false});
  EXPECT_THAT(pe.out_known, ElementsAre(false, true));
  EXPECT_EQ(pe.num_residuals, 1);
}

TEST(Transpose, NamesTheOpThatIsNotLinear) {
  const FunctionRef f = Fn({F64({2})}, [](Builder& b, const std::vector<Value>& p) {
    SiteScope site(b, Site{"model.cc", 41});
    return std::vector<Value>{Sin(p[0])};
  });
  const absl::Status s = TransposeFunction(*f, {true}).status();
  EXPECT_THAT(s, ReasonIs("NOT_IMPLEMENTED"));
  EXPECT_THAT(
      std::string(s.message()),
      HasSubstr("Transpose rule (for reverse-mode differentiation) for 'sin' not implemented"));
  EXPECT_THAT(std::string(s.message()), HasSubstr("model.cc:41"));
}

TEST(Transpose, ParamsThatNothingReachesGetZeros) {
  const FunctionRef f = Fn({F64({2}), F64({3})}, [](Builder&, const std::vector<Value>& p) {
    return std::vector<Value>{-p[0]};
  });
  const FunctionRef t = *TransposeFunction(*f, {true, true});
  const auto out = Eval(*t, {Array::Of(DType::kF64, {2}, {1, 2})});
  EXPECT_THAT(out[0].ToDoubles(), ElementsAre(-1, -2));
  EXPECT_THAT(out[1].ToDoubles(), ElementsAre(0, 0, 0));
}

TEST(Batch, OfStraightLineCode) {
  CheckBatch(*Mlp(), {0, -1, -1});
  CheckBatch(*Mlp(), {2, 1, 0});
  CheckBatch(*Mlp(), {-1, -1, 1});
}

TEST(Batch, PutsBatchDimsWhereForced) {
  const FunctionRef f = Fn({F64({2}), F64({4})}, [](Builder&, const std::vector<Value>& p) {
    return std::vector<Value>{Sin(p[0]), Cos(p[1])};
  });
  const BatchResult r = *Batch(*f, {0, -1}, 3, {1, 0});
  EXPECT_EQ(r.fn->result_types()[0].shape, (Dims{2, 3}));
  EXPECT_EQ(r.fn->result_types()[1].shape, (Dims{3, 4}));
  EXPECT_THAT(std::string(Batch(*f, {0, -1}, 3, {-1, -1}).status().message()),
              HasSubstr("out_axes is None"));
}

TEST(Nests, BatchOfVjpAndVjpOfBatch) {
  const FunctionRef f = Mlp();
  CheckBatch(*VjpFn(*f, {true, true, true}), {0, -1, -1, 0, 0});
  CheckDerivatives(*Batch(*f, {0, -1, 1}, 3)->fn);
}

// ---- call and checkpoint. ----

FunctionRef FnWithCall() {
  const FunctionRef g = Fn({F64({3}), F64({3}), MakeType(DType::kS32, {})},
                           [](Builder&, const std::vector<Value>& p) {
                             return std::vector<Value>{Sin(p[0]) * p[1], p[0], p[2], Exp(p[1])};
                           });
  return Fn({F64({3}), F64({3}), MakeType(DType::kS32, {})},
            [&](Builder& b, const std::vector<Value>& p) {
              const auto out = Call(b, g, p, "g");
              return std::vector<Value>{out[0] * out[1], out[3], out[2]};
            });
}

TEST(Call, Derivatives) { CheckDerivatives(*FnWithCall(), 2); }
TEST(Call, Batches) { CheckBatch(*FnWithCall(), {1, -1, 0}); }

TEST(Call, ArgumentsMustFit) {
  const FunctionRef g = Fn({F64({3})}, [](Builder&, const std::vector<Value>& p) { return p; });
  const auto f =
      TryFn({}, {F64({2})}, [&](Builder& b, const std::vector<Value>& p) { return Call(b, g, p); });
  EXPECT_THAT(f.status(), ReasonIs("TYPE_ERROR"));
  EXPECT_THAT(std::string(f.status().message()), HasSubstr("argument 0 has type f64[2]"));
}

FunctionRef FnWithCheckpoint() {
  const FunctionRef g = Fn({F64({3}), F64({3})}, [](Builder&, const std::vector<Value>& p) {
    return std::vector<Value>{Sin(Sin(Sin(p[0])) * p[1])};
  });
  return Fn({F64({3}), F64({3})}, [&](Builder& b, const std::vector<Value>& p) {
    return std::vector<Value>{Exp(Checkpoint(b, g, p)[0])};
  });
}

TEST(Checkpoint, Derivatives) { CheckDerivatives(*FnWithCheckpoint(), 2, 1e-5); }
TEST(Checkpoint, Batches) { CheckBatch(*FnWithCheckpoint(), {0, 1}); }

TEST(Checkpoint, KeepsOnlyItsInputsAndRecomputes) {
  const FunctionRef g = Fn({F64({3}), F64({3})}, [](Builder&, const std::vector<Value>& p) {
    return std::vector<Value>{Sin(Sin(Sin(p[0])) * p[1])};
  });
  const FunctionRef f = Fn({F64({3}), F64({3})}, [&](Builder& b, const std::vector<Value>& p) {
    return Checkpoint(b, g, p);
  });
  const Linearized lin = *Linearize(*f, {true, true});
  EXPECT_EQ(lin.num_residuals, 2);
  for (int k = 0; k < 2; ++k) EXPECT_LT(lin.forward->results[1 + k], lin.forward->num_params);
  EXPECT_EQ(CountNamed(*lin.forward, "cosine"), 0);
  EXPECT_GE(CountNamed(*lin.linear, "sine"), 2);
  EXPECT_EQ(CountNamed(*lin.linear, "checkpoint"), 1);
  // Without a checkpoint, the values that the tangent needs are kept.
  const Linearized plain = *Linearize(*g, {true, true});
  EXPECT_EQ(CountNamed(*plain.linear, "sine"), 0);
}

TEST(OptimizationBarrier, IsLinearAndTransparent) {
  const FunctionRef f = Fn({F64({3}), F64({2})}, [](Builder& b, const std::vector<Value>& p) {
    const auto out = OptimizationBarrier(b, {Sin(p[0]), p[1]});
    return std::vector<Value>{out[0] * out[0], out[1]};
  });
  CheckDerivatives(*f, 2);
  CheckBatch(*f, {0, -1});
}

// ---- scan. ----

// Computes h <- tanh(w h + x), i <- i + 1; y = h sin(b). The bias is loop-invariant.
FunctionRef Rnn(bool reverse, int64_t length = 4) {
  const Type i32 = MakeType(DType::kS32, {});
  const FunctionRef step =
      Fn({F64({2, 2}), F64({2}), F64({2}), i32, F64({2})},
         [](Builder& b, const std::vector<Value>& p) {
           const Value h = Tanh(Reshape(Matmul2D(p[0], Reshape(p[2], {2, 1})), {2}) + p[4]);
           return std::vector<Value>{h, p[3] + Constant(b, DType::kS32, 1), h * Sin(p[1])};
         });
  return Fn({F64({2, 2}), F64({2}), F64({2}), i32, F64({length, 2})},
            [&](Builder& b, const std::vector<Value>& p) {
              return Scan(b, step, p, 2, 2, length, reverse);
            });
}

TEST(Scan, RunsForwardsAndBackwards) {
  const FunctionRef step = Fn({F64({}), F64({})}, [](Builder&, const std::vector<Value>& p) {
    const Value c = p[0] + p[1];
    return std::vector<Value>{c, c * p[1]};
  });
  for (bool reverse : {false, true}) {
    const FunctionRef f = Fn({F64({}), F64({3})}, [&](Builder& b, const std::vector<Value>& p) {
      return Scan(b, step, p, 0, 1, 3, reverse);
    });
    const auto out =
        Eval(*f, {Array::Scalar(DType::kF64, 1), Array::Of(DType::kF64, {3}, {2, 3, 4})});
    EXPECT_THAT(out[0].ToDoubles(), ElementsAre(10));
    if (reverse)
      EXPECT_THAT(out[1].ToDoubles(), ElementsAre(20, 24, 20));
    else
      EXPECT_THAT(out[1].ToDoubles(), ElementsAre(6, 18, 40));
  }
}

TEST(Scan, Derivatives) {
  CheckDerivatives(*Rnn(false), 2, 1e-5);
  CheckDerivatives(*Rnn(true), 2, 1e-5);
}

TEST(Scan, LengthZeroReturnsTheInitialCarry) {
  const FunctionRef f = Rnn(false, 0);
  const auto x = RandomArgs(f->param_types(), 1);
  EXPECT_EQ(Eval(*f, x)[0].ToDoubles(), x[2].ToDoubles());
  CheckDerivatives(*f);
}

TEST(Scan, Batches) {
  CheckBatch(*Rnn(false), {-1, -1, -1, -1, 0});
  CheckBatch(*Rnn(false), {-1, -1, -1, -1, 1});
  CheckBatch(*Rnn(true), {2, -1, 1, -1, -1});
  CheckBatch(*Rnn(false), {-1, 0, -1, -1, -1});
  CheckBatch(*Rnn(false), {-1, -1, -1, 0, 2});
}

TEST(Scan, NestedTransforms) {
  const FunctionRef f = Rnn(false);
  CheckDerivatives(*Batch(*f, {-1, -1, 0, -1, 1}, 3)->fn);
  CheckBatch(*VjpFn(*f, InexactParams(*f)), {0, -1, -1, -1, 1, 0, -1});
}

// The first carry starts constant and becomes active after two iterations.
TEST(Scan, ActiveCarriesReachAFixpoint) {
  const FunctionRef step =
      Fn({F64({}), F64({}), F64({})}, [](Builder&, const std::vector<Value>& p) {
        return std::vector<Value>{Sin(p[1]), p[2] * p[0], p[2]};
      });
  const FunctionRef f = Fn({F64({}), F64({})}, [&](Builder& b, const std::vector<Value>& p) {
    return Scan(b, step, {Constant(b, DType::kF64, 0.3), p[0], p[1]}, 0, 3, 5);
  });
  CheckDerivatives(*f, 2, 1e-5);
}

TEST(Scan, LoopInvariantResidualsAreNotStacked) {
  const FunctionRef f = Rnn(false);
  const Linearized lin = *Linearize(*f, InexactParams(*f));
  // w and sin(b) are the same in every iteration; tanh's derivative and h are not.
  const auto types = lin.forward->result_types();
  int stacked = 0, plain = 0;
  for (size_t r = types.size() - lin.num_residuals; r < types.size(); ++r)
    (types[r].rank() > 0 && types[r].shape[0] == 4 ? stacked : plain)++;
  EXPECT_GE(plain, 2);
  EXPECT_LE(stacked, 4);
  const Op* loop = FirstOpNamed(*lin.forward, "scan");
  ASSERT_NE(loop, nullptr);
  EXPECT_EQ(CountNamed(*loop->regions[0], "sine"), 0) << PrintFunction(*lin.forward);
  EXPECT_GE(CountNamed(*lin.forward, "sine"), 1);
}

TEST(Scan, NestedAndUnderCheckpoint) {
  const FunctionRef inner = Rnn(false);
  const Type i32 = MakeType(DType::kS32, {});
  const FunctionRef outer_step = Fn(
      {F64({2, 2}), F64({2}), F64({2}), F64({4, 2})}, [&](Builder& b, const std::vector<Value>& p) {
        const FunctionRef body =
            Fn({F64({2, 2}), F64({2}), F64({2}), F64({4, 2})},
               [&](Builder& bb, const std::vector<Value>& q) {
                 const auto out =
                     Call(bb, inner, {q[0], q[1], q[2], Constant(bb, DType::kS32, 0), q[3]});
                 return std::vector<Value>{out[0], out[2]};
               });
        return Checkpoint(b, body, p);
      });
  const FunctionRef f =
      Fn({F64({2, 2}), F64({2}), F64({2}), F64({3, 4, 2})},
         [&](Builder& b, const std::vector<Value>& p) { return Scan(b, outer_step, p, 2, 1, 3); });
  CheckDerivatives(*f, 2, 2e-5);
  CheckBatch(*f, {-1, -1, 0, -1});
}

// Each loop's rules transform its body several times. In a nest these transforms must not multiply.
TEST(Scan, DeepNestsAreTransformedInTime) {
  constexpr int kDepth = 20;
  FunctionRef body = Fn({F64({}), F64({}), F64({})}, [](Builder&, const std::vector<Value>& p) {
    return std::vector<Value>{p[2] * p[0], Sin(p[1]) * p[0] + p[2]};
  });
  for (int i = 0; i < kDepth; ++i)
    body = Fn({F64({}), F64({}), F64({})},
              [&](Builder& b, const std::vector<Value>& p) { return Scan(b, body, p, 1, 2, 1); });
  const FunctionRef vjp = VjpFn(*body, {true, true, true});
  EXPECT_LT(CountOps(*vjp), 100 * kDepth);
  CheckDerivatives(*body);
  CheckBatch(*body, {-1, 0, -1});
  CheckBatch(*vjp, {0, -1, -1, 0, -1});
}

TEST(Scan, CarryTypesMustAgree) {
  const FunctionRef step = Fn({F64({2})}, [](Builder&, const std::vector<Value>& p) {
    return std::vector<Value>{Convert(p[0], DType::kF32)};
  });
  const auto f = TryFn({}, {F64({2})}, [&](Builder& b, const std::vector<Value>& p) {
    return Scan(b, step, p, 0, 1, 3);
  });
  EXPECT_THAT(f.status(), ReasonIs("TYPE_ERROR"));
  EXPECT_THAT(std::string(f.status().message()),
              HasSubstr("scan function carry input and carry output must have equal types"));
}

TEST(Scan, ScannedOperandsMustHaveTheLength) {
  const FunctionRef step = Fn({F64({})}, [](Builder&, const std::vector<Value>& p) { return p; });
  const auto f = TryFn({}, {F64({4})}, [&](Builder& b, const std::vector<Value>& p) {
    return Scan(b, step, p, 0, 0, 3);
  });
  EXPECT_THAT(f.status(), ReasonIs("VALUE_ERROR"));
  EXPECT_THAT(std::string(f.status().message()), HasSubstr("leading axis of the length 3"));
}

// ---- Dce and Rescope. ----

TEST(Dce, DropsUnusedParams) {
  const FunctionRef f =
      Fn({F64({2}), F64({3}), F64({2})},
         [](Builder&, const std::vector<Value>& p) { return std::vector<Value>{p[0] + p[2]}; });
  std::vector<bool> kept;
  const FunctionRef g = Dce(*f, /*keep_params=*/false, &kept);
  EXPECT_THAT(kept, ElementsAre(true, false, true));
  EXPECT_EQ(g->num_params, 2);
  EXPECT_EQ(Dce(*f)->num_params, 3);
  EXPECT_EQ(Eval1(*g, RandomArgs(g->param_types(), 1)).size(), 2u);
}

// The wanted carry needs its constant and one slice; everything else goes.
TEST(Dce, ReachesIntoLoops) {
  const FunctionRef step = Fn({F64({2}), F64({2}), F64({2}), F64({2}), F64({2}), F64({2})},
                              [](Builder&, const std::vector<Value>& p) {
                                const Value a = p[2] * p[0] + p[4];
                                const Value b = Sin(p[3]) * p[1] + a;
                                return std::vector<Value>{a, b, Exp(a), Cos(b) * p[5]};
                              });
  const FunctionRef f = Fn({F64({2}), F64({2}), F64({2}), F64({2}), F64({3, 2}), F64({3, 2})},
                           [&](Builder& b, const std::vector<Value>& p) {
                             return std::vector<Value>{Scan(b, step, p, 2, 2, 3)[0]};
                           });
  std::vector<bool> kept;
  const FunctionRef g = Dce(*f, /*keep_params=*/false, &kept);
  EXPECT_THAT(kept, ElementsAre(true, false, true, false, true, false));
  const Op& loop = *FirstOpNamed(*g, "scan");
  EXPECT_EQ(loop.results.size(), 1u);
  EXPECT_EQ(CountNamed(*g, "sine") + CountNamed(*g, "exponential") + CountNamed(*g, "cosine"), 0);
  const auto x = RandomArgs(f->param_types(), 1);
  ExpectNear(Eval(*g, {x[0], x[2], x[4]}), Eval(*f, x), 0, "without dead code");
  // The wanted result depends on the second carry, and that one on the first.
  const FunctionRef both = Fn(f->param_types(), [&](Builder& b, const std::vector<Value>& p) {
    return std::vector<Value>{Scan(b, step, p, 2, 2, 3)[3]};
  });
  const FunctionRef rest = Dce(*both, /*keep_params=*/false, &kept);
  EXPECT_THAT(kept, ElementsAre(true, true, true, true, true, true));
  EXPECT_EQ(CountNamed(*rest, "exponential"), 0);
  ExpectNear(Eval(*rest, x), Eval(*both, x), 0, "without dead code");
}

// Proves for calls, checkpoints, branches and loops that the operand of an unused result goes.
TEST(Dce, ReachesIntoEveryOpWithRegions) {
  const std::vector<Type> two = {F64({2}), F64({2})};
  using V = std::vector<Value>;
  const FunctionRef pair = Fn(two, [](Builder&, const V& p) { return V{Sin(p[0]), Exp(p[1])}; });
  const auto only_first = [&](const Body& make) {
    const FunctionRef f = Fn(two, [&](Builder& b, const V& p) { return V{make(b, p)[0]}; });
    std::vector<bool> kept;
    const FunctionRef g = Dce(*f, /*keep_params=*/false, &kept);
    EXPECT_THAT(kept, ElementsAre(true, false)) << PrintFunction(*g);
    EXPECT_EQ(CountNamed(*g, "exponential"), 0) << PrintFunction(*g);
    const auto x = RandomArgs(two, 1);
    ExpectNear(Eval(*g, {x[0]}), Eval(*f, x), 0, "without dead code");
  };
  only_first([&](Builder& b, const V& p) { return Call(b, pair, p, "g"); });
  only_first([&](Builder& b, const V& p) { return Checkpoint(b, pair, p); });
  only_first([&](Builder& b, const V& p) {
    return Case(Constant(b, Array::ScalarInt(DType::kS32, 1)), {pair, pair}, p);
  });
  // A call in a call, and a loop that ends by its own carry.
  const FunctionRef nested = Fn(two, [&](Builder& b, const V& p) { return Call(b, pair, p, "g"); });
  only_first([&](Builder& b, const V& p) { return Call(b, nested, p, "h"); });
  const std::vector<Type> carry = {MakeType(DType::kS32, {}), F64({2}), F64({2})};
  const FunctionRef holds =
      Fn(carry, [](Builder&, const V& v) { return V{Compare(v[0], FullLike(v[0], 3), "LT")}; });
  const FunctionRef step = Fn(carry, [&](Builder& b, const V& v) {
    const V out = Call(b, pair, {v[1], v[2]}, "g");
    return V{v[0] + FullLike(v[0], 1), out[0], out[1]};
  });
  only_first([&](Builder& b, const V& p) {
    const V out =
        While(b, holds, step, {Constant(b, Array::ScalarInt(DType::kS32, 0)), p[0], p[1]}, 0, 0);
    return V{out[1]};
  });
}

// In this nest each carry needs the next one, so the set of wanted values grows again and again.
TEST(Dce, ADeepNestEndsInTime) {
  constexpr int kDepth = 24, kChain = 12;
  using V = std::vector<Value>;
  const std::vector<Type> carries(kChain, F64({}));
  FunctionRef body = Fn(carries, [](Builder&, const V& p) {
    V out;
    for (int k = 0; k < kChain; ++k) out.push_back(k + 1 < kChain ? p[k] + p[k + 1] : Sin(p[k]));
    return out;
  });
  for (int i = 0; i < kDepth; ++i)
    body = Fn(carries, [&](Builder& b, const V& p) { return Scan(b, body, p, 0, kChain, 1); });
  const FunctionRef f = Fn(carries, [&](Builder& b, const V& p) {
    return V{Scan(b, body, p, 0, kChain, 1)[kChain - 3]};
  });
  std::vector<bool> kept;
  const FunctionRef g = Dce(*f, /*keep_params=*/false, &kept);
  EXPECT_EQ(std::count(kept.begin(), kept.end(), true), 3);
  EXPECT_LT(CountOps(*g), CountOps(*f));
}

TEST(Dce, KeepsTheSpecsOfRemainingOperandsAndResults) {
  const Scope outer = MeshScope({{"i", 2, AxisType::kAuto}});
  const Scope inner = MeshScope({{"i", 2, AxisType::kManual}});
  using V = std::vector<Value>;
  const FunctionRef body =
      Fn(inner, {Varying(F64({1}), {"i"}), F64({2})}, [](Builder&, const V& p) {
        return V{Sin(p[0]), Cos(p[1])};
      });
  const PartitionSpec on_i{{{"i"}}, {}, {}, {}};
  for (int result : {0, 1}) {
    const FunctionRef f = Fn(outer, {F64({2}), F64({2})}, [&](Builder& b, const V& p) {
      return V{ManualComputation(b, body, p, {on_i, {}}, {on_i, {}}, {"i"})[result]};
    });
    const FunctionRef g = Dce(*f, /*keep_params=*/false);
    EXPECT_EQ(CountNamed(*g, result == 0 ? "cosine" : "sine"), 0);
    const auto x = RandomArgs(f->param_types(), 1);
    ExpectNear(Eval(*g, {x[result]}), Eval(*f, x), 0, "without dead code");
  }
}

TEST(Rescope, CastsOperandsThatVaryDifferentlyAlsoInRegions) {
  const Scope logical = MeshScope({{"x", 2, AxisType::kAuto}});
  const Scope manual = MeshScope({{"x", 2, AxisType::kManual}});
  const FunctionRef step =
      Fn(logical, {F32({2}), F32({2})}, [](Builder&, const std::vector<Value>& p) {
        return std::vector<Value>{p[0] * p[1], p[0]};
      });
  const FunctionRef f =
      Fn(logical, {F32({2}), F32({2}), F32({3, 2})}, [&](Builder& b, const std::vector<Value>& p) {
        return Scan(b, step, {p[0] + p[1], p[2]}, 0, 1, 3);
      });
  const absl::StatusOr<FunctionRef> g =
      Rescope(*f, manual, {Varying(F32({2}), {"x"}), F32({2}), F32({3, 2})});
  ASSERT_THAT(g, IsOk());
  EXPECT_EQ((*g)->result_types()[0].ToString(), "f32[2]{V:x}");
  EXPECT_EQ((*g)->result_types()[1].ToString(), "f32[3,2]{V:x}");
  EXPECT_EQ(CountNamed(**g, "pvary"), 2);
}

TEST(Refusals, PmaxHasNoDerivative) {
  const Scope scope = MeshScope({{"i", 4, AxisType::kManual}});
  const FunctionRef f =
      Fn(scope, {Varying(F32({2}), {"i"})}, [](Builder& b, const std::vector<Value>& p) {
        SiteScope site(b, Site{"model.cc", 7});
        return std::vector<Value>{Pmax(p[0], {"i"})};
      });
  const absl::Status s = Jvp(*f, {true}).status();
  EXPECT_THAT(s, ReasonIs("NOT_IMPLEMENTED"));
  EXPECT_THAT(std::string(s.message()),
              HasSubstr("Differentiation rule for 'pmax' not implemented"));
  EXPECT_THAT(std::string(s.message()), HasSubstr("(model.cc:7)"));
}

}  // namespace
}  // namespace tessera::ir
