// Proves that the replay of a record has the effects that the evaluator has when it runs the
// program, in the same order, and what a record has room for.
#include "ir/transform/record_effects.h"

#include "ir/text.h"
#include "ir/transform/testing/effect_programs.h"

namespace tessera::ir {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): helpers of tests
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using V = std::vector<Value>;

// The lines that a program prints, and its results.
struct Ran {
  std::vector<std::string> lines;
  std::vector<Array> results;
};
// Runs the program on the evaluator.
Ran Directly(const EffectProgram& p) {
  Ran out;
  EvalOptions options;
  options.print = PrintTo(&out.lines);
  out.results = ValueOrThrow(Evaluator(options).Run(*p.f, p.args));
  return out;
}
// The lines that the replay of a record prints, and more.
struct Replayed : Ran {
  absl::Status status;
  RecordedEffects effects;
  std::vector<int> read;  // the results of the record that were read
};
Replayed FromRecord(const EffectProgram& p, const RecordLimits& limits = {}) {
  Replayed out;
  FunctionWithRecord recorded = ValueOrThrow(RecordEffects(*p.f, limits));
  EXPECT_FALSE(recorded.function->has_effects) << PrintFunction(*recorded.function);
  out.effects = std::move(recorded.effects);
  out.results = Eval(*recorded.function, p.args);
  const size_t num_results = out.results.size() - out.effects.num_results;
  const std::vector<Array> record(out.results.begin() + static_cast<int64_t>(num_results),
                                  out.results.end());
  out.results.resize(num_results);
  out.status = EffectReplay(out.effects, [&](int i) {
                 out.read.push_back(i);
                 return record.at(i);
               }).Run(PrintTo(&out.lines));
  return out;
}

TEST(RecordEffects, ReplaysWhatTheEvaluatorPrints) {
  for (const EffectProgram& p : EffectPrograms()) {
    SCOPED_TRACE(p.name);
    const Ran want = Directly(p);
    const Replayed got = FromRecord(p);
    EXPECT_THAT(got.status, IsOk());
    EXPECT_EQ(got.lines, want.lines);
    EXPECT_EQ(got.results, want.results);
    EXPECT_GT(want.lines.size(), 5);
  }
}

// A loop of n iterations that prints x in every k-th of them.
EffectProgram PrintsEvery(int64_t k, int64_t n, int64_t elements) {
  const FunctionRef f = Fn({S32Of(), F32({elements})}, [&](Builder& b, const V& p) {
    return CountTo(b, p[0], p[1], [&](Builder&, const V& v) {
      const FunctionRef prints = Fn(TypesOf(v), [](Builder& at, const V& x) {
        at.SetSite({"model.cc", 41});
        DebugPrint(at, "at", {x[1], x[2]});
        return V{};
      });
      const FunctionRef is_silent = Fn(TypesOf(v), [](Builder&, const V&) { return V{}; });
      const Value rest = Rem(v[1], FullLike(v[1], static_cast<double>(k)));
      Case(rest, {prints, is_silent}, v);
      return V{AddNumber(v[2], 1)};
    });
  });
  return {"every", f, {IntArray(n), Array(DType::kF32, {elements})}};
}

TEST(RecordEffects, IterationsThatDoNotCallTakeNoRoom) {
  const EffectProgram p = PrintsEvery(500, 3000, 1);
  const Replayed got = FromRecord(p, {.calls = 6, .bytes = 6 * 8});
  EXPECT_THAT(got.status, IsOk());
  EXPECT_THAT(got.lines, ElementsAre("at 0 [0]", "at 500 [500]", "at 1000 [1000]", "at 1500 [1500]",
                                     "at 2000 [2000]", "at 2500 [2500]"));
  EXPECT_EQ(got.effects.records.at(0).capacity, 6);
  EXPECT_TRUE(got.effects.MayDrop());
}

TEST(RecordEffects, ARunThatCallsTooOftenFails) {
  const Replayed got = FromRecord(PrintsEvery(1, 12, 1), {.calls = 10});
  EXPECT_THAT(got.status, ReasonIs("CALLBACKS_DROPPED"));
  EXPECT_EQ(got.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(
      got.status.message(),
      AllOf(HasSubstr("callback at model.cc:41: 2 of its 12 calls in this run were dropped"),
            HasSubstr("at most 10 calls and 64 MiB of arguments"), HasSubstr("in a cond")));
  EXPECT_THAT(got.lines, IsEmpty());
  EXPECT_THAT(got.read, SizeIs(1)) << "only the counter";
  EXPECT_THAT(FromRecord(PrintsEvery(1, 10, 1), {.calls = 10}).lines, SizeIs(10));
}

TEST(RecordEffects, ARunWithTooLargeArgumentsFails) {
  // A call takes four bytes of its number and 1,000 of x.
  const RecordLimits limits{.calls = 100, .bytes = 5 * 1004 + 1003};
  EXPECT_THAT(FromRecord(PrintsEvery(1, 5, 250), limits).lines, SizeIs(5));
  const Replayed got = FromRecord(PrintsEvery(1, 6, 250), limits);
  EXPECT_THAT(got.status, ReasonIs("CALLBACKS_DROPPED"));
  EXPECT_THAT(got.status.message(),
              AllOf(HasSubstr("1 of its 6 calls"), HasSubstr("here 5 calls of 1004 bytes each")));
  // A record has room for one call, however large its arguments are.
  EXPECT_THAT(FromRecord(PrintsEvery(1, 1, 250), {.calls = 1, .bytes = 1}).lines, SizeIs(1));
}

TEST(RecordEffects, IterationsWithoutCallsAreNotRead) {
  const Replayed got = FromRecord(PrintsEvery(1, 0, 1));
  EXPECT_THAT(got.status, IsOk());
  EXPECT_THAT(got.lines, IsEmpty());
  EXPECT_THAT(got.read, SizeIs(1)) << "only the counter";
}

TEST(RecordEffects, OperandsThatDoNotChangeTakeNoRoomInTheLog) {
  const FunctionRef f = Fn({S32Of(), F32({1000})}, [](Builder& b, const V& p) {
    return CountTo(b, p[0], p[1], [](Builder& in, const V& v) {
      DebugPrint(in, "same", {v[0], v[1], v[2]});
      return V{v[2]};
    });
  });
  const Replayed got = FromRecord({"same", f, {IntArray(3), Array(DType::kF32, {1000})}},
                                  {.calls = 100, .bytes = 12});
  EXPECT_THAT(got.status, IsOk());
  EXPECT_THAT(got.lines, SizeIs(3));
  EXPECT_EQ(got.effects.records.at(0).bytes, 4) << "the number of the iteration";
}

// The number of iterations is known, so there is room for all of them.
TEST(RecordEffects, AScanKeepsAllIterations) {
  const FunctionRef turn = Fn({S32Of(), F32({1000})}, [](Builder& b, const V& p) {
    DebugPrint(b, "all", {p[0]});
    PrintEveryThird(p[0], p[1], "some");
    return V{AddNumber(p[0], 1)};
  });
  const FunctionRef f = Fn({S32Of(), F32({20, 1000})},
                           [&](Builder& b, const V& p) { return Scan(b, turn, p, 0, 1, 20); });
  const EffectProgram p{"scan", f, {IntArray(0), Array(DType::kF32, {20, 1000})}};
  const Replayed got = FromRecord(p, {.calls = 1, .bytes = 7 * 4004});
  EXPECT_THAT(got.status, IsOk());
  EXPECT_THAT(got.lines, SizeIs(27));
  EXPECT_FALSE(got.effects.records.at(0).is_limited);
  EXPECT_TRUE(got.effects.records.at(1).is_limited) << "the print in the branch, by its bytes";
  EXPECT_THAT(FromRecord(p, {.calls = 1, .bytes = 6 * 4004}).status, ReasonIs("CALLBACKS_DROPPED"));
}

TEST(RecordEffects, EachMemberOfABatchIsACall) {
  const EffectProgram p = Batched();  // three members, three iterations
  EXPECT_THAT(FromRecord(p, {.calls = 9}).status, IsOk());
  const Replayed got = FromRecord(p, {.calls = 8});
  EXPECT_THAT(got.status, ReasonIs("CALLBACKS_DROPPED"));
  EXPECT_THAT(got.status.message(), HasSubstr("3 of its 9 calls"));
}

TEST(RecordEffects, TheLimitHoldsForEachDevice) {
  for (const bool check_vma : {true, false}) {
    // The last device makes nine turns in the two iterations.
    const EffectProgram p = ShardMaps(check_vma);
    EXPECT_THAT(FromRecord(p, {.calls = 11}).status, IsOk());
    const Replayed got = FromRecord(p, {.calls = 3});
    EXPECT_THAT(got.status, ReasonIs("CALLBACKS_DROPPED"));
    EXPECT_THAT(got.status.message(), HasSubstr("on one device were dropped"));
  }
}

TEST(RecordEffects, TheCounterOfCallsStopsAtItsEnd) {
  const FunctionRef f = Fn({S32Of()}, [](Builder& b, const V& p) {
    return CountTo(b, p[0], Constant(b, DType::kF32, 0), [](Builder& in, const V& v) {
      DebugPrint(in, "turn", {});
      return V{v[2]};
    });
  });
  const FunctionRef recorded = ValueOrThrow(RecordEffects(*f)).function;
  EXPECT_THAT(PrintFunction(*recorded), HasSubstr("2147483646"));
}

TEST(RecordEffects, APendingSumIsPrintedAsTheSum) {
  const Scope outer = MeshScope({{"x", 2, AxisType::kExplicit}});
  Type sharded = F32({2});
  sharded.sharding = {{"x"}};
  const std::vector<PartitionSpec> in = {CutOver({"x"})};
  const FunctionRef f = Fn(outer, {sharded}, [&](Builder& b, const V& p) {
    const Scope inside = ManualScope(outer, {"x"}, true);
    const FunctionRef body = Fn(inside, ManualShardTypes(outer, TypesOf(p), in, {"x"}, true),
                                [](Builder& at, const V& v) {
                                  const Value sum = VaryUnreducedCast(v[0], {"x"});
                                  DebugPrint(at, "sum", {sum});
                                  DebugPrint(at, "reduced", {Preduced(Psum(v[0], {"x"}), {"x"})});
                                  return v;
                                });
    return ManualComputation(b, body, p, in, in, {"x"}, true);
  });
  const Replayed got = FromRecord({"sum", f, {Array::Of(DType::kF32, {2}, {1, 2})}});
  EXPECT_THAT(got.status, IsOk());
  EXPECT_THAT(got.lines, ElementsAre("sum [3]", "sum [3]", "reduced [3]", "reduced [3]"));
}

TEST(RecordEffects, ExplicitShardingsAreKept) {
  const Scope scope = MeshScope({{"x", 2, AxisType::kExplicit}});
  Type sharded = F32({4});
  sharded.sharding = {{"x"}};
  const FunctionRef f = Fn(scope, {S32Of(), sharded}, [&](Builder& b, const V& p) {
    return CountTo(
        b, p[0], p[1],
        [&](Builder& in, const V& v) {
          DebugPrint(in, "all", {v[2]});
          return V{PrintEveryThird(v[1], v[2], "third", scope)};
        },
        scope);
  });
  const EffectProgram p{"explicit", f, {IntArray(4), Array::Of(DType::kF32, {4}, {1, 2, 3, 4})}};
  EXPECT_EQ(FromRecord(p).lines, Directly(p).lines);
  bool found = false;
  const FunctionRef recorded = ValueOrThrow(RecordEffects(*f)).function;
  for (const Type& t : recorded->result_types())
    found = found || (t.shape == Dims{10'001, 4} && t.axes_of(1) == AxisList{"x"});
  EXPECT_TRUE(found) << PrintFunction(*recorded);
}

TEST(RecordEffects, EffectsOfPredicatesAndOfFunctionsOfScalarsAreRefused) {
  const FunctionRef loop = Fn({S32Of()}, [](Builder& b, const V& p) {
    const FunctionRef predicate = Fn({S32Of()}, [](Builder& in, const V& v) {
      DebugPrint(in, "is it over", {v[0]});
      return V{Compare(v[0], FullLike(v[0], 3), "LT")};
    });
    const FunctionRef body =
        Fn({S32Of()}, [](Builder&, const V& v) { return V{AddNumber(v[0], 1)}; });
    b.SetSite({"model.cc", 7});
    return While(b, predicate, body, p, 0, 0);
  });
  const absl::Status in_predicate = RecordEffects(*loop).status();
  EXPECT_THAT(in_predicate, ReasonIs("NOT_IMPLEMENTED"));
  EXPECT_THAT(in_predicate.message(),
              AllOf(HasSubstr("while_loop: cond_fun has an effect"), HasSubstr("(model.cc:7)")));
  const FunctionRef sort = Fn({F32({4})}, [](Builder&, const V& p) {
    const FunctionRef less = Fn({F32({}), F32({})}, [](Builder& in, const V& v) {
      DebugPrint(in, "compared", {v[0]});
      return V{Compare(v[0] * v[0], v[1], "LT")};
    });
    return SortBy({p[0]}, less, 0);
  });
  EXPECT_THAT(RecordEffects(*sort).status(), ReasonIs("NOT_IMPLEMENTED"));
}

}  // namespace
}  // namespace tessera::ir
