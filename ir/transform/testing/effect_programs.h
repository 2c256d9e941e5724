// Programs with effects, for tests of their records. Each program prints from several places. The
// tests compare what a record replays with what the evaluator prints when it runs the program.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ir/debug_print.h"
#include "ir/transform/testing/transform_checks.h"

namespace tessera::ir::testing {

struct EffectProgram {
  std::string name;
  FunctionRef f;
  std::vector<Array> args;
};

inline Type S32Of(Dims shape = {}) { return MakeType(DType::kS32, std::move(shape)); }
// Cuts dim 0 over the axes.
inline PartitionSpec CutOver(const AxisList& axes) {
  PartitionSpec spec;
  if (!axes.empty()) spec.dims = {axes};
  return spec;
}
inline Array IntArray(int64_t i) { return Array::ScalarInt(DType::kS32, i); }
inline Value AddNumber(Value x, double y) { return x + FullLike(x, y); }
inline Value Rem3(Value i) { return Rem(i, FullLike(i, 3)); }

// Appends a line for each print: the format, then the values.
inline auto PrintTo(std::vector<std::string>* lines) {
  return [lines](const std::string& format, absl::Span<const Array> values) {
    std::string line = format;
    for (const Array& value : values) absl::StrAppend(&line, " ", value.ToString());
    lines->push_back(std::move(line));
  };
}

// Returns a function that runs `body` while its first param, a counter, is less than the operand
// in front of it. The body takes and returns (counter, x), and also takes the limit.
inline std::vector<Value> CountTo(Builder& b, Value limit, Value x, const Body& body,
                                  const Scope& scope = {}) {
  const Value zero = FullLike(limit, 0);
  const FunctionRef predicate =
      Fn(scope, {limit.type(), zero.type(), x.type()}, [](Builder&, const std::vector<Value>& p) {
        return std::vector<Value>{Compare(p[1], p[0], "LT")};
      });
  const FunctionRef turn = Fn(scope, {limit.type(), zero.type(), x.type()},
                              [&](Builder& in, const std::vector<Value>& p) {
                                const std::vector<Value> out = body(in, p);
                                return std::vector<Value>{AddNumber(p[1], 1), out.at(0)};
                              });
  return While(b, predicate, turn, {limit, limit, zero, x}, 1, 1);
}

// Prints if `i` is a multiple of 3.
inline Value PrintEveryThird(Value i, Value x, const std::string& format, const Scope& scope = {}) {
  const std::vector<Type> types = {i.type(), x.type()};
  const FunctionRef prints = Fn(scope, types, [&](Builder& in, const std::vector<Value>& p) {
    DebugPrint(in, format, {p[0], p[1] * p[1]});
    return std::vector<Value>{p[1]};
  });
  const FunctionRef is_silent = Fn(scope, types, [](Builder&, const std::vector<Value>& p) {
    return std::vector<Value>{AddNumber(p[1], 1)};
  });
  return Case(Rem3(i), {prints, is_silent}, std::vector<Value>{i, x})[0];
}

inline EffectProgram StraightLine() {
  const FunctionRef inner = Fn({F32({2})}, [](Builder& b, const std::vector<Value>& p) {
    DebugPrint(b, "inner", {p[0]});
    return std::vector<Value>{p[0] + p[0]};
  });
  const FunctionRef f = Fn({F32({2}), S32Of()}, [&](Builder& b, const std::vector<Value>& p) {
    DebugPrint(b, "nothing", {});
    DebugPrint(b, "constant", {Full(b, DType::kF32, {2}, 1.5), p[1]});
    const Value y = Call(b, inner, {p[0]})[0];
    const Value z = PrintEveryThird(p[1], y, "third");
    DebugPrint(b, "result", {z});
    DebugPrint(b, "again", {Call(b, inner, {z})[0]});
    return std::vector<Value>{z};
  });
  return {"straight line", f, {Array::Of(DType::kF32, {2}, {1, 2}), IntArray(6)}};
}

// A loop in a loop, with prints before, in and after the inner one, in branches and outside.
inline EffectProgram NestedLoops() {
  const FunctionRef f = Fn({S32Of(), F32({2})}, [](Builder& b, const std::vector<Value>& p) {
    return CountTo(b, p[0], p[1], [&](Builder& out, const std::vector<Value>& o) {
      DebugPrint(out, "outer", {o[1], o[0]});
      const Value count = Rem3(o[1]);
      const Value x = CountTo(out, count, o[2], [&](Builder& in, const std::vector<Value>& i) {
        DebugPrint(in, "turn", {});
        return std::vector<Value>{PrintEveryThird(AddNumber(i[1], 2), i[2], "inner third")};
      })[1];
      DebugPrint(out, "after", {x});
      return std::vector<Value>{PrintEveryThird(o[1], x, "outer third")};
    });
  });
  return {"nested loops", f, {IntArray(7), Array::Of(DType::kF32, {2}, {0.5, -1})}};
}

// A loop in a branch in a loop. The value that it prints is the same in all iterations.
inline EffectProgram LoopInBranch() {
  const FunctionRef f = Fn({S32Of(), F32({2})}, [](Builder& b, const std::vector<Value>& p) {
    return CountTo(b, p[0], p[1], [](Builder&, const std::vector<Value>& o) {
      const std::vector<Type> types = {o[1].type(), o[2].type()};
      const FunctionRef prints = Fn(types, [](Builder& in, const std::vector<Value>& v) {
        DebugPrint(in, "before", {v[0]});
        const Value x = CountTo(in, v[0], v[1], [](Builder& t, const std::vector<Value>& i) {
          DebugPrint(t, "in branch", {i[0], i[1], i[2]});
          return std::vector<Value>{AddNumber(i[2], 0.5)};
        })[1];
        DebugPrint(in, "behind", {x});
        return std::vector<Value>{x};
      });
      const FunctionRef other = Fn(types, [](Builder& in, const std::vector<Value>& v) {
        DebugPrint(in, "other", {v[1]});
        return std::vector<Value>{v[1]};
      });
      const FunctionRef is_silent =
          Fn(types, [](Builder&, const std::vector<Value>& v) { return std::vector<Value>{v[1]}; });
      return Case(Rem3(o[1]), {prints, other, is_silent}, std::vector<Value>{o[1], o[2]});
    });
  });
  return {"loop in branch", f, {IntArray(8), Array::Of(DType::kF32, {2}, {3, 4})}};
}

// Scans, forwards and backwards, of length 3, 1 and 0, in a branch.
inline EffectProgram Scans() {
  const FunctionRef turn =
      Fn({F32({2}), S32Of(), F32({})}, [](Builder& b, const std::vector<Value>& p) {
        DebugPrint(b, "scan", {p[0], p[1], p[2]});
        const Value z = PrintEveryThird(p[1], p[2], "scan third");
        return std::vector<Value>{AddNumber(p[1], 1), z};
      });
  const FunctionRef f =
      Fn({F32({2}), S32Of(), F32({3})}, [&](Builder& b, const std::vector<Value>& p) {
        const std::vector<Value> a = Scan(b, turn, {p[0], p[1], p[2]}, 1, 1, 3);
        const std::vector<Type> types = TypesOf(std::vector<Value>{p[0], a[0], a[1]});
        const FunctionRef scans = Fn(types, [&](Builder& in, const std::vector<Value>& v) {
          std::vector<Value> out = Scan(in, turn, {v[0], v[1], v[2]}, 1, 1, 3, /*reverse=*/true);
          out = Scan(in, turn, {v[0], out[0], SliceInDim(out[1], 0, 0, 1)}, 1, 1, 1);
          out = Scan(in, turn, {v[0], out[0], SliceInDim(out[1], 0, 0, 0)}, 1, 1, 0);
          return std::vector<Value>{out[0]};
        });
        const FunctionRef none = Fn(
            types, [](Builder&, const std::vector<Value>& v) { return std::vector<Value>{v[1]}; });
        return Case(Rem3(a[0]), {scans, none}, std::vector<Value>{p[0], a[0], a[1]});
      });
  return {
      "scans",
      f,
      {Array::Of(DType::kF32, {2}, {7, 8}), IntArray(3), Array::Of(DType::kF32, {3}, {1, 2, 3})}};
}

// The members of a batch print, in a loop that ends for all at once and outside of it.
inline EffectProgram Batched() {
  const FunctionRef one = Fn({S32Of(), F32({2})}, [](Builder& b, const std::vector<Value>& p) {
    DebugPrint(b, "member", {p[1]});
    return CountTo(b, p[0], p[1], [](Builder& in, const std::vector<Value>& v) {
      DebugPrint(in, "turn of member", {v[1], v[2]});
      DebugPrint(in, "turn of all", {v[1]});
      return std::vector<Value>{v[2] + v[2]};
    });
  });
  return {"batched",
          ValueOrThrow(Batch(*one, {-1, 0}, 3)).fn,
          {IntArray(3), Array::Of(DType::kF32, {3, 2}, {1, 2, 3, 4, 5, 6})}};
}

// A loop around a shard_map around a loop that ends after a different number of iterations on each
// device, with prints on all levels.
inline EffectProgram ShardMaps(bool check_vma) {
  const Scope outer = MeshScope({{"x", 2, AxisType::kAuto}, {"y", 2, AxisType::kAuto}});
  const AxisList axes = {"x", "y"};
  const std::vector<PartitionSpec> in = {CutOver({}), CutOver(axes)}, out = {CutOver(axes)};
  const auto body = [&](Builder&, const std::vector<Value>& p) {
    Builder& b = p[0].builder();
    const Scope scope = b.scope();
    const Value device = AxisIndex(b, {"x", "y"});
    DebugPrint(b, "on device", {device, p[0]});
    const Value limit = AddNumber(device, 1) + p[0];
    const Value x = CountTo(
        b, limit, p[1],
        [&](Builder& in_loop, const std::vector<Value>& v) {
          DebugPrint(in_loop, "turn on device", {v[1], v[0], v[2]});
          return std::vector<Value>{PrintEveryThird(v[1], v[2], "third", scope)};
        },
        scope)[1];
    return std::vector<Value>{x};
  };
  const FunctionRef f =
      Fn(outer, {S32Of(), F32({4})}, [&](Builder& b, const std::vector<Value>& p) {
        const Scope inside = ManualScope(outer, axes, check_vma);
        const auto shard_map = [&](Builder& at, Value i, Value x) {
          const std::vector<Type> types = {i.type(), x.type()};
          const std::vector<Type> blocks = ManualShardTypes(outer, types, in, axes, check_vma);
          return ManualComputation(at, Fn(inside, blocks, body), std::vector<Value>{i, x}, in, out,
                                   axes, check_vma)[0];
        };
        const Value first = shard_map(b, p[0], p[1]);
        DebugPrint(b, "between", {first});
        return CountTo(
            b, p[0], first,
            [&](Builder& at, const std::vector<Value>& v) {
              DebugPrint(at, "turn", {v[1]});
              const Value x = shard_map(at, v[1], v[2]);
              DebugPrint(at, "end of turn", {x});
              return std::vector<Value>{x};
            },
            outer);
      });
  return {absl::StrCat("shard_maps, check_vma=", check_vma),
          f,
          {IntArray(2), Array::Of(DType::kF32, {4}, {1, 2, 3, 4})}};
}

// A shard_map in a branch, with a print in a branch on each device.
inline EffectProgram ShardMapInBranch() {
  const Scope outer = MeshScope({{"x", 4, AxisType::kAuto}});
  const AxisList axes = {"x"};
  const std::vector<PartitionSpec> specs = {CutOver(axes)};
  const Scope inside = ManualScope(outer, axes, true);
  const FunctionRef f = Fn(outer, {S32Of(), F32({4})}, [&](Builder&, const std::vector<Value>& p) {
    const FunctionRef shards =
        Fn(outer, {p[1].type()}, [&](Builder& in, const std::vector<Value>& v) {
          const std::vector<Type> blocks =
              ManualShardTypes(outer, {v[0].type()}, specs, axes, /*check_vma=*/true);
          const FunctionRef body =
              Fn(inside, blocks, [&](Builder& at, const std::vector<Value>& s) {
                DebugPrint(at, "shard", {s[0]});
                return std::vector<Value>{
                    PrintEveryThird(AxisIndex(at, {"x"}), s[0], "some shards", inside)};
              });
          return ManualComputation(in, body, v, specs, specs, axes, /*check_vma=*/true);
        });
    const FunctionRef none =
        Fn(outer, {p[1].type()}, [](Builder&, const std::vector<Value>& v) { return v; });
    const Value x = Case(p[0], {none, shards}, std::vector<Value>{p[1]})[0];
    return Case(AddNumber(p[0], -1), {none, shards}, std::vector<Value>{x});
  });
  return {"shard_map in branch", f, {IntArray(1), Array::Of(DType::kF32, {4}, {1, 2, 3, 4})}};
}

inline std::vector<EffectProgram> EffectPrograms() {
  return {StraightLine(), NestedLoops(),   LoopInBranch(),   Scans(),
          Batched(),      ShardMaps(true), ShardMaps(false), ShardMapInBranch()};
}

}  // namespace tessera::ir::testing
