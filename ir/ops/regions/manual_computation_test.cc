// Programs of per-shard code: values, types, derivatives, batching, and the errors at the boundary
// of shard_map. Names such as A05 are the numbers of programs from JAX's documentation, whose
// behaviour the SDK must match.
#include "ir/transform/testing/transform_checks.h"

namespace tessera::ir {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): helpers of tests
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using Specs = std::vector<PartitionSpec>;

PartitionSpec P(DimAxes dims = {}) { return {std::move(dims), {}, {}, {}}; }
Array Of(Dims shape, std::vector<double> values) {
  return Array::Of(DType::kF64, std::move(shape), values);
}
std::vector<double> Arange(int n) {
  std::vector<double> out(n);
  for (int i = 0; i < n; ++i) out[i] = i;
  return out;
}

// Builds a shard_map over every axis of `mesh`, or over `axes` if there are any.
struct ShardMap {
  Mesh mesh;
  std::vector<Type> args;
  Specs in, out;
  bool check_vma = true;
  AxisList axes = {};  // if empty, all axes

  absl::StatusOr<FunctionRef> Try(const Body& body) const {
    AxisList manual = axes;
    for (size_t i = 0; axes.empty() && i < mesh.axes.size(); ++i)
      manual.push_back(mesh.axes[i].name);
    const Scope outer{mesh};
    return TryFn(outer, args, [&](Builder& b, const std::vector<Value>& p) {
      const Scope inside = ManualScope(outer, manual, check_vma);
      const std::vector<Type> blocks = ManualShardTypes(outer, args, in, manual, check_vma);
      return ManualComputation(b, ValueOrThrow(TryFn(inside, blocks, body)), p, in, out, manual,
                               check_vma);
    });
  }
  FunctionRef operator()(const Body& body) const {
    absl::StatusOr<FunctionRef> f = Try(body);
    if (!f.ok()) {
      ADD_FAILURE() << f.status();
      Throw(f.status());
    }
    return *f;
  }
  std::string ErrorText(const Body& body, std::string_view reason) const {
    const absl::Status s = Try(body).status();
    EXPECT_THAT(s, ReasonIs(std::string(reason)));
    return std::string(s.message());
  }
};
const Body kIdentity = [](Builder&, const std::vector<Value>& p) { return p; };

Mesh MeshOf(std::vector<MeshAxis> axes) { return Mesh{std::move(axes)}; }

TEST(A03, SecondPsumVariesAgainAndMultiplies) {
  const ShardMap sm{MeshOf({{"i", 4}}), {F64({4})}, {P({{"i"}})}, {P()}};
  const FunctionRef f = sm([](Builder&, const std::vector<Value>& p) {
    const Value once = Psum(p[0], {"i"});
    EXPECT_EQ(once.type().ToString(), "f64[1]");
    return std::vector<Value>{Psum(once, {"i"})};
  });
  EXPECT_THAT(Eval1(*f, {Of({4}, Arange(4))}), ElementsAre(24));
  CheckDerivatives(*f);
}

TEST(A04, OutSpecsMustNotLeaveOutVaryingAxes) {
  ShardMap sm{MeshOf({{"x", 2}, {"y", 2}, {"z", 2}}),
              {F64({4, 2, 2})},
              {P({{"x"}, {"y"}, {"z"}})},
              {P({{"x"}})}};
  const Body twice = [](Builder&, const std::vector<Value>& p) {
    return std::vector<Value>{p[0] + p[0]};
  };
  EXPECT_THAT(
      sm.ErrorText(twice, "VALUE_ERROR"),
      HasSubstr("only varying across mesh axes {x} and not {y,z}, but it was inferred to be "
                "possibly varying over {x,y,z}"));
  sm.check_vma = false;
  const FunctionRef f = sm(twice);
  EXPECT_EQ(f->result_types()[0].shape, (Dims{4, 1, 1}));
  EXPECT_THAT(Eval1(*f, {Of({4, 2, 2}, Arange(16))}), ElementsAre(0, 8, 16, 24));
}

// A gradient inside the body with respect to an invarying parameter is summed over the shards,
// unless the parameter is cast first.
TEST(A05, GradientOfInvaryingParameterIsSummed) {
  for (bool cast : {false, true}) {
    const ShardMap sm{MeshOf({{"d", 2}}), {F64({2}), F64({4, 2})}, {P(), P({{"d"}})}, {P({{"d"}})}};
    const FunctionRef f = sm([&](Builder& b, const std::vector<Value>& p) {
      const Value params = cast ? Pvary(p[0], {"d"}) : p[0];
      const FunctionRef loss = Fn(b.scope(), {params.type(), Varying(F64({2}), {"d"})},
                                  [](Builder&, const std::vector<Value>& q) {
                                    return std::vector<Value>{ReduceSum(q[0] * q[1], {0})};
                                  });
      const BatchResult grads = ValueOrThrow(Batch(*GradFn(*loss, {true, false}), {-1, 0}, 2, {0}));
      return Inline(b, *grads.fn, {params, p[1]});
    });
    const std::vector<double> samples = {0, 1, 1, 1, 1, 0, 0, 0};
    const auto got = Eval1(*f, {Of({2}, {1, 2}), Of({4, 2}, samples)});
    if (cast)
      EXPECT_THAT(got, ElementsAreArray(samples));
    else
      EXPECT_THAT(got, ElementsAre(1, 1, 1, 1, 1, 1, 1, 1));
  }
}

TEST(A06, PsumTransposeDependsOnCheckVma) {
  for (bool check_vma : {true, false}) {
    const ShardMap sm{MeshOf({{"i", 4}}),
                      {F64({4}), F64({4})},
                      {P({{"i"}}), P({{"i"}})},
                      {P({{"i"}})},
                      check_vma};
    const FunctionRef f = sm([&](Builder& b, const std::vector<Value>& p) {
      const FunctionRef loss =
          Fn(b.scope(), {p[0].type(), p[1].type()}, [](Builder&, const std::vector<Value>& q) {
            return std::vector<Value>{Psum(ReduceSum(q[0] * q[1], {0}), {"i"})};
          });
      return Inline(b, *GradFn(*loss, {true, false}), p);
    });
    const auto got = Eval1(*f, {Of({4}, {1, 1, 1, 1}), Of({4}, {1, 2, 3, 4})});
    if (check_vma)
      EXPECT_THAT(got, ElementsAre(1, 2, 3, 4));
    else
      EXPECT_THAT(got, ElementsAre(4, 8, 12, 16));
  }
}

TEST(A07, GradientOfShardMapIsTheSameInBothModes) {
  for (bool check_vma : {true, false}) {
    const ShardMap sm{MeshOf({{"i", 4}}), {F64({4})}, {P({{"i"}})}, {P()}, check_vma};
    const FunctionRef f = sm([](Builder&, const std::vector<Value>& p) {
      return std::vector<Value>{Psum(ReduceSum(p[0] * p[0], {0}), {"i"})};
    });
    EXPECT_THAT(Eval1(*GradFn(*f, {true}), {Of({4}, Arange(4))}), ElementsAre(0, 2, 4, 6));
    CheckDerivatives(*f, 2);
  }
}

TEST(A08, InvaryingOperandIsCastOnce) {
  const ShardMap sm{MeshOf({{"i", 2}}), {F64({6}), F64({3})}, {P({{"i"}}), P()}, {P({{"i"}})}};
  const FunctionRef f =
      sm([](Builder&, const std::vector<Value>& p) { return std::vector<Value>{p[0] * p[1]}; });
  EXPECT_THAT(Eval1(*f, {Of({6}, Arange(6)), Of({3}, {10, 20, 30})}),
              ElementsAre(0, 20, 60, 30, 80, 150));
  int casts = 0;
  for (const Op& op : f->ops[0].regions[0]->ops) casts += op.def == &ops::kPvary;
  EXPECT_EQ(casts, 1);
  // The op itself is strict, unlike the functions of ops.h.
  EXPECT_THAT(
      sm.ErrorText([](Builder& b, const std::vector<Value>& p) { return b.Emit(ops::kMul, p); },
                   "VALUE_ERROR"),
      HasSubstr("requires varying manual axes to match"));
  CheckDerivatives(*f, 2);
}

TEST(A09, ScanCarryMustKeepItsStates) {
  const ShardMap sm{
      MeshOf({{"i", 2}}), {F64({6}), F64({3})}, {P({{"i"}}), P()}, {P({{"i"}}), P({{"i"}})}};
  auto swap_twice = [](bool cast) {
    return [=](Builder& b, const std::vector<Value>& p) {
      const Value y = cast ? Pvary(p[1], {"i"}) : p[1];
      const FunctionRef step =
          Fn(b.scope(), {p[0].type(), y.type()}, [](Builder&, const std::vector<Value>& q) {
            return std::vector<Value>{q[1], q[0]};
          });
      return Scan(b, step, {p[0], y}, 0, 2, 2);
    };
  };
  const std::string error = sm.ErrorText(swap_twice(false), "TYPE_ERROR");
  EXPECT_THAT(error, HasSubstr("carry input and carry output must have equal types"));
  const FunctionRef f = sm(swap_twice(true));
  const auto out = Eval(*f, {Of({6}, Arange(6)), Of({3}, Arange(3))});
  EXPECT_THAT(out[0].ToDoubles(), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(out[1].ToDoubles(), ElementsAre(0, 1, 2, 0, 1, 2));
  CheckDerivatives(*f);
}

TEST(A09, HintNamesTheCast) {
  const ShardMap sm{MeshOf({{"i", 2}}), {F64({6})}, {P({{"i"}})}, {P({{"i"}})}};
  EXPECT_THAT(sm.ErrorText(
                  [](Builder& b, const std::vector<Value>& p) {
                    const FunctionRef step = Fn(b.scope(), {p[0].type(), F64({3})},
                                                [](Builder&, const std::vector<Value>& q) {
                                                  return std::vector<Value>{q[1] + q[0]};
                                                });
                    return Scan(b, step, {p[0], Zeros(b, F64({3}))}, 1, 1, 2);
                  },
                  "TYPE_ERROR"),
              HasSubstr("pcast(..., ('i',), to='varying') to the initial carry value corresponding "
                        "to carry[0]"));
}

TEST(A11, GatherAndScatter) {
  const Mesh mesh = MeshOf({{"i", 4}});
  const auto scatter = [](Builder&, const std::vector<Value>& p) {
    return std::vector<Value>{PsumScatter(p[0], {"i"}, 1, /*tiled=*/true)};
  };
  const FunctionRef a = ShardMap{mesh, {F64({4, 4})}, {P({{"i"}})}, {P({{"i"}})}}(scatter);
  EXPECT_THAT(Eval1(*a, {Of({4, 4}, Arange(16))}), ElementsAre(24, 28, 32, 36));
  CheckDerivatives(*a);

  auto gather = [](std::string_view to) {
    return [=](Builder&, const std::vector<Value>& p) {
      return std::vector<Value>{AllGather(p[0], {"i"}, 0, /*tiled=*/true, to)};
    };
  };
  const ShardMap sharded{mesh, {F64({4})}, {P({{"i"}})}, {P({{"i"}})}},
      whole{mesh, {F64({4})}, {P({{"i"}})}, {P()}};
  const FunctionRef b = sharded(gather("varying"));
  EXPECT_THAT(Eval1(*b, {Of({4}, Arange(4))}),
              ElementsAre(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3));
  CheckDerivatives(*b);
  EXPECT_THAT(whole.ErrorText(gather("varying"), "VALUE_ERROR"), HasSubstr("require replication"));
  const FunctionRef d = whole(gather("invarying"));
  EXPECT_THAT(Eval1(*d, {Of({4}, Arange(4))}), ElementsAre(0, 1, 2, 3));
  CheckDerivatives(*d);
}

TEST(A12, Ppermute) {
  const ShardMap sm{MeshOf({{"i", 4}}), {F64({4})}, {P({{"i"}})}, {P({{"i"}})}};
  auto permute = [](std::vector<std::pair<int64_t, int64_t>> perm) {
    return [=](Builder&, const std::vector<Value>& p) {
      return std::vector<Value>{Ppermute(p[0], {"i"}, perm)};
    };
  };
  const Array x = Of({4}, {10, 20, 30, 40});
  EXPECT_THAT(Eval1(*sm(permute({{0, 1}, {1, 2}})), {x}), ElementsAre(0, 10, 20, 0));
  const FunctionRef rotate = sm(permute({{0, 1}, {1, 2}, {2, 3}, {3, 0}}));
  EXPECT_THAT(Eval1(*rotate, {x}), ElementsAre(40, 10, 20, 30));
  CheckDerivatives(*rotate);
  EXPECT_THAT(Eval1(*VjpFn(*rotate, {true}), {x, Of({4}, {1, 2, 3, 4})}), ElementsAre(2, 3, 4, 1));
  EXPECT_THAT(sm.ErrorText(permute({{0, 1}, {2, 1}}), "VALUE_ERROR"),
              HasSubstr("sources and destinations must be unique"));
  EXPECT_THAT(sm.ErrorText(permute({{0, 4}}), "VALUE_ERROR"), HasSubstr("perm names position 4"));
}

TEST(A13, AllToAllAndAxisIndex) {
  const ShardMap a{MeshOf({{"i", 2}}), {F64({4, 2})}, {P({{"i"}})}, {P({{}, {"i"}})}};
  const FunctionRef f = a([](Builder&, const std::vector<Value>& p) {
    return std::vector<Value>{AllToAll(p[0], {"i"}, 1, 0, /*tiled=*/true)};
  });
  EXPECT_THAT(Eval1(*f, {Of({4, 2}, Arange(8))}), ElementsAreArray(Arange(8)));
  CheckDerivatives(*f);

  const ShardMap b{MeshOf({{"i", 4}, {"j", 2}}), {}, {}, {P({{"i"}, {"j"}})}};
  const FunctionRef g = b([](Builder& bb, const std::vector<Value>&) {
    return std::vector<Value>{Reshape(AxisIndex(bb, {"i", "j"}), {1, 1})};
  });
  EXPECT_EQ(g->result_types()[0].ToString(), "s32[4,2]");
  EXPECT_THAT(Eval1(*g, {}), ElementsAreArray(Arange(8)));
}

TEST(A13, UnboundNamesAreNameErrors) {
  const auto outside = TryFn(
      MeshScope({{"i", 2}}), {F64({2})},
      [](Builder&, const std::vector<Value>& p) { return std::vector<Value>{Psum(p[0], {"i"})}; });
  EXPECT_THAT(outside.status(), ReasonIs("NAME_ERROR"));
  EXPECT_THAT(std::string(outside.status().message()), HasSubstr("Found an unbound axis name: i"));
  EXPECT_THAT(std::string(outside.status().message()), HasSubstr("shard_map"));
}

TEST(A14, Boundary) {
  const Mesh mesh = MeshOf({{"x", 2}});
  EXPECT_THAT(
      (ShardMap{mesh, {F64({5})}, {P({{"x"}})}, {P({{"x"}})}}.ErrorText(kIdentity, "VALUE_ERROR")),
      HasSubstr("not evenly divisible"));
  EXPECT_THAT(
      (ShardMap{mesh, {F64({})}, {P()}, {P({{"x"}})}}.ErrorText(kIdentity, "VALUE_ERROR")),
      ::testing::AllOf(HasSubstr("too long"), HasSubstr("add at least one (singleton) axis")));
  EXPECT_THAT((ShardMap{mesh, {F64({4})}, {P({{"q"}})}, {P()}}.ErrorText(kIdentity, "VALUE_ERROR")),
              ::testing::AllOf(HasSubstr("must refer to an axis marked as manual"),
                               HasSubstr("in_specs[0] refers to 'q'")));
  EXPECT_THAT(
      (ShardMap{mesh, {F64({4})}, {P({{}, {"x"}})}, {P()}}.ErrorText(kIdentity, "VALUE_ERROR")),
      HasSubstr("in_specs entry which is too long"));
  EXPECT_THAT(
      (ShardMap{mesh, {F64({4})}, {P()}, {P()}, true, {"q"}}.ErrorText(kIdentity, "VALUE_ERROR")),
      HasSubstr("subset"));
  EXPECT_THAT((ShardMap{Mesh{}, {F64({4})}, {P()}, {P()}}.ErrorText(kIdentity, "VALUE_ERROR")),
              HasSubstr("requires a non-empty mesh"));
  EXPECT_THAT((ShardMap{mesh, {F64({4})}, {}, {P()}}.ErrorText(kIdentity, "VALUE_ERROR")),
              HasSubstr("in_specs have 0 entries"));
}

TEST(A14, ShardedMatmul) {
  const ShardMap sm{MeshOf({{"x", 4}, {"y", 2}}),
                    {F64({8, 16}), F64({16, 4})},
                    {P({{"x"}, {"y"}}), P({{"y"}})},
                    {P({{"x"}})}};
  const FunctionRef f = sm([](Builder&, const std::vector<Value>& p) {
    return std::vector<Value>{Psum(Matmul2D(p[0], p[1]), {"y"})};
  });
  const auto c = Eval1(*f, {Of({8, 16}, Arange(128)), Of({16, 4}, Arange(64))});
  EXPECT_THAT(std::vector<double>(c.begin(), c.begin() + 4), ElementsAre(4960, 5080, 5200, 5320));
  EXPECT_THAT(std::vector<double>(c.end() - 4, c.end()), ElementsAre(58720, 60632, 62544, 64456));
  CheckDerivatives(*f);
}

TEST(Specs, AxisOrderWithinADimCounts) {
  const ShardMap sm{MeshOf({{"x", 2}, {"y", 2}}), {F64({4})}, {P({{"x", "y"}})}, {P({{"y", "x"}})}};
  EXPECT_THAT(Eval1(*sm(kIdentity), {Of({4}, Arange(4))}), ElementsAre(0, 2, 1, 3));
}

TEST(ExplicitAxes, InSpecsAssertAndResultsCarryThem) {
  Type x = F64({8, 4});
  x.sharding = {{"x"}, {"y"}};
  const Mesh mesh = MeshOf({{"x", 2, AxisType::kExplicit}, {"y", 2, AxisType::kExplicit}});
  const ShardMap fits{mesh, {x}, {P({{"x"}, {"y"}})}, {P({{"x"}, {"y"}})}};
  EXPECT_EQ(fits(kIdentity)->result_types()[0], x);
  EXPECT_THAT((ShardMap{mesh, {x}, {P({{"y"}, {"x"}})}, {P()}}.ErrorText(kIdentity, "VALUE_ERROR")),
              HasSubstr("does not match the specs of the input"));
  // The shard_map is partial, so that y stays in the types inside.
  const ShardMap partial{mesh, {x}, {P({{"x"}})}, {P({{"x"}})}, true, {"x"}};
  const FunctionRef f = partial([](Builder&, const std::vector<Value>& p) {
    EXPECT_EQ(p[0].type().ToString(), "f64[4,4@y]{V:x}");
    return std::vector<Value>{Sin(p[0])};
  });
  EXPECT_EQ(f->result_types()[0], x);
  CheckDerivatives(*f);
}

// Returns a body with everything that differentiation meets: invarying and varying inputs, scalar
// residuals, collectives in the middle, a scan, and a checkpoint.
FunctionRef MixedBody(bool check_vma) {
  const ShardMap sm{MeshOf({{"i", 2}, {"j", 2}}),
                    {F64({3}), F64({4, 3}), F64({})},
                    {P(), P({{"i"}}), P()},
                    {P({{"i"}}), P()},
                    check_vma};
  return sm([](Builder& b, const std::vector<Value>& p) {
    const Value w = Sin(p[0]) * BroadcastInDim(p[2], {3}, {});
    const Value x = Tanh(p[1] * BroadcastInDim(w, {2, 3}, {1}));
    const FunctionRef inner = Fn(b.scope(), {x.type()}, [](Builder&, const std::vector<Value>& q) {
      return std::vector<Value>{Sin(q[0]) * Psum(q[0], {"i"})};
    });
    const Value y = Checkpoint(b, inner, {x})[0];
    const Value s = ReduceSum(y, {0, 1});
    const Value scale = Exp(Sin(s));
    const Value total = Psum(s * scale, {"i"});
    const FunctionRef step =
        Fn(b.scope(), {total.type(), w.type(), total.type()},
           [](Builder&, const std::vector<Value>& q) {
             return std::vector<Value>{Sin(q[0]) * ReduceSum(q[1], {0}) + q[2]};
           });
    const Value looped = Scan(b, step, {total, w, Zeros(b, total.type())}, 2, 1, 3)[0];
    return std::vector<Value>{y * BroadcastInDim(scale, {2, 3}, {}), looped};
  });
}

TEST(Derivatives, OfMixedBodiesInBothModes) {
  // With check_vma=false too, a result that does not vary over j is one of several equal copies, so
  // its derivatives are right.
  for (bool check_vma : {true, false}) {
    SCOPED_TRACE(check_vma);
    CheckDerivatives(*MixedBody(check_vma), 2, 1e-5);
  }
}

TEST(Derivatives, ResidualsLeaveStackedOverTheAxesTheyVaryOn) {
  const ShardMap sm{MeshOf({{"i", 2}, {"j", 2}}), {F64({4})}, {P({{"i"}})}, {P()}};
  const FunctionRef f = sm([](Builder&, const std::vector<Value>& p) {
    return std::vector<Value>{Psum(Sin(ReduceSum(p[0] * p[0], {0})), {"i"})};
  });
  const Linearized lin = *Linearize(*f, {true});
  const auto types = lin.forward->result_types();
  bool scalar_residual = false;
  for (size_t r = 1; r < types.size(); ++r) {
    EXPECT_EQ(types[r].rank(), 1) << types[r].ToString();
    scalar_residual |= types[r].shape == Dims{2};
  }
  EXPECT_TRUE(scalar_residual);
}

TEST(Derivatives, InputsAreForwardedNotCopied) {
  const ShardMap sm{
      MeshOf({{"i", 2}}), {F64({4}), F64({4})}, {P({{"i"}}), P({{"i"}})}, {P({{"i"}})}};
  const FunctionRef f =
      sm([](Builder&, const std::vector<Value>& p) { return std::vector<Value>{p[0] * p[1]}; });
  const Linearized lin = *Linearize(*f, {true, true});
  EXPECT_EQ(lin.num_residuals, 2);
  for (int k = 0; k < 2; ++k) EXPECT_LT(lin.forward->results[1 + k], lin.forward->num_params);
}

TEST(Batching, EveryDeviceHasTheWholeBatch) {
  const FunctionRef f = MixedBody(true);
  CheckBatch(*f, {-1, 0, -1});
  CheckBatch(*f, {1, 2, 0});
  CheckBatch(*f, {0, -1, -1});
  CheckBatch(*VjpFn(*f, {true, true, true}), {-1, 1, -1, 0, -1});
}

// A shard_map in the body of another one may take a further axis, and the body then exchanges along
// both.
TEST(Nesting, InnerShardMapTakesTheOtherAxis) {
  const Mesh mesh = MeshOf({{"x", 2}, {"y", 2}});
  const ShardMap outer{mesh, {F64({4, 4})}, {P({{"x"}})}, {P({{"x"}})}, true, {"x"}};
  const FunctionRef f = outer([](Builder& b, const std::vector<Value>& p) {
    const Scope inside = ManualScope(b.scope(), {"y"}, true);
    const Specs specs = {P({{}, {"y"}})};
    const auto blocks = ManualShardTypes(b.scope(), TypesOf(p), specs, {"y"}, true);
    EXPECT_EQ(blocks[0].ToString(), "f64[2,2]{V:x,y}");
    const FunctionRef body = Fn(inside, blocks, [](Builder&, const std::vector<Value>& q) {
      return std::vector<Value>{Sin(q[0]) * Psum(q[0], {"x", "y"})};
    });
    return ManualComputation(b, body, p, specs, specs, {"y"});
  });
  const auto x = Of({4, 4}, Arange(16));
  const auto got = Eval1(*f, {x});
  // Element (r, c) is combined with those at rows r mod 2 and columns c mod 2 of every block.
  for (int r = 0; r < 4; ++r)
    for (int c = 0; c < 4; ++c) {
      double sum = 0;
      for (int br : {0, 2})
        for (int bc : {0, 2}) sum += (br + r % 2) * 4 + bc + c % 2;
      EXPECT_NEAR(got[r * 4 + c], std::sin(r * 4 + c) * sum, 1e-9);
    }
  CheckDerivatives(*f);
  CheckBatch(*f, {1});
}

TEST(Nesting, AxesMayNotBeTakenTwice) {
  const ShardMap outer{MeshOf({{"x", 2}}), {F64({4})}, {P({{"x"}})}, {P({{"x"}})}};
  EXPECT_THAT(outer.ErrorText(
                  [](Builder& b, const std::vector<Value>& p) {
                    return ManualComputation(b, Fn(b.scope(), TypesOf(p), kIdentity), p, {P()},
                                             {P()}, {"x"});
                  },
                  "VALUE_ERROR"),
              HasSubstr("already manual"));
}

TEST(ShardingConstraint, IsIdentityOnAutoAndAssertsOnExplicitAxes) {
  const Scope scope = MeshScope({{"a", 2}, {"e", 2, AxisType::kExplicit}});
  Type x = F64({4, 4});
  x.sharding = {{"e"}, {}};
  auto constrain = [&](const Scope& s, const Type& t, PartitionSpec spec) {
    return TryFn(s, {t}, [&](Builder&, const std::vector<Value>& p) {
      return std::vector<Value>{Sin(ShardingConstraint(p[0], spec))};
    });
  };
  const auto f = constrain(scope, x, P({{"e"}, {"a"}}));
  ASSERT_THAT(f, IsOk());
  CheckDerivatives(**f);
  CheckBatch(**f, {1});
  EXPECT_THAT(constrain(scope, x, P({{}, {"e"}})).status(), ReasonIs("SHARDING_TYPE_ERROR"));
  EXPECT_THAT(constrain(scope, x, P({{"e"}, {"q"}})).status(), ReasonIs("UNKNOWN_AXIS"));
  EXPECT_THAT(constrain(scope, F64({3}), P({{"a"}})).status(), ReasonIs("INDIVISIBLE"));
  const auto inside = constrain(MeshScope({{"m", 2, AxisType::kManual}}), F64({4}), P({{"m"}}));
  EXPECT_THAT(std::string(inside.status().message()), HasSubstr("contains a manual axes"));
}

}  // namespace
}  // namespace tessera::ir
