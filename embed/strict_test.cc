// Proves the SDK's checks that go beyond JAX's rules: diagnostics that it reports, and programs
// that it refuses under strict settings. The programs run on a cluster of four devices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "client/tessera.h"
#include "client/testing/evaluated.h"
#include "embed/testing/on_cluster.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::ErrorOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using StrictTest = testing::ClusterTest;

// Returns a function with a cond on x > 0 around a psum over `axis`. The predicate varies over both
// axes, because x does.
auto Diverging(const Mesh& mesh, const std::string& axis) {
  return jit(shard_map(
      [axis](const Array& x) {
        const Array scalar = reshape(x, {});
        const Array y = cond(
            scalar > 0, [&](const Array& a) { return lax::pcast(lax::psum(a, axis), axis); },
            [](const Array& a) { return a; }, scalar);
        return reshape(y, {1, 1});
      },
      mesh, P("x", "y"), P("x", "y")));
}

TEST_F(StrictTest, APredicateThatVariesOverACollectivesAxisIsReportedOrRefused) {
  const Mesh mesh = make_mesh({2, 2}, {"x", "y"}, {AxisType::kAuto, AxisType::kAuto});
  const Array same = array<float>({1, 2, 3, 4}, {2, 2});
  {
    const collect_diagnostics diagnostics;
    EXPECT_THAT(Diverging(mesh, "y")(same).get<float>(), ElementsAre(3, 3, 7, 7));
    ASSERT_THAT(diagnostics.list(), SizeIs(1));
    EXPECT_THAT(diagnostics.list()[0].message,
                AllOf(HasSubstr("cond: the predicate varies over 'y'"),
                      HasSubstr("psum over 'y' (strict_test.cc:"), HasSubstr("by a pmax")));
  }
  const strict_collectives strict;
  const Error e = ErrorOf([&] { Diverging(mesh, "x")(same); });
  EXPECT_EQ(e.kind(), ErrorKind::kValueError);
  EXPECT_THAT(e.what(), AllOf(HasSubstr("varies over 'x'"), HasSubstr("(strict_test.cc:")));

  const auto loop = shard_map(
      [](const Array& x) {
        return while_loop([](const Array& a) { return reshape(a, {}) < 10; },
                          [](const Array& a) { return lax::pcast(lax::pmax(a, "x"), "x") + 1; }, x);
      },
      make_mesh({2}, {"x"}, {AxisType::kAuto}), P("x"), P("x"));
  EXPECT_THAT(
      ErrorOf([&] {
        jit(loop)(array<float>({1, 2}));
      }).what(),
      AllOf(HasSubstr("while_loop: the predicate varies over 'x'"), HasSubstr("pmax over 'x'")));
}

TEST_F(StrictTest, APredicateThatIsInvariantOverTheCollectivesAxisIsAccepted) {
  const strict_collectives strict;
  const collect_diagnostics diagnostics;
  const Mesh mesh = make_mesh({2, 2}, {"x", "y"}, {AxisType::kAuto, AxisType::kAuto});
  const auto f = shard_map(
      [](const Array& x) {
        const Array all = lax::pmax(reshape(x, {}), "y");
        return reshape(cond(
                           all > 2, [&](const Array& a) { return lax::psum(a, "y"); },
                           [](const Array& a) { return lax::pmax(a, "y"); }, reshape(x, {})),
                       {1});
      },
      mesh, P("x", "y"), P("x"));
  EXPECT_THAT(jit(f)(array<float>({1, 2, 3, 4}, {2, 2})).get<float>(), ElementsAre(2, 7));
  EXPECT_THAT(diagnostics.list(), IsEmpty());
}

TEST_F(StrictTest, PsumsThatDerivativesInsertAreReported) {
  const Mesh mesh = make_mesh({4}, {"d"}, {AxisType::kAuto});
  const Array w = array<float>({1, 2}),
              xs = reshape(array<float>({0, 1, 2, 3, 4, 5, 6, 7}), {4, 2});
  const auto gradients = [&](bool per_device) {
    return jit(shard_map(
        [per_device](const Array& w, const Array& x) {
          const auto loss = [&](const Array& p) { return sum(p * x); };
          return grad(loss)(per_device ? lax::pcast(w, "d") : w);
        },
        mesh, {P(), P("d")}, per_device ? P("d") : P()));
  };
  {
    const collect_diagnostics diagnostics;
    EXPECT_THAT(gradients(false)(w, xs).get<float>(), ElementsAre(12, 16));
    ASSERT_THAT(diagnostics.list(), SizeIs(1));
    EXPECT_THAT(
        diagnostics.list()[0].message,
        AllOf(HasSubstr("inserts a psum over 'd' of a cotangent, f32[2]"),
              HasSubstr("8 B a device"), HasSubstr("(strict_test.cc:"), HasSubstr("by pcast")));
  }
  const collect_diagnostics diagnostics;
  EXPECT_THAT(gradients(true)(w, xs).get<float>(), SizeIs(8));
  EXPECT_THAT(diagnostics.list(), IsEmpty());
  // A psum that the program itself contains is not reported.
  const auto whole =
      shard_map([](const Array& x) { return lax::psum(sum(x * x), "d"); }, mesh, P("d"), P());
  EXPECT_THAT(jit(grad(whole))(xs).get<float>()[3], 6);
  EXPECT_THAT(diagnostics.list(), IsEmpty());
}

TEST_F(StrictTest, ReplicationBeyondABudgetIsRefused) {
  const Mesh mesh = make_mesh({4}, {"x"}, {AxisType::kAuto});
  const Array x = put(ones({64, 64}), mesh, P("x"));
  const auto gathered = [](const Array& a) {
    return jit([](const Array& v) { return with_sharding_constraint(sin(v), P()) + 1; })(a);
  };
  {
    const replication_budget budget(1 << 20);
    EXPECT_THAT(gathered(x).get<float>(), SizeIs(64 * 64));
  }
  const replication_budget budget(8 << 10);
  const Error e = ErrorOf([&] { gathered(x); });
  EXPECT_EQ(e.kind(), ErrorKind::kLimitExceeded);
  EXPECT_THAT(e.what(),
              AllOf(HasSubstr("replicates more than replication_budget, 8.0 KiB"),
                    HasSubstr("it gathers 16.0 KiB along 'x'"), HasSubstr("(strict_test.cc:")));
  // Replication that the program asks for by all_gather is not refused.
  const auto asked =
      shard_map([](const Array& v) { return lax::all_gather(v, "x", 0, /*tiled=*/true); }, mesh,
                P("x"), P("x"));
  EXPECT_THAT(jit(asked)(x).get<float>(), SizeIs(4 * 64 * 64));
}

}  // namespace
}  // namespace tessera
