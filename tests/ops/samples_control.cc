// Samples of the ops in ir/ops/regions/control.cc, scan.cc, while.cc, case.cc,
// manual_computation.cc, custom_derivatives.cc and custom_linear_solve.cc: ops with nested
// functions, and optimization_barrier and sharding_constraint, which change no value. A sample, or
// row, is one op with given attributes and operands: a test case (samples.h). samples.cc collects
// the rows, and the tests of this folder check them.
#include <functional>

#include "absl/strings/str_cat.h"
#include "tests/ops/samples.h"

namespace tessera::ir::samples {
namespace {

using enum DType;
using Body = std::function<std::vector<Value>(Builder&, const std::vector<Value>&)>;

FunctionRef Fn(const Scope& scope, const std::vector<Type>& params, const Body& body) {
  Builder b(scope, "body");
  std::vector<Value> in;
  for (const Type& t : params) in.push_back(b.Param(t));
  return b.Build(body(b, in));
}

Scope OnMesh() { return {Mesh{{{"x", 2}, {"y", 2}}}}; }

// Returns x * y + x and x.
std::vector<Value> MulAdd(Builder&, const std::vector<Value>& v) {
  return {v[0] * v[1] + v[0], v[0]};
}
// Returns sin(x) * y.
std::vector<Value> SinMul(Builder&, const std::vector<Value>& v) { return {Sin(v[0]) * v[1]}; }

// Adds rows of call and checkpoint. The bodies cover linear, bilinear and bool functions, and a
// call within a call, where the inner call returns one of its arguments.
void AddCalls(std::vector<Sample>* rows) {
  for (DType d : Numbers()) {
    const Type t = MakeType(d, {4, 8});
    // XLA on the machine that records fuses the multiplication and the addition, with one rounding.
    const Tolerance near = IsFloat(d) ? Reordered(2) : kExact;
    rows->push_back(Make("call", N(d), {Of(d, {4, 8}), Of(d, {4, 8})})
                        .With({{"name", std::string("muladd")}})
                        .Region(Fn({}, {t, t}, MulAdd))
                        .Within(near));
    rows->push_back(Make("checkpoint", N(d), {Of(d, {4, 8}), Of(d, {4, 8})})
                        .Region(Fn({}, {t, t}, MulAdd))
                        .Within(near));
  }
  const Type t = MakeType(kF64, {4, 8}), p = MakeType(kBool, {4, 8});
  rows->push_back(Make("call", "f64/linear", {Of(kF64, {4, 8}), Of(kF64, {4, 8})})
                      .Region(Fn({}, {t, t},
                                 [](Builder&, const std::vector<Value>& v) {
                                   return std::vector<Value>{v[0] + v[1], -v[1]};
                                 }))
                      .Linear({{0, 1}, {0}, {1}}));
  rows->push_back(Make("call", "f64/bilinear", {Of(kF64, {4, 8}), Of(kF64, {8, 4})})
                      .Region(Fn({}, {t, MakeType(kF64, {8, 4})},
                                 [](Builder&, const std::vector<Value>& v) {
                                   return std::vector<Value>{Matmul2D(v[0], v[1])};
                                 }))
                      .Linear({{0}, {1}})
                      .Within(Reordered(9)));
  rows->push_back(Make("checkpoint", "f64/sin", {Of(kF64, {4, 8}), Of(kF64, {4, 8})})
                      .Region(Fn({}, {t, t}, SinMul))
                      .Linear({{1}})
                      .Within(Ulps(4)));
  rows->push_back(Make("call", "bool", {Of(kBool, {4, 8}), Of(kF64, {4, 8})})
                      .Region(Fn({}, {p, t}, [](Builder&, const std::vector<Value>& v) {
                        return std::vector<Value>{Select(v[0], v[1], -v[1]), Not(v[0])};
                      })));
  rows->push_back(Make("checkpoint", "bool", {Of(kBool, {4, 8})})
                      .Region(Fn({}, {p}, [](Builder&, const std::vector<Value>& v) {
                        return std::vector<Value>{Not(v[0])};
                      })));
  // A call within a call. One result of the inner call is one of its arguments.
  const FunctionRef inner = Fn({}, {t, t}, MulAdd);
  rows->push_back(Make("call", "f64/nested", {Of(kF64, {4, 8}), Of(kF64, {4, 8})})
                      .Region(Fn({}, {t, t},
                                 [inner](Builder& b, const std::vector<Value>& v) {
                                   std::vector<Value> r = Call(b, inner, {v[0], v[1]});
                                   return std::vector<Value>{Cos(r[0]), r[1], v[1]};
                                 }))
                      .Within(Ulps(8)));
}

constexpr char kMovesNothing[] = "it moves nothing";

void AddBarriersAndConstraints(std::vector<Sample>* rows) {
  for (DType d : AllDTypes()) {
    rows->push_back(Make("optimization_barrier", N(d), {Of(d, {4, 8}), Of(d, {8})})
                        .Moves()
                        .Linear({{0, 1}, {0}, {1}})
                        .Without(CheckKind::kCost, kMovesNothing)
                        .Without(CheckKind::kVarying, "each operand keeps its own state"));
    rows->push_back(Make("sharding_constraint", N(d), {Of(d, {4, 8})})
                        .Moves()
                        .With({{"sharding", PartitionSpec{{{"x"}, {"y"}}, {}, {}, {}}}})
                        .In(OnMesh())
                        .Linear({{0}})
                        .Without(CheckKind::kCost, kMovesNothing));
  }
  rows->push_back(Make("sharding_constraint", "f64/replicated", {Of(kF64, {4, 8})})
                      .With({{"sharding", PartitionSpec{{{}, {}}, {}, {}, {}}}})
                      .In(OnMesh())
                      .Linear({{0}})
                      .Without(CheckKind::kCost, kMovesNothing));
}

Attrs ScanAttrs(int64_t consts, int64_t carry, int64_t length, bool reverse) {
  return {{"num_consts", consts}, {"num_carry", carry}, {"length", length}, {"reverse", reverse}};
}

// Adds scans in both directions for every dtype, and one row for each special form: a counter, a
// scan without carry, a linear body, no steps, and bools.
void AddScans(std::vector<Sample>* rows) {
  // carry' = const * carry + x, y = carry' * x.
  const Body step = [](Builder&, const std::vector<Value>& v) {
    const Value next = v[0] * v[1] + v[2];
    return std::vector<Value>{next, next * v[2]};
  };
  for (bool reverse : {false, true})
    for (DType d : Numbers()) {
      const Type row = MakeType(d, {4});
      const Fill fill = IsFloat(d) ? Uniform(-1, 1) : UsualFill(d);
      rows->push_back(Make("scan", absl::StrCat(N(d), reverse ? "/reverse" : "/forward"),
                           {Of(d, {4}, fill), Of(d, {4}, fill), Of(d, {8, 4}, fill)})
                          .With(ScanAttrs(1, 1, 8, reverse))
                          .Region(Fn({}, {row, row, row}, step))
                          .Within(IsFloat(d) ? Reordered(16) : kExact));
    }
  const Type f = MakeType(kF64, {4}), i = MakeType(kS32, {});
  rows->push_back(Make("scan", "f64/counter", {Of(kS32, {}, Values({2})), Of(kF64, {4})})
                      .With(ScanAttrs(0, 2, 5, false))
                      .Main(1)
                      .Region(Fn({}, {i, f},
                                 [](Builder& b, const std::vector<Value>& v) {
                                   const Value next = v[0] + Constant(b, kS32, 1);
                                   const Value count = Convert(BroadcastInDim(v[0], {4}, {}), kF64);
                                   return std::vector<Value>{next, Sin(v[1]) + count};
                                 }))
                      .Within(Ulps(16)));
  rows->push_back(Make("scan", "f64/map", {Of(kF64, {4}), Of(kF64, {8, 4})})
                      .With(ScanAttrs(1, 0, 8, false))
                      .Region(Fn({}, {f, f}, SinMul))
                      .Within(Ulps(4)));
  rows->push_back(Make("scan", "f64/linear", {Of(kF64, {4}), Of(kF64, {4}), Of(kF64, {8, 4})})
                      .With(ScanAttrs(1, 1, 8, false))
                      .Region(Fn({}, {f, f, f},
                                 [](Builder&, const std::vector<Value>& v) {
                                   return std::vector<Value>{v[1] + v[2] * v[0], v[1]};
                                 }))
                      .Linear({{1, 2}, {2}, {1}})
                      .Within(Reordered(16)));
  rows->push_back(Make("scan", "f64/no_steps", {Of(kF64, {4}), Of(kF64, {4}), Of(kF64, {0, 4})})
                      .With(ScanAttrs(1, 1, 0, false))
                      .Region(Fn({}, {f, f, f}, step))
                      .Without(CheckKind::kCost, "no step is taken"));
  const Type p = MakeType(kBool, {4});
  rows->push_back(Make("scan", "bool", {Of(kBool, {4}), Of(kBool, {8, 4})})
                      .With(ScanAttrs(0, 1, 8, false))
                      .Region(Fn({}, {p, p}, [](Builder&, const std::vector<Value>& v) {
                        const Value next = Xor(v[0], v[1]);
                        return std::vector<Value>{next, next};
                      })));
}

// Halving a u32 until it is zero makes loops that end for all operands.
Value Halved(Value i) { return ShiftRightLogical(i, FullLike(i, 1)); }
Value IsNotZero(Value i) { return Compare(i, FullLike(i, 0), "NE"); }

// Adds loops whose number of steps depends on an operand, so that the examples of a batch take
// different numbers of steps.
void AddWhiles(std::vector<Sample>* rows) {
  const Type u = MakeType(kU32, {});
  const auto attrs = [](int64_t predicate_consts, int64_t body_consts) {
    return Attrs{{"num_predicate_consts", predicate_consts}, {"num_body_consts", body_consts}};
  };
  constexpr char kForward[] = "how often it runs is not known: forward derivatives only";
  const auto steps = [](std::vector<double> n) { return Of(kU32, {}, Values(std::move(n))); };
  // The loop is (i, x) <- (i / 2, x * c + c) while i != 0.
  const Body go_on = [](Builder&, const std::vector<Value>& v) {
    return std::vector<Value>{IsNotZero(v[0])};
  };
  const Body step = [](Builder&, const std::vector<Value>& v) {
    return std::vector<Value>{Halved(v[1]), v[2] * v[0] + v[0]};
  };
  for (DType d : Numbers()) {
    const Type row = MakeType(d, {4});
    const Fill fill = IsFloat(d) ? Uniform(-1, 1) : UsualFill(d);
    rows->push_back(Make("while", N(d), {Of(d, {4}, fill), steps({5, 9, 1}), Of(d, {4}, fill)})
                        .With(attrs(0, 1))
                        .Region(Fn({}, {u, row}, go_on))
                        .Region(Fn({}, {row, u, row}, step))
                        .Within(IsFloat(d) ? Reordered(16) : kExact)
                        .Without(CheckKind::kTranspose, kForward));
  }
  const Type f = MakeType(kF64, {4}), p = MakeType(kBool, {4});
  rows->push_back(Make("while", "f64/no_steps", {Of(kF64, {4}), steps({0}), Of(kF64, {4})})
                      .With(attrs(0, 1))
                      .Region(Fn({}, {u, f}, go_on))
                      .Region(Fn({}, {f, u, f}, step))
                      .Without(CheckKind::kTranspose, kForward));
  // The predicate has a constant, which ends the loop sooner for some examples of a batch.
  rows->push_back(Make("while", "f64/limit",
                       {Of(kF64, {}, Uniform(1, 6)), Of(kF64, {4}, Uniform(1, 2)), steps({255}),
                        Of(kF64, {4}, Uniform(0, 0.5))})
                      .With(attrs(1, 1))
                      .Main(1)
                      .Region(Fn({}, {MakeType(kF64, {}), u, f},
                                 [](Builder&, const std::vector<Value>& v) {
                                   const Value more = IsNotZero(v[1]);
                                   const Value below = Compare(ReduceMax(v[2], {0}), v[0], "LT");
                                   return std::vector<Value>{And(more, below)};
                                 }))
                      .Region(Fn({}, {f, u, f},
                                 [](Builder&, const std::vector<Value>& v) {
                                   return std::vector<Value>{Halved(v[1]), Sin(v[2]) + v[0] + v[2]};
                                 }))
                      .Within(Ulps(16))
                      .Without(CheckKind::kTranspose, kForward));
  // In this loop the carries change places.
  rows->push_back(Make("while", "bool", {steps({5, 4}), Of(kBool, {4}), Of(kBool, {4})})
                      .With(attrs(0, 0))
                      .Main(1)
                      .Region(Fn({}, {u, p, p}, go_on))
                      .Region(Fn({}, {u, p, p}, [](Builder&, const std::vector<Value>& v) {
                        return std::vector<Value>{Halved(v[0]), v[2], Xor(v[1], v[2])};
                      })));
}

// Adds every branch of a case for every dtype. For f64 adds the special forms: an index that is
// clamped, branches with different residuals, and one branch; and then a case of bools.
void AddCases(std::vector<Sample>* rows) {
  const auto index = [](std::vector<double> i) { return Of(kS32, {}, Values(std::move(i))); };
  const Body second_first = [](Builder&, const std::vector<Value>& v) {
    return std::vector<Value>{v[1], v[0]};
  };
  const Body differences = [](Builder&, const std::vector<Value>& v) {
    return std::vector<Value>{v[0] - v[1], v[1] - v[0]};
  };
  for (DType d : Numbers()) {
    const Type t = MakeType(d, {4, 8});
    for (const double i : {0, 1, 2})
      rows->push_back(
          Make("case", absl::StrCat(N(d), "/", i), {index({i, 2, 0}), Of(d, {4, 8}), Of(d, {4, 8})})
              .Main(1)
              .Region(Fn({}, {t, t}, MulAdd))
              .Region(Fn({}, {t, t}, second_first))
              .Region(Fn({}, {t, t}, differences))
              .Within(IsFloat(d) ? Reordered(2) : kExact));
  }
  const Type t = MakeType(kF64, {4, 8}), p = MakeType(kBool, {4, 8});
  for (const double i : {-3, 7})
    rows->push_back(Make("case", absl::StrCat("f64/clamped", i),
                         {index({i, -i}), Of(kF64, {4, 8}), Of(kF64, {4, 8})})
                        .Main(1)
                        .Region(Fn({}, {t, t}, second_first))
                        .Region(Fn({}, {t, t}, differences))
                        .Linear({{1, 2}, {1}, {2}}));
  // The branches keep different kinds and numbers of residuals for a gradient.
  rows->push_back(Make("case", "f64/residuals",
                       {index({1, 0, 2}), Of(kF64, {4, 8}), Of(kF64, {4, 8}, Uniform(0.5, 2))})
                      .Main(1)
                      .Region(Fn({}, {t, t}, SinMul))
                      .Region(Fn({}, {t, t},
                                 [](Builder&, const std::vector<Value>& v) {
                                   const Value e = Exp(v[0] * v[1]);
                                   return std::vector<Value>{Sin(e) * e};
                                 }))
                      .Region(Fn({}, {t, t},
                                 [](Builder&, const std::vector<Value>& v) {
                                   return std::vector<Value>{Log(v[1])};
                                 }))
                      .Within(Ulps(64)));
  rows->push_back(Make("case", "f64/one_branch", {index({0}), Of(kF64, {4, 8}), Of(kF64, {4, 8})})
                      .Main(1)
                      .Region(Fn({}, {t, t}, second_first))
                      .Linear({{1, 2}, {1}, {2}})
                      .Without(CheckKind::kCost, kMovesNothing));
  rows->push_back(Make("case", "bool", {index({1, 0}), Of(kBool, {4, 8}), Of(kF64, {4, 8})})
                      .Main(1)
                      .Region(Fn({}, {p, t},
                                 [](Builder&, const std::vector<Value>& v) {
                                   return std::vector<Value>{Select(v[0], v[1], -v[1]), v[0]};
                                 }))
                      .Region(Fn({}, {p, t}, [](Builder&, const std::vector<Value>& v) {
                        return std::vector<Value>{v[1], Not(v[0])};
                      })));
}

// Adds manual computations on a mesh of 2 x 2 devices: with and without a check of varying axes,
// with collectives in branches, and with one axis that is left to the planner.
void AddManual(std::vector<Sample>* rows) {
  const Scope outer = OnMesh();
  const Scope inner{outer.mesh.WithAxisType({"x", "y"}, AxisType::kManual)};
  const PartitionSpec rows_on_x{{{"x"}}, {}, {}, {}}, both{{{"x"}, {"y"}}, {}, {}, {}}, whole{};
  auto local = [](DType d, Dims shape, AxisSet varying) {
    Type t = MakeType(d, std::move(shape));
    t.varying = std::move(varying);
    return t;
  };
  auto attrs = [](std::vector<PartitionSpec> in, std::vector<PartitionSpec> out, AxisList axes,
                  bool check) {
    return Attrs{{"in_specs", std::move(in)},
                 {"out_specs", std::move(out)},
                 {"manual_axes", std::move(axes)},
                 {"check_vma", check}};
  };
  for (DType d : Numbers()) {
    // Multiplies block (x, y) of the first operand by a replicated vector, and sums over x.
    rows->push_back(
        Make("manual_computation", absl::StrCat(N(d), "/psum"), {Of(d, {4, 8}), Of(d, {4})})
            .With(attrs({both, whole}, {PartitionSpec{{{}, {"y"}}, {}, {}, {}}, both}, {"x", "y"},
                        true))
            .Region(Fn(
                inner, {local(d, {2, 4}, {"x", "y"}), local(d, {4}, {})},
                [](Builder&, const std::vector<Value>& v) {
                  const Value scaled = v[0] * Pvary(BroadcastInDim(v[1], {2, 4}, {1}), {"x", "y"});
                  return std::vector<Value>{Psum(scaled, {"x"}), scaled};
                }))
            .In(outer)
            .Within(IsFloat(d) ? Reordered(4) : kExact));
    rows->push_back(
        Make("manual_computation", absl::StrCat(N(d), "/gather"), {Of(d, {4, 8})})
            .With(attrs({both}, {whole}, {"x", "y"}, true))
            .Region(Fn(inner, {local(d, {2, 4}, {"x", "y"})},
                       [](Builder&, const std::vector<Value>& v) {
                         const Value columns = AllGather(v[0], {"y"}, 1, true, "invarying");
                         return std::vector<Value>{AllGather(columns, {"x"}, 0, true, "invarying")};
                       }))
            .In(outer)
            .Linear({{0}}));
  }
  rows->push_back(Make("manual_computation", "bool/local", {Of(kBool, {4, 8})})
                      .With(attrs({both}, {both}, {"x", "y"}, true))
                      .Region(Fn(inner, {local(kBool, {2, 4}, {"x", "y"})},
                                 [](Builder&, const std::vector<Value>& v) {
                                   return std::vector<Value>{Not(v[0])};
                                 }))
                      .In(outer));
  // Devices with different coordinates along x do a different number of exchanges along y.
  // Afterwards they exchange along x.
  rows->push_back(
      Make("manual_computation", "f64/branches", {Of(kF64, {4, 8})})
          .With(attrs({both}, {PartitionSpec{{{}, {"y"}}, {}, {}, {}}}, {"x", "y"}, true))
          .Region(
              Fn(inner, {local(kF64, {2, 4}, {"x", "y"})},
                 [inner](Builder& b, const std::vector<Value>& v) {
                   const std::vector<Type> in = {v[0].type()};
                   const auto sums = [&](int times) {
                     return Fn(inner, in, [times](Builder&, const std::vector<Value>& w) {
                       Value sum = w[0];
                       for (int i = 0; i < times; ++i) sum = Pvary(Psum(sum, {"y"}), {"y"});
                       return std::vector<Value>{sum};
                     });
                   };
                   const Value index = AxisIndex(b, {"x"});
                   return std::vector<Value>{Psum(Case(index, {sums(2), sums(1)}, v)[0], {"x"})};
                 }))
          .In(outer)
          .Within(Reordered(16))
          .Without(CheckKind::kRecorded, "the recording backend stands still"));
  const Scope unchecked{inner.mesh, /*check_vma=*/false};
  rows->push_back(Make("manual_computation", "f64/unchecked", {Of(kF64, {4, 8}), Of(kF64, {2, 8})})
                      .With(attrs({rows_on_x, whole}, {rows_on_x}, {"x", "y"}, false))
                      .Region(Fn(unchecked, {MakeType(kF64, {2, 8}), MakeType(kF64, {2, 8})},
                                 [](Builder&, const std::vector<Value>& v) {
                                   const Value total = Psum(v[0], {"x"});
                                   return std::vector<Value>{Sin(v[0]) * total + v[1]};
                                 }))
                      .In(outer)
                      .Within(Reordered(8)));
  // This computation is Manual along x only; the planner decides about y.
  const Scope partly{outer.mesh.WithAxisType({"x"}, AxisType::kManual)};
  rows->push_back(Make("manual_computation", "f64/partly", {Of(kF64, {4, 8})})
                      .With(attrs({rows_on_x}, {rows_on_x}, {"x"}, true))
                      .Region(Fn(partly, {local(kF64, {2, 8}, {"x"})},
                                 [](Builder&, const std::vector<Value>& v) {
                                   const Value total = Pvary(Psum(v[0], {"x"}), {"x"});
                                   return std::vector<Value>{Cos(v[0]) + total};
                                 }))
                      .In(outer)
                      .Within(Reordered(8)));
}

Attrs NumConsts(int64_t n) { return {{"num_consts", n}}; }

// Adds functions with custom derivative rules. The rules are the true derivatives, so all checks of
// derivatives must pass.
void AddCustomDerivatives(std::vector<Sample>* rows) {
  const Body rule = [](Builder&, const std::vector<Value>& v) {
    const Value along_x = v[2] * v[1] + v[2], along_y = v[0] * v[3];
    return std::vector<Value>{v[0] * v[1] + v[0], v[0], along_x + along_y, v[2]};
  };
  // The residuals are x and y. bwd takes them before the two cotangents.
  const Body fwd = [](Builder&, const std::vector<Value>& v) {
    return std::vector<Value>{v[0] * v[1] + v[0], v[0], v[0], v[1]};
  };
  const Body bwd = [](Builder&, const std::vector<Value>& v) {
    return std::vector<Value>{v[2] * v[1] + v[2] + v[3], v[2] * v[0]};
  };
  constexpr char kNoForwardMode[] = "its tangent has none: forward mode is refused";
  for (DType d : Numbers()) {
    const Type t = MakeType(d, {4, 8});
    const bool inexact = IsFloat(d);
    const Tolerance near = inexact ? Reordered(2) : kExact;
    const std::vector<Type> two = {t, t}, four = {t, t, t, t};
    // Integers have no derivative, so the rules of integer functions have no tangents and no
    // cotangents.
    const Body no_cotangents = [](Builder&, const std::vector<Value>&) {
      return std::vector<Value>{};
    };
    rows->push_back(Make("custom_jvp_call", N(d), {Of(d, {4, 8}), Of(d, {4, 8})})
                        .With(NumConsts(0))
                        .Region(Fn({}, two, MulAdd))
                        .Region(inexact ? Fn({}, four, rule) : Fn({}, two, MulAdd))
                        .Within(near));
    rows->push_back(Make("custom_vjp_call", N(d), {Of(d, {4, 8}), Of(d, {4, 8})})
                        .With(NumConsts(0))
                        .Region(Fn({}, two, MulAdd))
                        .Region(Fn({}, two, fwd))
                        .Region(inexact ? Fn({}, four, bwd) : Fn({}, two, no_cotangents))
                        .Within(near)
                        .Without(CheckKind::kJvp, kNoForwardMode));
  }
  // These functions capture an s32 and are linear in y.
  const Type f = MakeType(kF64, {4, 8}), n = MakeType(kS32, {});
  const auto scaled = [](Value by, Value x, Value y) {
    const Value product = Sin(x) * y;
    return product * Convert(BroadcastInDim(by, {4, 8}, {}), kF64);
  };
  const Body captures = [scaled](Builder&, const std::vector<Value>& v) {
    return std::vector<Value>{scaled(v[0], v[1], v[2])};
  };
  const Body captures_rule = [scaled](Builder&, const std::vector<Value>& v) {
    const Value result = scaled(v[0], v[1], v[2]);
    const Value by = Convert(BroadcastInDim(v[0], {4, 8}, {}), kF64);
    const Value along_x = Cos(v[1]) * v[2] * v[3], along_y = Sin(v[1]) * v[4];
    return std::vector<Value>{result, by * (along_x + along_y)};
  };
  const Body captures_fwd = [scaled](Builder&, const std::vector<Value>& v) {
    return std::vector<Value>{scaled(v[0], v[1], v[2]), v[1], v[2]};
  };
  const Body captures_bwd = [](Builder&, const std::vector<Value>& v) {
    const Value g = v[3] * Convert(BroadcastInDim(v[0], {4, 8}, {}), kF64);
    const Value along_x = g * Cos(v[1]) * v[2];
    return std::vector<Value>{along_x, g * Sin(v[1])};
  };
  const std::vector<Operand> operands = {Of(kS32, {}, Values({3})), Of(kF64, {4, 8}),
                                         Of(kF64, {4, 8})};
  rows->push_back(Make("custom_jvp_call", "f64/captured", operands)
                      .With(NumConsts(1))
                      .Main(1)
                      .Region(Fn({}, {n, f, f}, captures))
                      .Region(Fn({}, {n, f, f, f, f}, captures_rule))
                      .Linear({{2}})
                      .Within(Ulps(4)));
  rows->push_back(Make("custom_vjp_call", "f64/captured", operands)
                      .With(NumConsts(1))
                      .Main(1)
                      .Region(Fn({}, {n, f, f}, captures))
                      .Region(Fn({}, {n, f, f}, captures_fwd))
                      .Region(Fn({}, {n, f, f, f}, captures_bwd))
                      .Linear({{2}})
                      .Within(Ulps(4))
                      .Without(CheckKind::kJvp, kNoForwardMode));
  for (DType d : Floats()) {
    const Type t = MakeType(d, {4, 8});
    // The op multiplies a tangent by the residual, and sums the tangent along dim 1. The region is
    // the transpose, which takes the residual and the cotangents of both results.
    rows->push_back(Make("custom_lin", N(d), {Of(d, {4, 8}), Of(d, {4, 8})})
                        .With({{"num_residuals", int64_t{1}}})
                        .Region(Fn({}, {t, t, MakeType(d, {4})},
                                   [](Builder&, const std::vector<Value>& v) {
                                     const Value spread = BroadcastInDim(v[2], {4, 8}, {0});
                                     return std::vector<Value>{v[1] * v[0] + spread};
                                   }))
                        .Linear({{1}})
                        .Within(Reordered(16))
                        .Without(CheckKind::kSharded, "a plan refuses it"));
  }
}

// Adds solves of diagonal systems, which are symmetric, and a solve of one system that is not
// symmetric, for which the solve and the solve of the transpose differ.
void AddLinearSolves(std::vector<Sample>* rows) {
  // The system is diag(a) x = b, so both functions are elementwise.
  const Body matvec = [](Builder&, const std::vector<Value>& v) {
    return std::vector<Value>{v[0] * v[1]};
  };
  const Body solve = [](Builder&, const std::vector<Value>& v) {
    return std::vector<Value>{v[1] / v[0]};
  };
  for (DType d : Floats()) {
    const Type t = MakeType(d, {4, 8});
    rows->push_back(
        Make("custom_linear_solve", N(d), {Of(d, {4, 8}, Uniform(0.5, 2)), Of(d, {4, 8})})
            .With(NumConsts(1))
            .Region(Fn({}, {t, t}, solve))
            .Region(Fn({}, {t, t}, matvec))
            .Region(Fn({}, {t, t}, solve))
            .Region(Fn({}, {t, t}, matvec))
            .Linear({{1}})
            .Within(Ulps(2)));
  }
  // The system is [[a, c], [0, c]] (x, y) = b. The last two regions solve and apply its transpose.
  const Type t = MakeType(kF64, {8});
  const std::vector<Type> in(4, t);
  const Fill away = Uniform(0.5, 2);
  rows->push_back(Make("custom_linear_solve", "f64/pair",
                       {Of(kF64, {8}, away), Of(kF64, {8}, away), Of(kF64, {8}), Of(kF64, {8})})
                      .With(NumConsts(2))
                      .Region(Fn({}, in,
                                 [](Builder&, const std::vector<Value>& v) {
                                   const Value rest = v[2] - v[3];
                                   return std::vector<Value>{rest / v[0], v[3] / v[1]};
                                 }))
                      .Region(Fn({}, in,
                                 [](Builder&, const std::vector<Value>& v) {
                                   const Value second = v[1] * v[3], first = v[0] * v[2];
                                   return std::vector<Value>{first + second, second};
                                 }))
                      .Region(Fn({}, in,
                                 [](Builder&, const std::vector<Value>& v) {
                                   const Value x = v[2] / v[0], y = v[3] / v[1];
                                   return std::vector<Value>{x, y - x};
                                 }))
                      .Region(Fn({}, in,
                                 [](Builder&, const std::vector<Value>& v) {
                                   const Value sum = v[2] + v[3];
                                   return std::vector<Value>{v[0] * v[2], v[1] * sum};
                                 }))
                      .Linear({{2, 3}, {2}, {3}})
                      .Within(Ulps(4)));
}

}  // namespace

std::vector<Sample> ControlSamples() {
  std::vector<Sample> rows;
  AddCalls(&rows);
  AddBarriersAndConstraints(&rows);
  AddScans(&rows);
  AddWhiles(&rows);
  AddCases(&rows);
  AddManual(&rows);
  AddCustomDerivatives(&rows);
  AddLinearSolves(&rows);
  return rows;
}

}  // namespace tessera::ir::samples
