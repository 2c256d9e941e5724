// The op dot_general: results on small arrays, its rules against the evaluator (rule_checks.h),
// Explicit shardings, and the attributes that its rules pass on.
#include "ir/ops/testing/rule_checks.h"
#include "ir/text.h"

namespace tessera::ir::ops::testing {
namespace {

using Ints = std::vector<int64_t>;

Attrs DotAttrs(Ints lb, Ints rb, Ints lc, Ints rc) {
  return {{"lhs_batching_dimensions", lb},
          {"rhs_batching_dimensions", rb},
          {"lhs_contracting_dimensions", lc},
          {"rhs_contracting_dimensions", rc}};
}
Attrs MatmulAttrs() { return DotAttrs({}, {}, {1}, {0}); }
Attrs WithAttr(Attrs attrs, std::string_view name, AttrValue value) {
  attrs.Set(name, std::move(value));
  return attrs;
}
std::string EvalToText(Array x, Array y, Attrs attrs) {
  return EvalOne({"", &kDotGeneral, {std::move(x), std::move(y)}, std::move(attrs)}).ToString();
}

TEST(DotGeneral, EvaluatesSmallProducts) {
  for (DType dtype :
       {DType::kS32, DType::kU32, DType::kS64, DType::kBF16, DType::kF32, DType::kF64}) {
    const Array x = Iota(dtype, {2, 3}), y = Iota(dtype, {3, 2});
    EXPECT_EQ(EvalToText(x, y, MatmulAttrs()), "[[10, 13], [28, 40]]") << DTypeName(dtype);
    EXPECT_EQ(EvalToText(x, x, DotAttrs({0}, {0}, {1}, {1})), "[5, 50]");
    EXPECT_EQ(EvalToText(x, y, DotAttrs({}, {}, {0, 1}, {1, 0})), "50");
    EXPECT_EQ(EvalToText(Iota(dtype, {2}), Iota(dtype, {3}), DotAttrs({}, {}, {}, {})),
              "[[0, 0, 0], [0, 1, 2]]");
    EXPECT_EQ(EvalToText(Array(dtype, {2, 0}), Array(dtype, {0, 2}), MatmulAttrs()),
              "[[0, 0], [0, 0]]");
  }
}

// Compares with the definition, one element at a time. There are more rows than one pass of the
// evaluator holds.
TEST(DotGeneral, AgreesWithItsDefinitionForScatteredDims) {
  // lhs [k0, b, m, k1], rhs [n, k1, k0, b] -> [b, m, n]
  const int64_t k0 = 3, b = 2, m = 7, k1 = 2, n = 5;
  const Array x = F64({k0, b, m, k1}, 1), y = F64({n, k1, k0, b}, 2);
  const Array got = EvalOne({"", &kDotGeneral, {x, y}, DotAttrs({1}, {3}, {3, 0}, {1, 2})});
  ASSERT_EQ(got.shape(), (Dims{b, m, n}));
  for (int64_t ib = 0; ib < b; ++ib)
    for (int64_t im = 0; im < m; ++im)
      for (int64_t in = 0; in < n; ++in) {
        double want = 0;
        for (int64_t i0 = 0; i0 < k0; ++i0)
          for (int64_t i1 = 0; i1 < k1; ++i1)
            want += x.At(((i0 * b + ib) * m + im) * k1 + i1) *
                    y.At(((in * k1 + i1) * k0 + i0) * b + ib);
        ASSERT_NEAR(got.At((ib * m + im) * n + in), want, 1e-12);
      }
}

TEST(DotGeneral, AccumulatesWideAndWrapsIntegers) {
  const Array f = Array::Of(DType::kF32, {1, 3}, {1e8, 1, -1e8}),
              ones = Array::Of(DType::kF32, {3, 1}, {1, 1, 1});
  EXPECT_EQ(EvalToText(f, ones, MatmulAttrs()), "[[1]]");
  const Array i = Array::Of(DType::kS32, {1, 2}, {2147483647, 2}),
              one = Array::Of(DType::kS32, {2, 1}, {1, 1});
  EXPECT_EQ(EvalToText(i, one, MatmulAttrs()), "[[-2147483647]]");
  const Array h = Array::Of(DType::kBF16, {1, 2}, {256, 1}),
              hs = Array::Of(DType::kBF16, {2, 1}, {1, 1});
  EXPECT_EQ(EvalToText(h, hs, MatmulAttrs()), "[[256]]");
  EXPECT_EQ(EvalToText(h, hs, WithAttr(MatmulAttrs(), "preferred_element_type", DType::kF32)),
            "[[257]]");
}

std::vector<Case> Cases() {
  return {
      {"Matmul", &kDotGeneral, {F64({2, 3}, 1), F64({3, 4}, 2)}, MatmulAttrs()},
      {"Transposed", &kDotGeneral, {F64({3, 2}, 1), F64({4, 3}, 2)}, DotAttrs({}, {}, {0}, {1})},
      {"Outer", &kDotGeneral, {F64({3}, 1), F64({2}, 2)}, DotAttrs({}, {}, {}, {})},
      {"Scattered",
       &kDotGeneral,
       {F64({3, 2, 5, 4}, 1), F64({6, 4, 3, 2}, 2)},
       DotAttrs({1}, {3}, {3, 0}, {1, 2})},
      {"TwoBatches",
       &kDotGeneral,
       {F64({2, 3, 4}, 1), F64({3, 4, 5, 2}, 2)},
       DotAttrs({1, 0}, {0, 3}, {2}, {1})},
  };
}
class Dots : public ::testing::TestWithParam<Case> {};
TEST_P(Dots, JvpIsFiniteDifferences) { CheckJvp(GetParam()); }
TEST_P(Dots, TransposePassesTheDotProductTest) { CheckTranspose(GetParam()); }
TEST_P(Dots, BatchIsLoopForEveryMappedDim) {
  const Case& c = GetParam();
  auto with_batch = [](const Array& a, int at) {
    Dims shape = a.shape();
    shape.insert(shape.begin() + at, 3);
    return F64(shape, 20 + at);
  };
  for (int l = -1; l <= c.in[0].rank(); ++l)
    for (int r = -1; r <= c.in[1].rank(); ++r) {
      if (l < 0 && r < 0) continue;
      Case batched = c;
      if (l >= 0) batched.in[0] = with_batch(c.in[0], l);
      if (r >= 0) batched.in[1] = with_batch(c.in[1], r);
      CheckBatch(batched, {l, r}, 1e-12);
    }
}
INSTANTIATE_TEST_SUITE_P(All, Dots, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

TEST(DotGeneral, CotangentsHaveTheOperandsDtype) {
  for (const auto& [in, out] :
       {std::pair{DType::kBF16, DType::kF32}, std::pair{DType::kF32, DType::kBF16}}) {
    Builder b(Scope{});
    const Type t = MakeType(in, {2, 2});
    const Attrs attrs = WithAttr(MatmulAttrs(), "preferred_element_type", out);
    Value y = b.Param(t), ct = b.Param(MakeType(out, {2, 2}));
    const RuleContext rc{b, kDotGeneral, attrs, {}, {Value(), y}, {}, {t, t}, {ct.type()}};
    EXPECT_EQ(kDotGeneral.transpose.fn(rc, {ct}, {true, false})[0].type().ToString(), t.ToString());
  }
}

// Checks that the ops of `b` have `products` products, all of the highest precision. Requires:
// `results` need all ops of `b`.
void ExpectHighest(Builder& b, std::vector<Value> results, int products) {
  const std::string text = PrintFunction(*b.Build(std::move(results)));
  const auto count = [&](std::string_view what) {
    int n = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
    return n;
  };
  EXPECT_EQ(count("dot_general("), products) << text;
  EXPECT_EQ(count("precision=\"highest\""), products) << text;
}

// The products that the rules emit keep the precision of the op.
TEST(DotGeneral, RulesKeepThePrecision) {
  const Attrs attrs = WithAttr(MatmulAttrs(), "precision", std::string("highest"));
  const Type x = MakeType(DType::kF32, {2, 3}), y = MakeType(DType::kF32, {3, 4}),
             out = MakeType(DType::kF32, {2, 4});
  {
    Builder b(Scope{});
    const Value vx = b.Param(x), vy = b.Param(y), ct = b.Param(out);
    const RuleContext of_x{b, kDotGeneral, attrs, {}, {Value(), vy}, {}, {x, y}, {out}};
    const Value dx = kDotGeneral.transpose.fn(of_x, {ct}, {true, false})[0];
    const RuleContext of_y{b, kDotGeneral, attrs, {}, {vx, Value()}, {}, {x, y}, {out}};
    const Value dy = kDotGeneral.transpose.fn(of_y, {ct}, {false, true})[1];
    ExpectHighest(b, {dx, dy}, 2);
  }
  {
    Builder b(Scope{});
    const Value vx = b.Param(x), vy = b.Param(y), dx = b.Param(x), dy = b.Param(y);
    const RuleContext rc{b, kDotGeneral, attrs, {}, {vx, vy}, {}, {x, y}, {out}};
    ExpectHighest(b, kDotGeneral.jvp.fn(rc, {dx, dy}), 2);
  }
  {
    Builder b(Scope{});
    const Value vx = b.Param(MakeType(DType::kF32, {5, 2, 3})), vy = b.Param(y);
    const RuleContext rc{b, kDotGeneral, attrs, {}, {vx, vy}, {}, {x, y}, {out}};
    ExpectHighest(b, kDotGeneral.batch.fn(rc, {0, -1}, 5).values, 1);
  }
}

TEST(DotGeneral, ProductsOfTheFunctionHaveThePrecision) {
  struct Row {
    DType operands;
    std::optional<DType> preferred;
    int products;
  };
  for (const Row& row :
       {Row{DType::kF32, {}, 1}, Row{DType::kC64, {}, 4}, Row{DType::kC64, DType::kC128, 4},
        Row{DType::kF8E5M2, {}, 1}, Row{DType::kF32, DType::kF8E5M2, 1}}) {
    Builder b(Scope{});
    const Type t = MakeType(row.operands, {2, 2});
    const Value x = b.Param(t), y = b.Param(t);
    const Value product =
        DotGeneral(x, y, {{}, {}, {1}, {0}}, nullptr, row.preferred, Precision::kHighest);
    ExpectHighest(b, {product}, row.products);
  }
  // The default precision has no attribute, so that there is one form of the program.
  Builder b(Scope{});
  const Value x = b.Param(MakeType(DType::kF32, {2, 2}));
  const Value by_default = Matmul2D(x, x);
  EXPECT_FALSE(b.DefiningOp(by_default)->attrs.Has("precision"));
  const Value high = DotGeneral(x, x, {{}, {}, {1}, {0}}, nullptr, {}, Precision::kHigh);
  EXPECT_EQ(PrecisionOf(b.DefiningOp(high)->attrs), Precision::kHigh);
}

TEST(DotGeneral, PartitionedResultEqualsWhole) {
  const Mesh mesh{{{"x", 2}, {"y", 2}}};
  const std::vector<std::string> x = {"x"}, y = {"y"}, yx = {"y", "x"}, none;
  const Case c{
      "", &kDotGeneral, {F64({2, 4, 8}, 1), F64({2, 8, 4}, 2)}, DotAttrs({0}, {0}, {2}, {1})};
  // The factors are batch, m, n, k.
  CheckPartition(c, mesh, {x, y, none, none}, 1e-12);
  CheckPartition(c, mesh, {none, x, y, none}, 1e-12);
  CheckPartition(c, mesh, {none, none, none, yx}, 1e-12);
  CheckPartition(c, mesh, {x, none, none, y}, 1e-12);
}

absl::StatusOr<std::string> TypeOfDot(std::string x, std::string y, Attrs attrs) {
  return TypeOn(ExplicitMesh(), kDotGeneral, {x, y}, attrs);
}
PartitionSpec Spec(DimAxes dims) { return {dims, {}, {}, {}}; }

TEST(DotGeneral, ExplicitShardingsFollowJax) {
  EXPECT_THAT(TypeOfDot("f32[8@x,2]", "f32[2,8@y]", MatmulAttrs()), IsOkAndHolds("f32[8@x,8@y]"));
  EXPECT_THAT(TypeOfDot("f32[8@x,2@y]", "f32[2,8]", MatmulAttrs()), IsOkAndHolds("f32[8@x,8]"));
  EXPECT_THAT(TypeOfDot("f32[8@x,2]", "f32[2@x,8]", MatmulAttrs()), IsOkAndHolds("f32[8@x,8]"));
  EXPECT_THAT(
      TypeOfDot("f32[8@x,2@y]", "f32[2@y,8]", MatmulAttrs()),
      ReasonIs("SHARDING_TYPE_ERROR", "Contracting dimensions are sharded and it is ambiguous"));
  EXPECT_THAT(TypeOfDot("f32[8@x,2]", "f32[2,8@x]", MatmulAttrs()),
              ReasonIs("SHARDING_TYPE_ERROR", "produces an illegally sharded result"));
  EXPECT_THAT(TypeOfDot("f32[8@x,2@y]", "f32[2@y,8]",
                        WithAttr(MatmulAttrs(), "out_sharding", Spec({{"x"}, {"y"}}))),
              IsOkAndHolds("f32[8@x,8@y]"));
  EXPECT_THAT(
      TypeOfDot("f32[8@x,2@y]", "f32[2@y,8]", WithAttr(MatmulAttrs(), "out_sharding", Spec({}))),
      IsOkAndHolds("f32[8,8]"));
  const Attrs batched = DotAttrs({0}, {0}, {2}, {1});
  EXPECT_THAT(TypeOfDot("f32[4@x,2,2]", "f32[4,2,2]", batched), IsOkAndHolds("f32[4@x,2,2]"));
  EXPECT_THAT(TypeOfDot("f32[4@x,2,2]", "f32[4@y,2,2]", batched),
              ReasonIs("SHARDING_TYPE_ERROR", "to have the consistent sharding"));
}

TEST(DotGeneral, CotangentsHaveTheOperandsShardings) {
  Builder b(Scope{ExplicitMesh()});
  const Type x = ValueOrThrow(ParseType("f32[8@x,2@y]")), y = ValueOrThrow(ParseType("f32[2@y,8]"));
  const Attrs attrs = WithAttr(MatmulAttrs(), "out_sharding", Spec({{"x"}}));
  Value vx = b.Param(x), vy = b.Param(y);
  Value out = b.Emit1(kDotGeneral, {vx, vy}, attrs);
  const RuleContext lhs{b, kDotGeneral, attrs, {}, {Value(), vy}, {}, {x, y}, {out.type()}};
  EXPECT_EQ(kDotGeneral.transpose.fn(lhs, {out}, {true, false})[0].type().ToString(), x.ToString());
  const RuleContext rhs{b, kDotGeneral, attrs, {}, {vx, Value()}, {}, {x, y}, {out.type()}};
  EXPECT_EQ(kDotGeneral.transpose.fn(rhs, {out}, {false, true})[1].type().ToString(), y.ToString());
}

TEST(DotGeneral, BatchingInsertsTheMappedDimsAxesIntoOutSharding) {
  Builder b(Scope{ExplicitMesh()});
  Value x = b.Param(ValueOrThrow(ParseType("f32[4@x,8,2@y]"))),
        y = b.Param(ValueOrThrow(ParseType("f32[2@y,8]")));
  const Attrs attrs = WithAttr(MatmulAttrs(), "out_sharding", Spec({{}, {"y"}}));
  const std::vector<Type> in = {ValueOrThrow(ParseType("f32[8,2@y]")), y.type()};
  const RuleContext rc{b,      kDotGeneral, attrs, {},
                       {x, y}, {},          in,    {ValueOrThrow(ParseType("f32[8,8@y]"))}};
  const Batched out = kDotGeneral.batch.fn(rc, {0, -1}, 4);
  EXPECT_EQ(out.dims[0], 0);
  EXPECT_EQ(out.values[0].type().ToString(), "f32[4@x,8,8@y]");
}

// Each fault of operands and attributes is refused, with a text that names the op and the fault.
TEST(DotGeneral, ErrorsNameOpAndFault) {
  auto bad = [](const char* text) { return StatusIs(absl::StatusCode::kInvalidArgument, text); };
  EXPECT_THAT(TypeOfDot("f32[8,512]", "f32[256,8]", MatmulAttrs()),
              bad("dot_general: contracting sizes differ: lhs dim 1 is 512, rhs dim 0 is 256"));
  EXPECT_THAT(TypeOfDot("f32[2,3]", "f32[3,2]", DotAttrs({0}, {0}, {}, {})),
              bad("batching sizes differ"));
  EXPECT_THAT(TypeOfDot("f32[2,3]", "f32[3,2]", DotAttrs({}, {}, {1}, {})),
              bad("expected equal numbers of dims"));
  EXPECT_THAT(TypeOfDot("f32[2,3]", "f32[3,2]", DotAttrs({}, {}, {2}, {0})), bad("names dim 2"));
  EXPECT_THAT(TypeOfDot("f32[2,3]", "f32[3,2]", DotAttrs({1}, {0}, {1}, {1})), bad("twice"));
  EXPECT_THAT(TypeOfDot("f32[2,3]", "s32[3,2]", MatmulAttrs()), bad("equal dtypes"));
  EXPECT_THAT(TypeOfDot("bool[2,3]", "bool[3,2]", MatmulAttrs()),
              bad("does not accept dtype bool"));
  EXPECT_THAT(TypeOfDot("s32[2,3]", "s32[3,2]",
                        WithAttr(MatmulAttrs(), "preferred_element_type", DType::kF32)),
              bad("is of another kind"));
  const auto with_precision = [](const char* name) {
    return TypeOfDot("f32[2,3]", "f32[3,2]",
                     WithAttr(MatmulAttrs(), "precision", std::string(name)));
  };
  EXPECT_THAT(with_precision("high"), IsOkAndHolds("f32[2,2]"));
  EXPECT_THAT(with_precision("medium"),
              bad("dot_general: precision is \"medium\"; expected \"high\" or \"highest\""));
  EXPECT_THAT(with_precision("default"), bad("leave it out for the default"));
  const Mesh manual{{{"i", 2, AxisType::kManual}}};
  EXPECT_THAT(TypeOn(manual, kDotGeneral, {"f32[2,2]{V:i}", "f32[2,2]"}, MatmulAttrs()),
              bad("Primitive dot_general requires varying manual axes to match"));
  EXPECT_THAT(EvaluateOp(kDotGeneral, {}, {Array(DType::kC64, {1, 1}), Array(DType::kC64, {1, 1})},
                         MatmulAttrs()),
              ReasonIs("NOT_IMPLEMENTED", "dot_general: no kernels for dtype c64"));
}

TEST(DotGeneral, FunctionGivesWeakOperandsTheOthersDtype) {
  Builder b(Scope{});
  Type weak = MakeType(DType::kF32, {2, 2});
  weak.weak = true;
  Value x = b.Param(weak), y = b.Param(MakeType(DType::kBF16, {2, 2}));
  EXPECT_EQ(Matmul2D(x, y).type().ToString(), "bf16[2,2]");
  EXPECT_EQ(Matmul2D(y, x).type().ToString(), "bf16[2,2]");
}

}  // namespace
}  // namespace tessera::ir::ops::testing
