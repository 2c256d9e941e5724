// Collectives: their types, their results on every shard, batching and transposes. OnGrid evaluates
// one op on the shards of a 2 x 3 grid of devices.
#include "ir/transform/testing/transform_checks.h"

namespace tessera::ir {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): helpers of tests
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Scope Grid(bool check_vma = true) {
  return MeshScope({{"i", 2, AxisType::kManual}, {"j", 3, AxisType::kManual}}, check_vma);
}
const AxisSet kIJ = {"i", "j"};

// Evaluates one op on the shards of the grid. Shard d holds blocks[d].
std::vector<Array> OnGrid(const std::vector<Array>& blocks, const Body& body) {
  const Type t = Varying(MakeType(blocks[0].dtype(), blocks[0].shape()), kIJ);
  const FunctionRef f = Fn(Grid(), {t}, body);
  Evaluator ev;
  absl::StatusOr<std::vector<Shards>> out =
      ev.RunOnDevices({0, 1, 2, 3, 4, 5}, *f, {Shards(blocks.begin(), blocks.end())});
  EXPECT_THAT(out, IsOk());
  return {(*out)[0].begin(), (*out)[0].end()};
}
std::vector<Array> Blocks(DType dtype, Dims shape) {
  std::vector<Array> out;
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  for (int shard = 0; shard < 6; ++shard) {
    std::vector<double> values;
    for (int64_t k = 0; k < n; ++k) values.push_back(10 * shard + static_cast<double>(k));
    out.push_back(Array::Of(dtype, shape, values));
  }
  return out;
}

TEST(Psum, SumsOverOneAxisOrBoth) {
  const auto blocks = Blocks(DType::kF32, {2});
  const auto over_i = OnGrid(blocks, [](Builder&, const std::vector<Value>& p) {
    return std::vector<Value>{Psum(p[0], {"i"})};
  });
  EXPECT_THAT(over_i[1].ToDoubles(), ElementsAre(10 + 40, 11 + 41));
  const auto all = OnGrid(blocks, [](Builder&, const std::vector<Value>& p) {
    return std::vector<Value>{Psum(p[0], {"i", "j"})};
  });
  EXPECT_THAT(all[5].ToDoubles(), ElementsAre(150, 156));
}

TEST(Psum, AccumulatesWide) {
  std::vector<Array> blocks;
  for (double v : {256.0, 1.0, 1.0, 1.0, 1.0, 0.0})
    blocks.push_back(Array::Of(DType::kBF16, {1}, std::vector<double>{v}));
  const auto out = OnGrid(blocks, [](Builder&, const std::vector<Value>& p) {
    return std::vector<Value>{Psum(p[0], {"i", "j"})};
  });
  EXPECT_EQ(out[0].At(0), 260);  // summed step by step in bf16 it would stay 256
}

TEST(Psum, CountsTrueBools) {
  std::vector<Array> blocks;
  for (int v : {1, 0, 1, 1, 0, 1})
    blocks.push_back(Array::Of(DType::kBool, {1}, std::vector<double>{double(v)}));
  const auto out = OnGrid(blocks, [](Builder&, const std::vector<Value>& p) {
    return std::vector<Value>{Psum(p[0], {"i", "j"})};
  });
  EXPECT_EQ(out[3].dtype(), DType::kS32);
  EXPECT_EQ(out[3].IntAt(0), 4);
}

TEST(Psum, IntegersWrap) {
  std::vector<Array> blocks(6, Array::ScalarInt(DType::kS32, 0x7fffffff).Reshaped({1}));
  const auto out = OnGrid(blocks, [](Builder&, const std::vector<Value>& p) {
    return std::vector<Value>{Psum(p[0], {"i"})};
  });
  EXPECT_EQ(out[0].IntAt(0), -2);
}

TEST(Pextrema, PickAlongTheAxisAndKeepNan) {
  auto blocks = Blocks(DType::kF32, {1});
  const Body both = [](Builder&, const std::vector<Value>& p) {
    return std::vector<Value>{Pmax(p[0], {"j"}) - Pmin(p[0], {"j"})};
  };
  EXPECT_THAT(OnGrid(blocks, both)[4].ToDoubles(), ElementsAre(20));
  blocks[1].Set(0, std::nan(""));
  EXPECT_TRUE(std::isnan(OnGrid(blocks, both)[0].At(0)));
  EXPECT_THAT(OnGrid(blocks, both)[3].ToDoubles(), ElementsAre(20));
}

TEST(AllGather, StacksOrConcatenates) {
  const auto blocks = Blocks(DType::kS32, {2});
  const auto tiled = OnGrid(blocks, [](Builder&, const std::vector<Value>& p) {
    return std::vector<Value>{AllGather(p[0], {"j"}, 0, true)};
  });
  EXPECT_THAT(tiled[4].ToDoubles(), ElementsAre(30, 31, 40, 41, 50, 51));
  const auto stacked = OnGrid(blocks, [](Builder&, const std::vector<Value>& p) {
    return std::vector<Value>{AllGather(p[0], {"j"}, 1, false)};
  });
  EXPECT_EQ(stacked[4].shape(), (Dims{2, 3}));
  EXPECT_THAT(stacked[4].ToDoubles(), ElementsAre(30, 40, 50, 31, 41, 51));
}

TEST(PsumScatter, EachDeviceGetsItsPiece) {
  const auto blocks = Blocks(DType::kF32, {3});
  const auto out = OnGrid(blocks, [](Builder&, const std::vector<Value>& p) {
    return std::vector<Value>{PsumScatter(p[0], {"j"}, 0, false)};
  });
  EXPECT_EQ(out[1].rank(), 0);
  EXPECT_EQ(out[1].At(0), 1 + 11 + 21);
  EXPECT_EQ(out[5].At(0), 32 + 42 + 52);
}

TEST(AllToAll, UntiledExchangesRows) {
  const auto blocks = Blocks(DType::kF32, {3, 2});
  const auto out = OnGrid(blocks, [](Builder&, const std::vector<Value>& p) {
    return std::vector<Value>{AllToAll(p[0], {"j"}, 0, 1, false)};
  });
  EXPECT_EQ(out[1].shape(), (Dims{2, 3}));
  // Device (0,1) holds row 1 of each device in its group, as columns.
  EXPECT_THAT(out[1].ToDoubles(), ElementsAre(2, 12, 22, 3, 13, 23));
}

// The functions of ops.h cast operands that do not vary, and the ops themselves refuse them, as in
// JAX.
TEST(Typing, FollowsJax) {
  const Type invarying = F32({4}), v = Varying(F32({4}), {"i"}), vv = Varying(F32({6}), kIJ);
  auto type_of = [](const Type& t, const Body& body) {
    return Fn(Grid(), {t}, body)->result_types()[0].ToString();
  };
  auto emit = [](const OpDef& def, Attrs attrs) {
    return [&def, attrs](Builder& b, const std::vector<Value>& p) { return b.Emit(def, p, attrs); };
  };
  EXPECT_EQ(
      type_of(vv, [](Builder&, const auto& p) { return std::vector<Value>{Psum(p[0], {"i"})}; }),
      "f32[6]{V:j}");
  // An invarying operand is cast, so that the result is n times its value.
  EXPECT_EQ(type_of(invarying,
                    [](Builder&, const auto& p) { return std::vector<Value>{Psum(p[0], {"i"})}; }),
            "f32[4]");
  EXPECT_EQ(type_of(vv,
                    [](Builder&, const auto& p) {
                      return std::vector<Value>{AllGather(p[0], {"j"}, 0, true)};
                    }),
            "f32[18]{V:i,j}");
  EXPECT_EQ(type_of(vv,
                    [](Builder&, const auto& p) {
                      return std::vector<Value>{AllGather(p[0], {"j"}, 0, true, "invarying")};
                    }),
            "f32[18]{V:i}");
  EXPECT_EQ(type_of(vv,
                    [](Builder&, const auto& p) {
                      return std::vector<Value>{PsumScatter(p[0], {"j"}, 0, true)};
                    }),
            "f32[2]{V:i,j}");

  const auto mixed = TryFn(Grid(), {v}, [](Builder&, const std::vector<Value>& p) {
    return std::vector<Value>{Psum(p[0], {"i", "j"})};
  });
  EXPECT_THAT(mixed.status(), ReasonIs("VALUE_ERROR"));
  EXPECT_THAT(std::string(mixed.status().message()),
              HasSubstr("psum can only accept axis_name which corresponds to one of"));
  const auto strict = TryFn(Grid(), {invarying}, emit(ops::kPsum, {{"axes", AxisList{"i"}}}));
  EXPECT_THAT(std::string(strict.status().message()),
              HasSubstr("must be applied to a device-varying type"));
  const auto again = TryFn(Grid(), {v}, emit(ops::kPvary, {{"axes", AxisList{"i"}}}));
  EXPECT_THAT(std::string(again.status().message()), HasSubstr("Unsupported pcast from=varying"));
  // Without checks, types have no states along axes.
  EXPECT_EQ(Fn(Grid(false), {vv},
               [](Builder&, const auto& p) {
                 return std::vector<Value>{Pvary(Psum(p[0], {"i"}), {"i"})};
               })
                ->result_types()[0]
                .ToString(),
            "f32[6]");
}

// Operand sizes that do not fit the group are refused, with JAX's words.
TEST(Typing, OperandSizesMustFitTheGroup) {
  const Type v = Varying(F32({4}), kIJ);
  auto error_text = [&](const Body& body) {
    return std::string(TryFn(Grid(), {v}, body).status().message());
  };
  EXPECT_THAT(error_text([](Builder&, const auto& p) {
                return std::vector<Value>{PsumScatter(p[0], {"j"}, 0, true)};
              }),
              HasSubstr("must be divisible by"));
  EXPECT_THAT(error_text([](Builder&, const auto& p) {
                return std::vector<Value>{PsumScatter(p[0], {"j"}, 0, false)};
              }),
              HasSubstr("must match"));
  EXPECT_THAT(error_text([](Builder&, const auto& p) {
                return std::vector<Value>{AllToAll(p[0], {"j"}, 0, 0, false)};
              }),
              HasSubstr("all_to_all requires"));
  EXPECT_THAT(error_text([](Builder&, const auto& p) {
                return std::vector<Value>{AllGather(p[0], {"j"}, 2, true)};
              }),
              HasSubstr("all_gather_dimension is 2"));
  EXPECT_THAT(error_text([](Builder&, const auto& p) {
                return std::vector<Value>{AllGather(p[0], {"q"}, 0, true)};
              }),
              HasSubstr("Found an unbound axis name: q"));
}

// Returns a manual_computation with `body` as its body, so that the generic checks of
// transform_checks.h run it on all shards.
FunctionRef ManualFn(const Body& body, bool check_vma, Dims shape) {
  const Scope outer = MeshScope({{"i", 2}, {"j", 3}});
  const std::vector<PartitionSpec> specs = {{{{"i", "j"}}, {}, {}, {}}};
  shape[0] *= 6;
  return Fn(outer, {F64(shape)}, [&](Builder& b, const std::vector<Value>& p) {
    const auto blocks = ManualShardTypes(outer, TypesOf(p), specs, {"i", "j"}, check_vma);
    const FunctionRef f = Fn(ManualScope(outer, {"i", "j"}, check_vma), blocks, body);
    return ManualComputation(b, f, p, specs, specs, {"i", "j"}, check_vma);
  });
}

// Every collective inside one shard_map, with tracked types and without: derivatives of both modes,
// and vmap.
TEST(Rules, DerivativesAndBatching) {
  struct Row {
    const char* name;
    std::function<Value(Value)> op;
  };
  const Row rows[] = {
      {"psum", [](Value x) { return Psum(x, {"j"}); }},
      {"psum both",
       [](Value x) {
         return Psum(x, {"i", "j"});
       }},
      {"psum psum", [](Value x) { return Psum(Psum(x, {"j"}), {"i"}); }},
      {"gather tiled", [](Value x) { return AllGather(x, {"j"}, 1, true); }},
      {"gather stacked", [](Value x) { return AllGather(x, {"j"}, 1, false); }},
      {"gather invarying", [](Value x) { return AllGather(x, {"i"}, 1, true, "invarying"); }},
      {"gather invarying stacked",
       [](Value x) { return AllGather(x, {"i"}, 2, false, "invarying"); }},
      {"scatter tiled", [](Value x) { return PsumScatter(x, {"j"}, 1, true); }},
      {"scatter", [](Value x) { return PsumScatter(x, {"j"}, 0, false); }},
      {"permute",
       [](Value x) {
         return Ppermute(x, {"i", "j"}, {{0, 3}, {3, 1}, {5, 0}});
       }},
      {"all_to_all tiled", [](Value x) { return AllToAll(x, {"j"}, 1, 0, true); }},
      {"all_to_all", [](Value x) { return AllToAll(x, {"j"}, 0, 1, false); }},
  };
  for (const Row& row : rows) {
    for (bool check_vma : {true, false}) {
      SCOPED_TRACE(std::string(row.name) + (check_vma ? "" : ", unchecked"));
      const FunctionRef f = ManualFn(
          [&](Builder&, const std::vector<Value>& p) {
            return std::vector<Value>{Sin(row.op(p[0] * p[0]))};
          },
          check_vma, {3, 6});
      CheckDerivatives(*f, 2, 1e-5);
      for (int dim : {0, 1, 2}) CheckBatch(*f, {dim});
    }
  }
}

TEST(Rules, PextremaBatch) {
  const FunctionRef f = ManualFn(
      [](Builder&, const std::vector<Value>& p) {
        return std::vector<Value>{Pmax(p[0], {"j"}) + Pmin(p[0], {"i"})};
      },
      true, {1, 2});
  CheckBatch(*f, {1});
}

}  // namespace
}  // namespace tessera::ir
