// Proves which graph a computation becomes, that computations without a scalar form have none, and
// how many neighbours a kernel combines.
#include "ir/derive/computation_graph.h"

#include "ir/ops.h"
#include "ir/transform/testing/transform_checks.h"

namespace tessera::ir {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): helpers of tests
using V = std::vector<Value>;

std::string GraphText(const std::vector<DType>& params, const std::function<V(const V&)>& body) {
  std::vector<Type> types;
  for (DType d : params) types.push_back(MakeType(d, {}));
  const std::optional<ScalarGraph> graph =
      GraphOf(*Fn(types, [&](Builder&, const V& v) { return body(v); }));
  return graph ? graph->ToString() : "none";
}

TEST(GraphOf, HasTheOpsAndConstants) {
  EXPECT_EQ(GraphText({DType::kF32, DType::kF32},
                      [](const V& v) {
                        const Value twice = v[1] * FullLike(v[1], 2);
                        return V{v[0] - twice, v[0]};
                      }),
            "%0 = Input 0 : f32\n"
            "%1 = Input 1 : f32\n"
            "%2 = Constant 2 : f32\n"
            "%3 = Mul %1, %2 : f32\n"
            "%4 = Sub %0, %3 : f32\n"
            "return %4, %0\n");
}

// The length is bounded by the rows, by the number of reads of a kernel, and by its computation.
TEST(RunLength, IsAPowerOfTwoWithinTheKernelBounds) {
  const auto graph_of = [](int operands, int nodes) {
    ScalarGraph graph;
    graph.nodes.resize(nodes);
    graph.roots.resize(operands);
    return graph;
  };
  const std::vector<std::pair<int64_t, int64_t>> lengths = {{2, 2}, {3, 4},   {4, 4},
                                                            {5, 8}, {17, 16}, {999, 16}};
  for (const auto& [rows, length] : lengths)
    EXPECT_EQ(RunLength(rows, graph_of(1, 3)), length) << rows;
  EXPECT_EQ(RunLength(1000, graph_of(3, 6)), 4);
  EXPECT_EQ(RunLength(1000, graph_of(1, 16)), 8);
  EXPECT_EQ(RunLength(1000, graph_of(8, 100)), 2);
  EXPECT_EQ(NumRuns(1000, graph_of(1, 3)), 63);
  EXPECT_EQ(NumRuns(2, graph_of(1, 3)), 1);
}

// Each op rounds its result, as it does outside a computation.
TEST(GraphOf, RoundsNarrowFloatsAfterEachOp) {
  EXPECT_EQ(GraphText({DType::kBF16}, [](const V& v) { return V{v[0] * FullLike(v[0], 3)}; }),
            "%0 = Input 0 : bf16\n"
            "%1 = Convert %0 : f32\n"
            "%2 = Constant 3 : f32\n"
            "%3 = Convert %2 : bf16\n"
            "%4 = Convert %3 : f32\n"
            "%5 = Mul %1, %4 : f32\n"
            "%6 = Convert %5 : bf16\n"
            "return %6\n");
}

TEST(GraphOf, InlinesCalls) {
  const FunctionRef twice =
      Fn({MakeType(DType::kS32, {})}, [](Builder&, const V& v) { return V{v[0] + v[0]}; });
  EXPECT_EQ(GraphText({DType::kS32, DType::kS32},
                      [&](const V& v) { return Call(v[0].builder(), twice, {v[1]}); }),
            "%0 = Input 1 : s32\n%1 = Add %0, %0 : s32\nreturn %1\n");
}

TEST(GraphOf, FunctionsWithoutAScalarFormHaveNoGraph) {
  const Type f32 = MakeType(DType::kF32, {});
  const FunctionRef positive =
      Fn({f32}, [](Builder&, const V& v) { return V{Compare(v[0], FullLike(v[0], 0), "GT")}; });
  const FunctionRef less =
      Fn({f32}, [](Builder&, const V& v) { return V{v[0] - FullLike(v[0], 1)}; });
  EXPECT_EQ(
      GraphText({DType::kF32},
                [&](const V& v) { return While(v[0].builder(), positive, less, {v[0]}, 0, 0); }),
      "none");
  EXPECT_EQ(GraphText({DType::kC64}, [](const V& v) { return v; }), "none");
  EXPECT_NE(GraphText({DType::kF32}, [](const V& v) { return V(8, v[0]); }), "none");
  EXPECT_EQ(GraphText({DType::kF32}, [](const V& v) { return V(9, v[0]); }), "none");
  // Too many nodes: a hundred are accepted, twice as many are not.
  const auto powers = [](int n) {
    return GraphText({DType::kF32}, [n](const V& v) {
      Value y = v[0];
      for (int i = 0; i < n; ++i) y = y * v[0];
      return V{y};
    });
  };
  EXPECT_NE(powers(100), "none");
  EXPECT_EQ(powers(200), "none");
}

}  // namespace
}  // namespace tessera::ir
