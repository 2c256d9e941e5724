// Proves what debug_print prints and in which order: under transforms, in loops and branches, on
// sharded arrays and in shard_map. The programs run on a cluster of four devices, and the tests
// capture standard output.
#include "client/debug_print.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/tessera.h"
#include "client/testing/evaluated.h"
#include "client/transform/stages.h"
#include "embed/testing/on_cluster.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::ErrorOf;
using ::testing::HasSubstr;
using testing::Printed;

using DebugPrintTest = testing::ClusterTest;

// Prints x and y = sin x, and returns y^2.
Array Square(const Array& x) {
  debug_print("x {}", x);
  const Array y = sin(x);
  debug_print("y {:.3f}", y);
  return y * y;
}

TEST_F(DebugPrintTest, PrintsAtOnceOutsideOfATrace) {
  EXPECT_EQ(Printed([] {
              debug_print("{} and {:.1f} and {}", array<float>({1, 2.5}), 3, true);
              debug_print("no arguments, {{}}");
              debug_print("{1} before {0}", 1, 2);
            }),
            "[1, 2.5] and 3.0 and true\nno arguments, {}\n2 before 1\n");
}

TEST_F(DebugPrintTest, PrintsWhenTheProgramRuns) {
  int traced = 0;
  const auto f = jit([&traced](const Array& x) {
    ++traced;
    const Array unused = x * 10;
    debug_print("unused {}", unused);
    debug_print("constant");
    return x + 1;
  });
  for (int run = 1; run <= 2; ++run) {
    const std::string line = absl::StrCat("unused ", 10 * run, "\nconstant\n");
    EXPECT_EQ(Printed([&] { EXPECT_EQ(f(scalar(1.0F * run)).item<float>(), 1 + run); }), line);
  }
  EXPECT_EQ(traced, 1);
}

TEST_F(DebugPrintTest, AProgramMayOnlyPrint) {
  EXPECT_EQ(Printed([] {
              jit([](const Array& x) {
                debug_print("{}", x * x);
                return std::tuple<>();
              })(scalar(3.0F));
            }),
            "9\n");
}

TEST_F(DebugPrintTest, DerivativesPrintTheForwardPass) {
  const std::string once = "x 0.5\ny 0.479\n";
  const Array x = scalar(0.5F);
  EXPECT_EQ(Printed([&] { jit(grad(Square))(x); }), once);
  EXPECT_EQ(Printed([&] { grad(Square)(x); }), once);
  EXPECT_EQ(Printed([&] { jvp(Square, std::tuple(x), std::tuple(x)); }), once);
  EXPECT_EQ(Printed([&] { jit(grad(checkpoint(Square)))(x); }), once);
  EXPECT_EQ(Printed([&] { jit(grad(jit(Square)))(x); }), once);
  EXPECT_EQ(Printed([&] { jit(hessian(Square))(x); }), once);
  EXPECT_EQ(Printed([&] {
              auto [y, back] = vjp(Square, x);
              back(y);
              back(y);
            }),
            once);
}

TEST_F(DebugPrintTest, DerivativeRulesPrintWhenTheyRun) {
  const auto f = custom_vjp(
      [](const Array& x) {
        debug_print("primal {}", x);
        return x * x;
      },
      [](const Array& x) {
        debug_print("forward {}", x);
        return std::pair(x * x, x);
      },
      [](const Array& x, const Array& ct) {
        debug_print("backward {} {}", x, ct);
        return std::tuple(2 * x * ct);
      });
  EXPECT_EQ(Printed([&] { jit(f)(scalar(3.0F)); }), "primal 3\n");
  EXPECT_EQ(Printed([&] { jit(grad(f))(scalar(3.0F)); }), "forward 3\nbackward 3 1\n");
}

TEST_F(DebugPrintTest, VmapPrintsEachMember) {
  const auto f = [](const Array& x, const Array& y) {
    debug_print("{} {}", x, y);
    debug_print("once");
    return x + y;
  };
  EXPECT_EQ(Printed([&] {
              jit(vmap(f, {0, None}))(arange(3), scalar(7));
            }),
            "0 7\n1 7\n2 7\nonce\n");
  EXPECT_EQ(Printed([&] {
              vmap(vmap(f, {0, None}), {None, 0})(arange(2), arange(3));
            }),
            "0 0\n1 0\n0 1\n1 1\n0 2\n1 2\nonce\n");
  // A batch over dim 1, so that its members are the columns.
  EXPECT_EQ(Printed([&] {
              jit(vmap(
                  [](const Array& x) {
                    debug_print("{}", x);
                    return x;
                  },
                  1))(array<float>({1, 2, 3, 4}, {2, 2}));
            }),
            "[1, 3]\n[2, 4]\n");
}

TEST_F(DebugPrintTest, LoopsPrintInTheOrderOfTheirIterations) {
  const auto scanned = [](const Array& x) {
    const auto body = [](const Array& c, const Array& t) {
      debug_print("c {} t {}", c, t);
      debug_print("turn");
      return std::pair(c * t, c);
    };
    return scan(body, x, array<float>({1, 2, 3})).first;
  };
  const std::string forwards = "c 2 t 1\nturn\nc 2 t 2\nturn\nc 4 t 3\nturn\n";
  EXPECT_EQ(Printed([&] { jit(scanned)(scalar(2.0F)); }), forwards);
  EXPECT_EQ(Printed([&] { jit(grad(scanned))(scalar(2.0F)); }), forwards);
  EXPECT_EQ(Printed([] {
              jit([](const Array& x) {
                return scan(
                           [](const Array& c, const Array& t) {
                             debug_print("{}", t);
                             return std::pair(c, t);
                           },
                           x, arange(3), {.reverse = true})
                    .first;
              })(scalar(0));
            }),
            "2\n1\n0\n");
  // A loop within a loop. Both print x, which is the same in each iteration.
  EXPECT_EQ(Printed([] {
              jit([](const Array& x) {
                return fori_loop(
                    0, 2,
                    [&](const Array& i, const Array& c) {
                      const Array inner = fori_loop(
                          0, 2,
                          [&](const Array& j, const Array& d) {
                            debug_print("{} {} {}", i, j, x);
                            return d + 1;
                          },
                          c);
                      debug_print("inner {}", inner);
                      return inner;
                    },
                    x);
              })(scalar(5));
            }),
            "0 0 5\n0 1 5\ninner 7\n1 0 5\n1 1 5\ninner 9\n");
}

// Returns the number of lines of `text`.
int64_t NumLines(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

TEST_F(DebugPrintTest, WhileLoopsPrintAllIterations) {
  const auto loop = jit([](const Array& n) {
    return while_loop([&](const std::pair<Array, Array>& carry) { return carry.first < n; },
                      [&](const std::pair<Array, Array>& carry) {
                        const auto& [i, x] = carry;
                        debug_print("{} of {}: {}", i, n, x);
                        return std::pair(i + 1, 2 * x);
                      },
                      std::pair(scalar(0), scalar(1.0)));
  });
  EXPECT_EQ(Printed([&] { loop(scalar(3)); }), "0 of 3: 1\n1 of 3: 2\n2 of 3: 4\n");
  EXPECT_EQ(Printed([&] { loop(scalar(0)); }), "");
  const std::string many = Printed([&] { loop(scalar(3000)); });
  EXPECT_EQ(NumLines(many), 3000);
  EXPECT_THAT(many, AllOf(HasSubstr("\n998 of 3000"), HasSubstr("\n1500 of 3000"),
                          HasSubstr("\n2999 of 3000")));
}

// A loop of n iterations in which those whose number is a multiple of k print it and the sum of x,
// or all of x.
auto PrintsEvery(int k, bool prints_all) {
  return [k, prints_all](const Array& n, const Array& start) {
    return while_loop([&](const std::pair<Array, Array>& carry) { return carry.first < n; },
                      [&](const std::pair<Array, Array>& carry) {
                        const auto& [i, x] = carry;
                        cond(
                            equal(remainder(i, k), 0),
                            [&](const Array& at, const Array& value) {
                              debug_print("{}: {}", at, prints_all ? value : sum(value));
                              return at;
                            },
                            [](const Array& at, const Array&) { return at; }, i, x);
                        return std::pair(i + 1, x + 1);
                      },
                      std::pair(scalar(0), start));
  };
}

TEST_F(DebugPrintTest, IterationsThatDoNotPrintTakeNoRoom) {
  EXPECT_EQ(Printed([] { jit(PrintsEvery(500, /*prints_all=*/false))(scalar(3000), zeros({2})); }),
            "0: 0\n500: 1000\n1000: 2000\n1500: 3000\n2000: 4000\n2500: 5000\n");
  // The values of all iterations would have 300 MiB, those that are printed have 60.
  const std::string large =
      Printed([] { jit(PrintsEvery(5, /*prints_all=*/true))(scalar(300), zeros({1 << 18})); });
  EXPECT_EQ(NumLines(large), 60) << large;
  EXPECT_THAT(large, HasSubstr("\n295: [295, 295, "));
}

TEST_F(DebugPrintTest, ARunThatPrintsTooOftenFails) {
  const auto f = jit(PrintsEvery(1, /*prints_all=*/false));
  EXPECT_EQ(NumLines(Printed([&] { f(scalar(10'000), zeros({2})); })), 10'000);
  const std::string printed = Printed([&] {
    const Error error = ErrorOf([&] { f(scalar(10'001), zeros({2})); });
    EXPECT_EQ(error.kind(), ErrorKind::kCallbacksDropped);
    EXPECT_EQ(error.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("callback at debug_print_test.cc:"),
                      HasSubstr("1 of its 10001 calls in this run were dropped"),
                      HasSubstr("at most 10000 calls and 64 MiB"), HasSubstr("in a cond")));
  });
  EXPECT_EQ(printed, "") << "a run that fails prints nothing";
  EXPECT_EQ(NumLines(Printed([&] { f(scalar(5), zeros({2})); })), 5)
      << "the next run does not fail";
}

TEST_F(DebugPrintTest, ARunThatPrintsTooLargeValuesFails) {
  const auto f = jit(PrintsEvery(1, /*prints_all=*/true));
  EXPECT_EQ(NumLines(Printed([&] { f(scalar(63), zeros({1 << 18})); })), 63);
  EXPECT_THAT(Printed([&] { f(scalar(200), zeros({1 << 18})); }),
              AllOf(HasSubstr("137 of its 200 calls in this run were dropped"),
                    HasSubstr("here 63 calls of 1048580 bytes each")));
}

// A device that drops calls fails the run, whether the array is cut by the planner or by shard_map.
TEST_F(DebugPrintTest, ARunOnSeveralDevicesThatPrintsTooMuchFails) {
  const Mesh mesh = make_mesh({4}, {"x"}, {AxisType::kAuto});
  const Array x = put(zeros({8}), mesh, P("x"));
  const auto f = jit(PrintsEvery(500, /*prints_all=*/true));
  EXPECT_THAT(Printed([&] { f(scalar(1001), x); }),
              HasSubstr("1000: [1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000]\n"));
  EXPECT_THAT(Printed([&] { jit(PrintsEvery(1, true))(scalar(10'002), x); }),
              HasSubstr("2 of its 10002 calls"));
  // Device d makes n + 100 d turns.
  const auto on_shards = jit([&](const Array& n, const Array& shards) {
    return shard_map(
        [](const Array& limit, const Array& part) {
          return fori_loop(
              lax::pcast(scalar(0), "x"), limit + 100 * lax::axis_index("x"),
              [](const Array& i, const Array& c) {
                debug_print("{}: {}", i, c);
                return c + 1;
              },
              part);
        },
        mesh, {P(), P("x")}, P("x"))(n, shards);
  });
  const std::string lines = Printed([&] { on_shards(scalar(1), x); });
  EXPECT_EQ(NumLines(lines), 4 + 600);
  EXPECT_THAT(lines, HasSubstr("0: [0, 0]\n0: [0, 0]\n0: [0, 0]\n0: [0, 0]\n1: [1, 1]\n"));
  EXPECT_THAT(Printed([&] { on_shards(scalar(9'750), x); }),
              AllOf(HasSubstr("50 of its 10050 calls in this run on one device were dropped"),
                    HasSubstr("at debug_print_test.cc:")));
}

// Prints on several levels of loops and branches come in the order of the program.
TEST_F(DebugPrintTest, NestedLoopsPrintInOrder) {
  const auto f = jit([](const Array& n) {
    return fori_loop(
        0, n,
        [&](const Array& i, const Array& c) {
          debug_print("outer {}", i);
          const Array after = cond(
              equal(remainder(i, 2), 1),
              [](const Array& at, const Array& value) {
                return fori_loop(
                    0, at,
                    [](const Array& j, const Array& d) {
                      debug_print("inner {} {}", j, d);
                      return d + 1;
                    },
                    value);
              },
              [](const Array& at, const Array& value) {
                debug_print("even {}", at);
                return value;
              },
              i, c);
          debug_print("after {}", after);
          return after;
        },
        scalar(0));
  });
  EXPECT_EQ(Printed([&] { f(scalar(4)); }),
            "outer 0\neven 0\nafter 0\nouter 1\ninner 0 0\nafter 1\nouter 2\neven 2\nafter 1\n"
            "outer 3\ninner 0 1\ninner 1 2\ninner 2 3\nafter 4\n");
}

TEST_F(DebugPrintTest, BranchesPrintIfTheyAreTaken) {
  const auto f = [](const Array& x) {
    return cond(
        x > 1,
        [](const Array& a) {
          debug_print("big {}", a);
          return a;
        },
        [](const Array& a) {
          debug_print("small {}", -a);
          return 2 * a;
        },
        x);
  };
  EXPECT_EQ(Printed([&] { jit(f)(scalar(3.0F)); }), "big 3\n");
  EXPECT_EQ(Printed([&] { jit(f)(scalar(1.0F)); }), "small -1\n");
  EXPECT_EQ(Printed([&] { jit(grad(f))(scalar(1.0F)); }), "small -1\n");
}

TEST_F(DebugPrintTest, EachDeviceOfAShardMapPrints) {
  const Mesh mesh = make_mesh({2, 2}, {"x", "y"}, {AxisType::kAuto, AxisType::kAuto});
  for (const bool check : {true, false}) {
    ShardMapOptions options;
    options.check_vma = check;
    const auto f = shard_map(
        [](const Array& x) {
          const auto body = [](const Array& c, const Array& t) {
            debug_print("at {} {}: {}", lax::axis_index("x"), t, c);
            return std::pair(c + 1, t);
          };
          return scan(body, x, arange(2)).first;
        },
        mesh, P("x"), P("x"), options);
    EXPECT_EQ(Printed([&] {
                jit(f)(array<float>({1, 2}));
              }),
              "at 0 0: [1]\nat 0 0: [1]\nat 1 0: [2]\nat 1 0: [2]\n"
              "at 0 1: [2]\nat 0 1: [2]\nat 1 1: [3]\nat 1 1: [3]\n")
        << check;
  }
  // A loop that ends after a different number of iterations on each device.
  const auto counts = shard_map(
      [](const Array& n) {
        const Array end = reshape(n, {});
        return reshape(while_loop([&](const Array& i) { return i < end; },
                                  [](const Array& i) {
                                    debug_print("{} on {}", i, lax::axis_index("x"));
                                    return i + 1;
                                  },
                                  lax::pcast(scalar(0), "x")),
                       {1});
      },
      make_mesh({2}, {"x"}, {AxisType::kAuto}), P("x"), P("x"));
  EXPECT_EQ(Printed([&] {
              EXPECT_THAT(jit(counts)(array<int32_t>({1, 2})).get<int32_t>(), ElementsAre(1, 2));
            }),
            "0 on 0\n0 on 1\n1 on 1\n");
}

TEST_F(DebugPrintTest, ShardsArePrintedAsOneArray) {
  for (const AxisType type : {AxisType::kAuto, AxisType::kExplicit}) {
    const Mesh mesh = make_mesh({4}, {"x"}, {type});
    const set_mesh in(mesh);
    const Array x = put(arange(8), mesh, P("x"));
    EXPECT_EQ(Printed([&] {
                const Array y = jit([](const Array& a) {
                  debug_print("{}", 2 * a);
                  return a;
                })(x);
                EXPECT_EQ(y.devices().size(), 4);
              }),
              "[0, 2, 4, 6, 8, 10, 12, 14]\n");
  }
}

TEST_F(DebugPrintTest, PrintedValuesAreNotResultsOfCompiledFunctions) {
  const auto f = jit([](const Array& x) {
    debug_print("{}", sum(x));
    return 2 * x;
  });
  const auto lowered = f.lower(array<float>({1, 2}));
  EXPECT_THAT(lowered.as_text(), HasSubstr("debug_print"));
  const auto compiled = lowered.compile();
  EXPECT_EQ(compiled.output_shardings().size(), 1);
  EXPECT_EQ(Printed([&] {
              EXPECT_THAT(compiled(array<float>({1, 2})).get<float>(), ElementsAre(2, 4));
            }),
            "3\n");
  EXPECT_THAT(visualize_text(f, array<float>({1, 2})), HasSubstr("printed[0] f32[]"));
}

TEST_F(DebugPrintTest, DebugNansFindsNansInAProgramThatPrints) {
  const debug_nans on;
  const auto f = jit([](const Array& x) {
    debug_print("{}", log(x - 5));
    return log(x);
  });
  EXPECT_EQ(Printed([&] { f(scalar(1.0F)); }), "nan\n");
  EXPECT_EQ(Printed([&] {
              EXPECT_THAT(ErrorOf([&] { f(scalar(-1.0F)); }).what(),
                          HasSubstr("invalid value (nan) encountered in log"));
            }),
            "nan\n");
}

TEST_F(DebugPrintTest, InvalidFormatsAreReportedWithTheirLine) {
  const auto message = [](const char* format, int arguments) {
    return std::string(ErrorOf([&] {
                         jit([&](const Array& x) {
                           if (arguments == 0) debug_print(format);
                           if (arguments == 1) debug_print(format, x);
                           if (arguments == 2) debug_print(format, x, 2);
                           return x;
                         })(scalar(1.0F));
                       }).what());
  };
  EXPECT_THAT(message("{}", 2),
              AllOf(HasSubstr("Unused positional arguments"), HasSubstr("no field for argument 1"),
                    HasSubstr("(debug_print_test.cc:")));
  EXPECT_THAT(message("x", 1), HasSubstr("Unused positional arguments"));
  EXPECT_THAT(message("{} {}", 1),
              HasSubstr("a field for argument 1, counted from 0, but the call has 1 argument"));
  EXPECT_THAT(message("{x}", 1), HasSubstr("the field {x} of \"{x}\" has a name"));
  EXPECT_THAT(message("{", 1), HasSubstr("has a '{' that no '}' ends"));
  EXPECT_THAT(message("}", 0), HasSubstr("has a single '}'"));
  EXPECT_THAT(message("{0} {}", 2), HasSubstr("mixes {} and numbered fields"));
  EXPECT_THAT(message("{:q}", 1), HasSubstr("is not valid for f32"));
  EXPECT_THAT(message("{:{}}", 2), HasSubstr("has a single '}'"));
}

TEST_F(DebugPrintTest, APrintInALoopPredicateIsRefused) {
  const Error in_predicate = ErrorOf([] {
    jit([](const Array& n) {
      return while_loop(
          [&](const Array& i) {
            debug_print("{}", i);
            return i < n;
          },
          [](const Array& i) { return i + 1; }, scalar(0));
    })(scalar(3));
  });
  EXPECT_EQ(in_predicate.kind(), ErrorKind::kNotImplemented);
  EXPECT_THAT(in_predicate.what(), HasSubstr("print in body_fun instead"));
}

// A transposed function prints, as in JAX, only values that do not depend on the arguments of the
// linear function, because the other values do not exist when it runs.
TEST_F(DebugPrintTest, TransposedFunctionsPrintOnlyNonlinearValues) {
  const Array w = scalar(3.0F);
  const auto f = [&](const Array& x) {
    debug_print("{}", x);
    debug_print("{}", w + 1);
    return w * x;
  };
  EXPECT_EQ(Printed([&] { linear_transpose(f, scalar(1.0F))(scalar(1.0F)); }), "4\n");
}

TEST_F(DebugPrintTest, ARunThatFailsPrintsNothing) {
  const deadline none(absl::Nanoseconds(1));
  EXPECT_EQ(Printed([] {
              ErrorOf([] {
                jit([](const Array& x) {
                  debug_print("{}", x);
                  return x;
                })(scalar(1.0F));
              });
            }),
            "");
}

}  // namespace
}  // namespace tessera
