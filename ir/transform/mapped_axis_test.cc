// Proves Batch over a mapped axis with a name: collectives along it give the results that they give
// among devices, and the axis is gone from the batched function.
#include "absl/strings/str_join.h"
#include "ir/program_hash.h"
#include "ir/text.h"
#include "ir/transform/testing/transform_checks.h"
#include "ir/verify.h"

namespace tessera::ir {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): helpers of tests
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Specs = std::vector<PartitionSpec>;

PartitionSpec P(DimAxes dims = {}) { return {std::move(dims), {}, {}, {}}; }

MappedAxis Axis(int64_t size, std::string name, AxisList spmd = {}) {
  MappedAxis axis = size;
  axis.name = std::move(name);
  axis.spmd = std::move(spmd);
  return axis;
}
Scope ScopeUnder(const MappedAxis& axis, Scope scope = {}) {
  scope.mapped.push_back(axis);
  return scope;
}
bool Mentions(const Function& f, const std::string& axis) {
  return PrintFunction(f).find("\"" + axis + "\"") != std::string::npos;
}

// ---- The oracle: the same calls among devices. -------------------------------------------------

constexpr int64_t kSize = 3;  // of axis i
// Returns the mesh a=2, i=3, b=2, without i if that axis is mapped. Arguments have a leading dim
// for each of these axes.
Mesh DeviceMesh(bool with_i) {
  Mesh mesh{{{"a", 2}, {"i", kSize}, {"b", 2}}};
  if (!with_i) mesh.axes.erase(mesh.axes.begin() + 1);
  return mesh;
}

struct CollectiveCall {
  std::string name;
  Dims member;  // the shape that the call sees
  std::function<Value(Value)> op;
  bool batched = true;  // whether the members differ
};

// Returns a shard_map of `body`, with arguments of shape [a, i, b, ...], over the axes of `mesh`.
// If i is not an axis of the mesh, the body sees it as a leading dim.
FunctionRef OnDevices(const Mesh& mesh, const Type& arg, bool check_vma, const Body& body) {
  AxisList manual;
  for (const MeshAxis& a : mesh.axes) manual.push_back(a.name);
  const bool with_i = mesh.Has("i");
  const Specs specs = {P({{"a"}, with_i ? AxisList{"i"} : AxisList{}, {"b"}})};
  const Scope outer{mesh};
  const std::vector<int64_t> dropped =
      with_i ? std::vector<int64_t>{0, 1, 2} : std::vector<int64_t>{0, 2};
  return Fn(outer, {arg}, [&](Builder& b, const std::vector<Value>& p) {
    const std::vector<Type> blocks = ManualShardTypes(outer, {arg}, specs, manual, check_vma);
    const FunctionRef f = Fn(ManualScope(outer, manual, check_vma), blocks,
                             [&](Builder& inside, const std::vector<Value>& block) {
                               std::vector<Value> out = body(inside, {Squeeze(block[0], dropped)});
                               if (check_vma) {
                                 AxisSet missing(manual.begin(), manual.end());
                                 for (const std::string& a : out[0].type().varying)
                                   missing.erase(a);
                                 out[0] = Pvary(out[0], missing);
                               }
                               return std::vector<Value>{ExpandDims(out[0], dropped)};
                             });
    return ManualComputation(b, f, p, specs, specs, manual, check_vma);
  });
}

// Returns the vmap of `call.op` over axis i, inside a body.
Value VmapOf(Builder& b, const CollectiveCall& call, Value x) {
  const Type member = [&] {
    Type t = x.type();
    t.shape.erase(t.shape.begin());
    return t;
  }();
  const MappedAxis axis = Axis(kSize, "i");
  const FunctionRef f =
      Fn(ScopeUnder(axis, b.scope()), {member},
         [&](Builder&, const std::vector<Value>& p) { return std::vector<Value>{call.op(p[0])}; });
  const Value arg = call.batched ? x : SliceInDim(x, 0, 0, 1);
  const BatchResult batched = ValueOrThrow(Batch(*f, {call.batched ? 0 : -1}, axis, {0}));
  EXPECT_FALSE(Mentions(*batched.fn, "i")) << call.name;
  return Inline(b, *batched.fn, {call.batched ? arg : Squeeze(arg, {0})})[0];
}

// Returns every collective over several lists of axes, each with members that differ and with
// members that are all the same. The permutations cover full, partial and empty exchanges.
std::vector<CollectiveCall> CollectiveCalls() {
  const auto rotated = [](int64_t n) {
    std::vector<std::pair<int64_t, int64_t>> perm;
    for (int64_t k = 0; k < n; ++k) perm.emplace_back(k, (k + 1) % n);
    return perm;
  };
  std::vector<CollectiveCall> calls;
  const std::vector<AxisList> lists = {{"i"},      {"a", "i"},      {"i", "a"},
                                       {"i", "b"}, {"a", "i", "b"}, {"b", "i", "a"}};
  for (const AxisList& axes : lists) {
    int64_t n = 1;
    for (const std::string& a : axes) n *= a == "i" ? kSize : 2;
    const auto add = [&](const std::string& name, Dims member, std::function<Value(Value)> op) {
      for (bool batched : {true, false})
        calls.push_back({absl::StrCat(name, " over ", absl::StrJoin(axes, ","),
                                      batched ? "" : ", the same for all"),
                         member, op, batched});
    };
    add("psum", {2}, [=](Value x) { return Psum(x, axes); });
    add("pmax", {2}, [=](Value x) { return Pmax(x, axes); });
    add("pmin", {2}, [=](Value x) { return Pmin(x, axes); });
    for (bool tiled : {true, false})
      for (int dim : {0, 1}) {
        const std::string how = absl::StrCat(tiled ? "_tiled " : " ", dim);
        const Dims both = {2 * n, 2 * n}, whole = {tiled ? 2 * n : n, tiled ? 2 * n : n};
        add("all_gather" + how, {2, 4}, [=](Value x) { return AllGather(x, axes, dim, tiled); });
        add("psum_scatter" + how, whole, [=](Value x) { return PsumScatter(x, axes, dim, tiled); });
        for (int concat : {0, 1})
          add(absl::StrCat("all_to_all", how, concat), whole,
              [=](Value x) { return AllToAll(x, axes, dim, concat, tiled); });
      }
    add("axis_index", {2}, [=](Value x) {
      const Value index = AxisIndex(x.builder(), axes);
      const Value weight = Convert(index, DType::kF64);
      return x + BroadcastInDim(weight, {2}, {});
    });
    if (axes.size() == 1) {
      add("ppermute around", {2}, [=](Value x) { return Ppermute(x, axes, rotated(kSize)); });
      add("ppermute back", {2}, [=](Value x) {
        return Ppermute(x, axes, {{2, 1}, {1, 0}, {0, 2}});
      });
      add("ppermute some", {2}, [=](Value x) { return Ppermute(x, axes, {{0, 2}, {1, 1}}); });
      add("ppermute one", {2}, [=](Value x) { return Ppermute(x, axes, {{2, 0}}); });
      add("ppermute none", {2}, [=](Value x) { return Ppermute(x, axes, {}); });
    }
  }
  return calls;
}

// Compares each collective along a mapped axis with the same collective among devices.
TEST(MappedAxis, CollectivesGiveTheSameResultsAsAmongDevices) {
  for (const CollectiveCall& call : CollectiveCalls()) {
    for (bool check_vma : {true, false}) {
      SCOPED_TRACE(call.name + (check_vma ? "" : ", unchecked"));
      const Type arg = F64(Cat<int64_t>({2, kSize, 2}, call.member));
      const FunctionRef mapped = OnDevices(DeviceMesh(false), arg, check_vma,
                                           [&](Builder& b, const std::vector<Value>& p) {
                                             return std::vector<Value>{VmapOf(b, call, p[0])};
                                           });
      const FunctionRef among = OnDevices(
          DeviceMesh(true), arg, check_vma,
          [&](Builder&, const std::vector<Value>& p) { return std::vector<Value>{call.op(p[0])}; });
      Array x = Random(arg, 7);
      // Gives all members the values of the first one.
      if (!call.batched) {
        const int64_t n = Array(DType::kF64, call.member).num_elements();
        for (int64_t k = 0; k < x.num_elements(); ++k) {
          const int64_t e = k % n, b = k / n % 2, a = k / n / 2 / kSize;
          x.Set(k, x.At((a * kSize * 2 + b) * n + e));
        }
      }
      TESSERA_EXPECT_OK(VerifyFunction(*mapped));
      ExpectNear(Eval(*mapped, {x}), Eval(*among, {x}), 1e-12, "mapped vs among devices");
    }
  }
}

// ---- Derivatives: psum transposes to psum, as among devices without check_vma. ------------------

// Compares gradients that are taken inside the vmap with those taken on each device.
TEST(MappedAxis, DerivativesInsideEqualThoseAmongDevicesUnchecked) {
  for (const CollectiveCall& call : CollectiveCalls()) {
    if (call.name.starts_with("pm")) continue;  // pmax and pmin are not differentiable
    SCOPED_TRACE(call.name);
    const auto grad = [&](Value x) {
      const FunctionRef loss =
          Fn(x.builder().scope(), {x.type()}, [&](Builder&, const std::vector<Value>& p) {
            Value y = call.op(p[0] * p[0]);
            y = Sin(y);
            std::vector<int64_t> all;
            for (int d = 0; d < y.rank(); ++d) all.push_back(d);
            return std::vector<Value>{ReduceSum(y, all)};
          });
      return Inline(x.builder(), *GradFn(*loss, {true}), {x})[0];
    };
    const CollectiveCall of_grad = {call.name, call.member, grad, true};
    const Type arg = F64(Cat<int64_t>({2, kSize, 2}, call.member));
    const Array x = Random(arg, 5);
    const FunctionRef mapped =
        OnDevices(DeviceMesh(false), arg, false, [&](Builder& b, const std::vector<Value>& p) {
          return std::vector<Value>{VmapOf(b, of_grad, p[0])};
        });
    const FunctionRef among = OnDevices(
        DeviceMesh(true), arg, false,
        [&](Builder&, const std::vector<Value>& p) { return std::vector<Value>{grad(p[0])}; });
    ExpectNear(Eval(*mapped, {x}), Eval(*among, {x}), 1e-12, "mapped vs among devices");
  }
}

// ---- Regions. ----------------------------------------------------------------------------------
// All regions lose the axis from their scope.

// The regions of loops, branches and calls either name the axis or are the same for all members.
TEST(MappedAxis, OnlyRegionsThatNameTheAxisAreBatched) {
  const MappedAxis axis = Axis(3, "i");
  const Scope scope = ScopeUnder(axis);
  const Type s = F64({});
  const FunctionRef adds = Fn(scope, {s}, [](Builder&, const std::vector<Value>& p) {
    return std::vector<Value>{p[0] + Psum(p[0], {"i"})};
  });
  const FunctionRef doubles = Fn(scope, {s}, [](Builder&, const std::vector<Value>& p) {
    return std::vector<Value>{p[0] + p[0]};
  });
  const FunctionRef below = Fn(scope, {s}, [](Builder& b, const std::vector<Value>& p) {
    return std::vector<Value>{Compare(Pmax(p[0], {"i"}), Constant(b, DType::kF64, 100), "LT")};
  });
  const FunctionRef f = Fn(scope, {s, s}, [&](Builder& b, const std::vector<Value>& p) {
    const Value scanned = Scan(b, adds, {p[0]}, 0, 1, 2)[0];
    const Value shared = Scan(b, doubles, {p[1]}, 0, 1, 3)[0];
    const Value looped = While(b, below, adds, {p[0]}, 0, 0)[0];
    const Value index = AxisIndex(b, {"i"});
    const Value chosen = Case(index, {adds, doubles}, {p[0]})[0];
    const Value called = Call(b, adds, {shared})[0];
    const Value again = Checkpoint(b, adds, {p[0]})[0];
    return std::vector<Value>{scanned, shared, looped, chosen, called, again};
  });
  const BatchResult batched = *Batch(*f, {0, -1}, axis);
  TESSERA_EXPECT_OK(VerifyFunction(*batched.fn));
  EXPECT_THAT(batched.out_dims, ElementsAre(0, -1, 0, 0, -1, 0));
  const auto out =
      Eval(*batched.fn, {Array::Of(DType::kF64, {3}, {1, 2, 3}), Array::Of(DType::kF64, {}, {1})});
  // The values are 1, 2, 3 -> 7, 8, 9 -> 31, 32, 33, and so on until the largest is not below 100.
  EXPECT_THAT(out[0].ToDoubles(), ElementsAre(31, 32, 33));
  EXPECT_THAT(out[1].ToDoubles(), ElementsAre(8));
  EXPECT_THAT(out[2].ToDoubles(), ElementsAre(127, 128, 129));
  EXPECT_THAT(out[3].ToDoubles(), ElementsAre(7, 4, 6));
  EXPECT_THAT(out[4].ToDoubles(), ElementsAre(32));  // 8 + 3 * 8
  EXPECT_THAT(out[5].ToDoubles(), ElementsAre(7, 8, 9));
}

TEST(MappedAxis, ANameMeansTheInnermostAxis) {
  const MappedAxis outer = Axis(2, "i"), inner = Axis(3, "i");
  const Scope around = ScopeUnder(outer);
  const FunctionRef f = Fn(around, {F64({3})}, [&](Builder& b, const std::vector<Value>& p) {
    const FunctionRef member =
        Fn(ScopeUnder(inner, around), {F64({})}, [](Builder&, const std::vector<Value>& q) {
          return std::vector<Value>{Psum(q[0], {"i"})};
        });
    const std::vector<Value> rows = Inline(b, *Batch(*member, {0}, inner, {0})->fn, p);
    return std::vector<Value>{rows[0], Psum(rows[0], {"i"})};
  });
  const BatchResult batched = *Batch(*f, {0}, outer);
  const auto out = Eval(*batched.fn, {Array::Of(DType::kF64, {2, 3}, {0, 1, 2, 3, 4, 5})});
  EXPECT_THAT(out[0].ToDoubles(), ElementsAre(3, 3, 3, 12, 12, 12));
  EXPECT_THAT(out[1].ToDoubles(), ElementsAre(15, 15, 15));
  EXPECT_THAT(batched.out_dims, ElementsAre(0, -1));
}

// ---- Errors. -----------------------------------------------------------------------------------
// Some are errors about axes that must not leave the body.

// Each refusal comes with its reason and with words that tell the user what to do.
TEST(MappedAxis, UnsupportedCallsAreRefused) {
  const MappedAxis axis = Axis(2, "i");
  const Scope scope = ScopeUnder(axis, MeshScope({{"d", 2, AxisType::kManual}}));
  const auto permuted = Fn(scope, {Varying(F64({}), {"d"})}, [](Builder&, const auto& p) {
    return std::vector<Value>{Ppermute(p[0], {"i", "d"}, {{0, 1}})};
  });
  const absl::Status both = Batch(*permuted, {0}, axis).status();
  EXPECT_THAT(both, ReasonIs("NOT_IMPLEMENTED"));
  EXPECT_THAT(std::string(both.message()), HasSubstr("permute over one axis after the other"));

  const auto gathered = TryFn(scope, {Varying(F64({}), {"d"})}, [](Builder&, const auto& p) {
    return std::vector<Value>{AllGather(p[0], {"i", "d"}, 0, false, "invarying")};
  });
  EXPECT_THAT(gathered.status(), ReasonIs("NOT_IMPLEMENTED"));

  const auto cast = TryFn(scope, {F64({})}, [](Builder&, const auto& p) {
    return std::vector<Value>{Pvary(p[0], {"i"})};
  });
  EXPECT_THAT(std::string(cast.status().message()),
              HasSubstr("axis 'i' is the axis of a vmap, along which types are not tracked"));

  const auto unknown = TryFn(scope, {F64({})}, [](Builder&, const auto& p) {
    return std::vector<Value>{Psum(p[0], {"j"})};
  });
  EXPECT_THAT(unknown.status(), ReasonIs("NAME_ERROR"));
  EXPECT_THAT(std::string(unknown.status().message()), HasSubstr("Found an unbound axis name: j"));

  const auto twice = TryFn(scope, {F64({})}, [](Builder&, const auto& p) {
    return std::vector<Value>{Psum(p[0], {"i", "i"})};
  });
  EXPECT_THAT(std::string(twice.status().message()), HasSubstr("named twice"));
}

TEST(MappedAxis, OutAxesNoneNeedsAnUnbatchedResult) {
  const MappedAxis axis = Axis(2, "i");
  const auto f =
      Fn(ScopeUnder(axis), {F64({})}, [](Builder&, const std::vector<Value>& p) { return p; });
  EXPECT_THAT(std::string(Batch(*f, {0}, axis, {-1}).status().message()),
              HasSubstr("has mapped output 0 (axis_name=i) but out_axes is None"));
}

// A body that has not been batched is not a program: no reader makes one, and client and server
// refuse it.
TEST(MappedAxis, AProgramMustNotHaveMappedAxes) {
  const MappedAxis axis = Axis(2, "i");
  const FunctionRef f = Fn(ScopeUnder(axis), {F64({2})}, [](Builder&, const std::vector<Value>& p) {
    return std::vector<Value>{Psum(p[0], {"i"})};
  });
  const Program program{kOpset, f, {}, {}};
  const absl::Status verified = Verify(program);
  EXPECT_THAT(verified, ReasonIs("MALFORMED_PROGRAM"));
  EXPECT_THAT(std::string(verified.message()),
              HasSubstr("it is the body of a vmap over i=2, which has not been batched"));
  const std::string text = PrintProgram(program);
  EXPECT_THAT(text, HasSubstr(" mapped (i=2) {"));
  EXPECT_FALSE(ParseProgram(text).ok());
  // A region under an entry without the axis is refused, too.
  const FunctionRef called = TryFn({}, {F64({2})}, [&](Builder& b, const auto& p) {
                               return Call(b, f, p);
                             }).value_or(nullptr);
  EXPECT_EQ(called, nullptr);
  // The wire format has no field for the axis; the hash distinguishes such a body from one without
  // the axis.
  EXPECT_NE(StructuralHash(*f), StructuralHash(*Fn({F64({2})}, [](Builder&, const auto& p) {
              return std::vector<Value>{p[0]};
            })));
}

// ---- spmd: the batch is cut over axes of the mesh. ----------------------------------------------

// Returns the vmap of a shard_map over x and y whose body is `call` on blocks of shape `member`.
FunctionRef VmapOfShardMap(const CollectiveCall& call, AxisList spmd, bool check_vma) {
  const MappedAxis axis = Axis(4, "i", std::move(spmd));
  const Scope outer = ScopeUnder(axis, MeshScope({{"x", 2}, {"y", 2}}));
  const AxisList manual = {"x", "y"};
  const Specs specs = {P({{"y"}})};
  const Type arg = F64(Cat<int64_t>({2}, call.member));
  const FunctionRef f = Fn(outer, {arg}, [&](Builder& b, const std::vector<Value>& p) {
    const std::vector<Type> blocks = ManualShardTypes(outer, {arg}, specs, manual, check_vma);
    const FunctionRef body = Fn(ManualScope(outer, manual, check_vma), blocks,
                                [&](Builder&, const std::vector<Value>& q) {
                                  Value out = call.op(Squeeze(q[0], {0}));
                                  return std::vector<Value>{ExpandDims(out, {0})};
                                });
    return ManualComputation(b, body, p, specs, specs, manual, check_vma);
  });
  return ValueOrThrow(Batch(*f, {call.batched ? 0 : -1}, axis, {0})).fn;
}

// Compares, for many bodies, a batch that is cut over x with one that is not.
TEST(Spmd, CutsTheBatchOfShardMaps) {
  const auto loop = [](Value x) {
    Builder& b = x.builder();
    const FunctionRef step =
        Fn(b.scope(), {x.type(), x.type()}, [](Builder&, const std::vector<Value>& p) {
          return std::vector<Value>{Sin(p[1]) + p[0] * p[1]};
        });
    const Value start = FullLike(x, 0.5);
    return Scan(b, step, {x, start}, 1, 1, 2)[0];
  };
  std::vector<CollectiveCall> calls = {
      {"elementwise with what is the same for all",
       {3},
       [](Value x) { return x * Iota(x.builder(), DType::kF64, {3}, 0) + Sin(x); }},
      {"a scan whose carry starts the same for all", {3}, loop},
      {"a barrier around both, then a branch",
       {3},
       [](Value x) {
         Builder& b = x.builder();
         const Value same = FullLike(x, 0.5);
         const std::vector<Value> barrier = OptimizationBarrier(b, {x, same});
         const FunctionRef branch =
             Fn(b.scope(), {x.type(), same.type()}, [](Builder&, const std::vector<Value>& p) {
               return std::vector<Value>{p[0] + p[1], p[1]};
             });
         const std::vector<Value> out =
             Case(Constant(b, DType::kS32, 0), {branch, branch}, barrier);
         return out[0] * out[1];
       }},
      {"psum among the members", {3}, [](Value x) { return Psum(x, {"i"}); }},
      {"psum among all",
       {3},
       [](Value x) {
         return Psum(x, {"i", "y"});
       }},
      {"psum, the same for all", {3}, [](Value x) { return Psum(x, {"i"}); }, false},
      {"pmax", {3}, [](Value x) { return Pmax(x, {"i"}); }},
      {"all_gather",
       {3},
       [](Value x) {
         return AllGather(x, {"y", "i"}, 0, true);
       }},
      {"psum_scatter", {8}, [](Value x) { return PsumScatter(x, {"i"}, 0, true); }},
      {"all_to_all",
       {8, 3},
       [](Value x) {
         return AllToAll(x, {"i", "y"}, 0, 1, true);
       }},
      {"axis_index",
       {3},
       [](Value x) {
         const Value index = Convert(AxisIndex(x.builder(), {"y", "i"}), DType::kF64);
         return x * BroadcastInDim(index, {3}, {});
       }},
  };
  for (const CollectiveCall& call : calls) {
    for (bool check_vma : {true, false}) {
      SCOPED_TRACE(call.name + (check_vma ? "" : ", unchecked"));
      const FunctionRef cut = VmapOfShardMap(call, {"x"}, check_vma);
      const FunctionRef whole = VmapOfShardMap(call, {}, check_vma);
      TESSERA_EXPECT_OK(VerifyFunction(*cut));
      if (call.batched) {
        EXPECT_THAT(PrintFunction(*cut), HasSubstr("in_specs=specs[P('x', 'y')]"));
        EXPECT_THAT(PrintFunction(*whole), HasSubstr("in_specs=specs[P(None, 'y')]"));
      }
      const auto x = RandomArgs(cut->param_types(), 3);
      ExpectNear(Eval(*cut, x), Eval(*whole, x), 1e-12, "cut vs whole");
    }
  }
}

TEST(Spmd, DerivativesOfAnUnbatchedArgument) {
  const MappedAxis axis = Axis(4, "", {"x"});
  const Scope outer = ScopeUnder(axis, MeshScope({{"x", 2}, {"y", 2}}));
  const Specs in = {P({{"y"}}), P({{"y"}})}, out = {P({{"y"}})};
  const std::vector<Type> args = {F64({4}), F64({4})};
  const FunctionRef f = Fn(outer, args, [&](Builder& b, const std::vector<Value>& p) {
    const FunctionRef body = Fn(
        ManualScope(outer, {"x", "y"}, true), ManualShardTypes(outer, args, in, {"x", "y"}, true),
        [](Builder&, const std::vector<Value>& q) { return std::vector<Value>{Sin(q[0]) * q[1]}; });
    return ManualComputation(b, body, p, in, out, {"x", "y"}, true);
  });
  const FunctionRef batched = Batch(*f, {0, -1}, axis)->fn;
  CheckDerivatives(*batched, 2, 1e-5);
}

TEST(Spmd, ConstraintsGetTheSpmdAxisOnce) {
  const MappedAxis axis = Axis(4, "", {"x"});
  const Scope scope = ScopeUnder(axis, MeshScope({{"x", 2}, {"y", 2}}));
  const auto constrained = [&](PartitionSpec spec) {
    return Fn(scope, {F64({4})}, [&](Builder&, const std::vector<Value>& p) {
      return std::vector<Value>{ShardingConstraint(p[0], spec)};
    });
  };
  EXPECT_THAT(PrintFunction(*Batch(*constrained(P({{"y"}})), {0}, axis)->fn),
              HasSubstr("sharding=P('x', 'y')"));
  EXPECT_THAT(PrintFunction(*Batch(*constrained(P({{"y"}})), {1}, axis)->fn),
              HasSubstr("sharding=P('y', 'x')"));
  const absl::Status used = Batch(*constrained(P({{"x"}})), {0}, axis).status();
  EXPECT_THAT(used, ReasonIs("VALUE_ERROR"));
  EXPECT_THAT(std::string(used.message()),
              HasSubstr("vmap spmd_axis_name ('x') cannot appear in with_sharding_constraint spec, "
                        "but got spec P('x')"));
  const MappedAxis unknown = Axis(4, "", {"q"});
  const FunctionRef plain = Fn(ScopeUnder(unknown, MeshScope({{"x", 2}, {"y", 2}})), {F64({4})},
                               [](Builder&, const std::vector<Value>& p) {
                                 return std::vector<Value>{ShardingConstraint(p[0], P({{"y"}}))};
                               });
  EXPECT_THAT(std::string(Batch(*plain, {0}, unknown).status().message()),
              HasSubstr("Resource axis: q of P('q', 'y') is not found in mesh"));
}

TEST(Spmd, ShardMapSpecsMustNotNameTheSpmdAxis) {
  const MappedAxis axis = Axis(3, "", {"x"});
  const Scope scope = ScopeUnder(axis, MeshScope({{"x", 2}, {"y", 2}}));
  const auto mapped = [&](const Specs& in, const Specs& out) {
    return TryFn(scope, {F64({4})}, [&](Builder& b, const std::vector<Value>& p) {
      const FunctionRef body = Fn(ManualScope(scope, {"x", "y"}, false),
                                  {F64({in[0].Mentions("x") || in[0].Mentions("y") ? 2 : 4})},
                                  [](Builder&, const std::vector<Value>& q) { return q; });
      return ManualComputation(b, body, p, in, out, {"x", "y"}, false);
    });
  };
  EXPECT_THAT(std::string(mapped({P({{"x"}})}, {P({{"x"}})}).status().message()),
              HasSubstr("vmap spmd_axis_name cannot appear in shard_map in_specs"));
  EXPECT_THAT(std::string(mapped({P()}, {P({{"x"}})}).status().message()),
              HasSubstr("vmap spmd_axis_name cannot appear in shard_map out_specs"));
  const FunctionRef odd = *mapped({P({{"y"}})}, {P({{"y"}})});
  EXPECT_THAT(std::string(Batch(*odd, {0}, axis).status().message()),
              HasSubstr("of size 3, is not evenly divisible by 2"));
}

TEST(MappedAxis, AnAxisOfTheMeshIsNotManualUnderAVmapOfItsName) {
  const Scope scope = ScopeUnder(Axis(3, "x"), MeshScope({{"x", 2}}));
  const auto f = TryFn(scope, {F64({4})}, [&](Builder& b, const std::vector<Value>& p) {
    const FunctionRef body = Fn(ManualScope(scope, {"x"}, true), {Varying(F64({2}), {"x"})},
                                [](Builder&, const std::vector<Value>& q) { return q; });
    return ManualComputation(b, body, p, {P({{"x"}})}, {P({{"x"}})}, {"x"}, true);
  });
  EXPECT_THAT(std::string(f.status().message()),
              HasSubstr("can't be Manual under a vmap whose axis_name is 'x'"));
}

}  // namespace
}  // namespace tessera::ir
