// Tests of the tracer: ops and errors name the user's line, literals adapt, captures pass through
// levels of traces, and frames unwind. No test here uses a cluster.
#include "client/trace/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "client/session.h"
#include "client/testing/evaluated.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using testing::ErrorOf;
using ::testing::HasSubstr;
using testing::Values;
using testing::Vec;

TEST(TraceTest, RecordsOpsAtTheUsersLine) {
  int line = 0;
  const auto traced = trace(
      [&](Array x) {
        line = __LINE__ + 1;
        return x * x + 1;
      },
      abstract({3}));
  ASSERT_FALSE(traced.fn()->ops.empty());
  for (const Site& site : traced.fn()->sites) {
    EXPECT_EQ(site.line, line);
    EXPECT_THAT(site.file, HasSubstr("trace_test.cc"));
  }
  EXPECT_EQ(traced.fn()->result_types()[0].ToString(), "f32[3]");
}

TEST(TraceTest, LiteralsTakeTheDTypeOfTheArray) {
  EXPECT_EQ(trace([](Array x) { return 2 * x; }, abstract({2}, kS32)).fn()->result_types()[0],
            ir::MakeType(kS32, {2}));
  EXPECT_EQ(trace([](Array x) { return 2.5 * x; }, abstract({2}, kBF16)).fn()->result_types()[0],
            ir::MakeType(kBF16, {2}));
  // The number decides the dtype, so the result is weakly typed like the number.
  Type weak = ir::MakeType(kF32, {2});
  weak.weak = true;
  EXPECT_EQ(trace([](Array x) { return 2.5 * x; }, abstract({2}, kS32)).fn()->result_types()[0],
            weak);
  EXPECT_EQ(trace([](Array x, Array y) { return x + y; }, abstract({2}, kS32), abstract({2}, kF64))
                .fn()
                ->result_types()[0],
            ir::MakeType(kF64, {2}));
}

TEST(DefaultSession, RefusesATimeThatIsNoNumber) {
  setenv("TESSERA_ADDRESS", "127.0.0.1:1", /*overwrite=*/1);
  for (const char* const text : {"soon", "-1", "86401", "1.5"}) {
    setenv("TESSERA_RECONNECT", text, /*overwrite=*/1);
    const Error e = ErrorOf([] { Session::Default(); });
    EXPECT_EQ(e.kind(), ErrorKind::kValueError) << e.what();
    EXPECT_THAT(e.what(), HasSubstr(absl::StrCat("TESSERA_RECONNECT: expected a number of seconds "
                                                 "from 0 to 86400, got '",
                                                 text, "'")));
  }
  unsetenv("TESSERA_RECONNECT");
  unsetenv("TESSERA_ADDRESS");
}

TEST(TraceTest, UserErrorsNameTheirLine) {
  int line = 0;
  const Error e = ErrorOf([&] {
    trace(
        [&](Array x, Array y) {
          line = __LINE__ + 1;
          return lax::add(x, y);
        },
        abstract({3}), abstract({4}));
  });
  EXPECT_EQ(e.site().line, line);
  EXPECT_THAT(e.what(), HasSubstr("trace_test.cc:" + std::to_string(line)));
}

TEST(TraceTest, ReadingContentsWhileTracingThrows) {
  const Error e = ErrorOf([] {
    trace(
        [](Array x) {
          if (x.item<float>() > 0) return x;
          return -x;
        },
        abstract({}));
  });
  EXPECT_EQ(e.kind(), ErrorKind::kTypeError);
  EXPECT_THAT(e.what(), HasSubstr("Abstract tracer value encountered"));
}

TEST(TraceTest, UsingALeakedTracerThrows) {
  Array kept;
  trace([&](Array x) { return kept = x + 1; }, abstract({2}));
  const Error e = ErrorOf([&] { trace([&](Array x) { return x + kept; }, abstract({2})); });
  EXPECT_THAT(e.what(), HasSubstr("leaked tracer"));
  const Error outside = ErrorOf([&] { kept + 1; });
  EXPECT_THAT(outside.what(), HasSubstr("leaked tracer"));
}

TEST(TraceTest, AnInnerValueDoesNotEscapeItsTransform) {
  const Error e = ErrorOf([] {
    trace(
        [](Array x) {
          Array kept;
          grad([&](Array y) { return kept = sum(y * y); })(x);
          return kept * 2;
        },
        abstract({2}));
  });
  EXPECT_THAT(e.what(), HasSubstr("leaked tracer"));
}

TEST(TraceTest, OuterValuesAreCapturedThroughTwoLevels) {
  const auto f = [](Array x, Array w) {
    return grad([&](Array y) { return sum(vmap([&](Array row) { return row * w; })(y)); })(x);
  };
  EXPECT_THAT(Values(f, Vec({1, 2}), testing::Host({3}, {})), ElementsAre(3, 3));
}

TEST(TraceTest, DefaultConstructedArraysAreRefused) {
  EXPECT_THAT(ErrorOf([] { trace([](Array x) { return x + Array(); }, abstract({1})); }).what(),
              HasSubstr("without a value"));
  EXPECT_THAT(ErrorOf([] { trace([](Array) { return Array(); }, abstract({1})); }).what(),
              HasSubstr("without a value"));
}

TEST(TraceTest, FramesUnwindAfterAnError) {
  ErrorOf([] {
    trace([](Array x) { return vmap([](Array y) { return lax::add(y, zeros({9})); })(x); },
          abstract({2, 3}));
  });
  EXPECT_EQ(internal::CurrentFrame(), nullptr);
}

TEST(TraceTest, AProgramTakesItsMeshFromAShardMapWithin) {
  const Mesh mesh = abstract_mesh({2}, {"x"}, {AxisType::kAuto});
  const auto traced = trace(
      [&](Array v) {
        return shard_map([](Array b) { return lax::psum(b, "x"); }, mesh, P("x"), P())(v);
      },
      abstract({4}));
  EXPECT_EQ(traced.program.mesh().ToString(), mesh.ToString());
  EXPECT_EQ(internal::CurrentFrame(), nullptr);
}

}  // namespace
}  // namespace tessera
