// Checks of an op's rules against its evaluator, for unit tests. The jvp is compared with finite
// differences, the transpose by the dot-product test, the batching rule with a loop over the batch,
// and the partition on shards with the op on whole arrays. The checks call the rules directly, with
// the same arguments as the transforms (ir/transform). Stateless; failures are reported to the
// running test.
#pragma once
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "base/status_exception.h"
#include "base/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "ir/derive/factors.h"
#include "ir/eval/eval.h"
#include "ir/ops/rules/derived.h"
#include "ir/ops/rules/family.h"
#include "ir/strided.h"

namespace tessera::ir::ops::testing {

// An op on given operands. Float operands are differentiated, so they should be f64.
struct Case {
  std::string name;
  const OpDef* def;
  std::vector<Array> in;
  Attrs attrs;
};
inline void PrintTo(const Case& c, std::ostream* os) { *os << c.name; }

// Returns values in [-1, 1), which are distinct with near certainty and the same in every run.
inline Array Random(DType dtype, Dims shape, int seed) {
  std::mt19937 gen(seed);
  Array a(dtype, std::move(shape));
  for (int64_t i = 0; i < a.num_elements(); ++i)
    a.Set(i, static_cast<double>(static_cast<int32_t>(gen())) / 2147483648.0);
  return a;
}
inline Array F64(Dims shape, int seed) { return Random(DType::kF64, std::move(shape), seed); }
inline Array Int(int64_t v) { return Array::ScalarInt(DType::kS32, v); }
inline Array Iota(DType dtype, Dims shape) {
  Array a(dtype, std::move(shape));
  for (int64_t i = 0; i < a.num_elements(); ++i) a.Set(i, static_cast<double>(i));
  return a;
}

inline Type TypeOf(const Array& a) { return MakeType(a.dtype(), a.shape()); }
inline std::vector<Type> TypesOf(const std::vector<Array>& in) {
  std::vector<Type> types;
  for (const Array& a : in) types.push_back(TypeOf(a));
  return types;
}
inline Array EvalOne(const Case& c, const std::vector<Array>& in) {
  return ValueOrThrow(EvaluateOp(*c.def, {}, in, c.attrs)).at(0);
}
inline Array EvalOne(const Case& c) { return EvalOne(c, c.in); }
inline Array RunOne(const FunctionRef& f, const std::vector<Array>& args) {
  return ValueOrThrow(Evaluate(*f, args)).at(0);
}

inline double Dot(const Array& a, const Array& b) {
  EXPECT_EQ(a.shape(), b.shape());
  double sum = 0;
  for (int64_t i = 0; i < a.num_elements(); ++i) sum += a.At(i) * b.At(i);
  return sum;
}
inline void ExpectNear(const Array& got, const Array& want, double tolerance) {
  ASSERT_EQ(got.dtype(), want.dtype());
  ASSERT_EQ(got.shape(), want.shape());
  for (int64_t i = 0; i < got.num_elements(); ++i)
    ASSERT_NEAR(got.At(i), want.At(i), tolerance * (1 + std::abs(want.At(i))))
        << "element " << i << " of " << got.ToString() << "; expected " << want.ToString();
}
// Returns a + s * b, elementwise.
inline Array Axpy(const Array& a, double s, const Array& b) {
  Array out = a;
  for (int64_t i = 0; i < a.num_elements(); ++i) out.Set(i, a.At(i) + s * b.At(i));
  return out;
}

inline std::vector<int> FloatOperands(const Case& c) {
  std::vector<int> out;
  for (size_t i = 0; i < c.in.size(); ++i)
    if (IsFloat(c.in[i].dtype())) out.push_back(static_cast<int>(i));
  return out;
}

// Returns a function that computes the tangent of result 0. The params of that function are the
// operands, then the tangents of the operands in `active`.
inline FunctionRef JvpFunction(const Case& c, const std::vector<int>& active) {
  Builder b(Scope{});
  std::vector<Value> in, tangents(c.in.size());
  for (const Array& a : c.in) in.push_back(b.Param(TypeOf(a)));
  for (int i : active) tangents[i] = b.Param(TypeOf(c.in[i]));
  std::vector<Value> out = b.Emit(*c.def, in, c.attrs);
  const RuleContext rc{b, *c.def, c.attrs, {}, in, out, TypesOf(c.in), {out[0].type()}};
  std::vector<Value> t =
      c.def->jvp.written() ? c.def->jvp.fn(rc, tangents) : derive::LinearJvp(rc, tangents);
  return b.Build({t.at(0) ? t[0] : Zeros(b, out[0].type())});
}

// Checks the jvp rule with tangents of all float operands at once, and with a tangent of each of
// them alone.
inline void CheckJvp(const Case& c) {
  std::vector<std::vector<int>> choices = {FloatOperands(c)};
  for (int i : FloatOperands(c)) choices.push_back({i});
  for (const std::vector<int>& active : choices) {
    std::vector<Array> args = c.in, plus = c.in, minus = c.in;
    constexpr double kStep = 1e-6;
    for (int i : active) {
      const Array t = F64(c.in[i].shape(), 100 + i);
      args.push_back(t);
      plus[i] = Axpy(c.in[i], kStep, t);
      minus[i] = Axpy(c.in[i], -kStep, t);
    }
    const Array high = EvalOne(c, plus), low = EvalOne(c, minus);
    Array want = high;
    for (int64_t i = 0; i < want.num_elements(); ++i)
      want.Set(i, (high.At(i) - low.At(i)) / (2 * kStep));
    ExpectNear(RunOne(JvpFunction(c, active), args), want, 1e-7);
  }
}

// Checks <A x, y> = <x, A^T y> for each float operand alone, with the others fixed.
inline void CheckTranspose(const Case& c) {
  for (int i : FloatOperands(c)) {
    Builder b(Scope{});
    std::vector<Value> in(c.in.size());
    std::vector<Array> args, without = c.in;
    for (size_t k = 0; k < c.in.size(); ++k) {
      if (static_cast<int>(k) == i) continue;
      in[k] = b.Param(TypeOf(c.in[k]));
      args.push_back(c.in[k]);
    }
    without[i] = Array(c.in[i].dtype(), c.in[i].shape());
    const Array out = EvalOne(c), ct = F64(out.shape(), 7);
    Value cotangent = b.Param(TypeOf(ct));
    args.push_back(ct);
    std::vector<bool> linear(c.in.size(), false);
    linear[i] = true;
    const RuleContext rc{b, *c.def, c.attrs, {}, in, {}, TypesOf(c.in), {TypeOf(out)}};
    const std::vector<Value> cts = c.def->transpose.fn(rc, {cotangent}, linear);
    ASSERT_EQ(cts.size(), c.in.size());
    ASSERT_TRUE(cts[i].valid());
    const Array back = RunOne(b.Build({cts[i]}), args);
    ASSERT_EQ(back.shape(), c.in[i].shape());
    const double forward = Dot(Axpy(out, -1, EvalOne(c, without)), ct);
    EXPECT_NEAR(forward, Dot(c.in[i], back), 1e-9) << "operand " << i;
  }
}

// Returns the elements at index `k` of dim `dim`, as an array without that dim.
inline Array Row(const Array& a, int dim, int64_t k) {
  Dims start(a.rank(), 0), shape = a.shape();
  start[dim] = k;
  shape[dim] = 1;
  Array block = SliceBlock(a, start, shape);
  shape.erase(shape.begin() + dim);
  return block.Reshaped(shape);
}

// Checks the batching rule: row k of its result must be the op on rows k of the operands. `c.in`
// are the batched operands, and dims[i] is the batch dim of operand i, or -1.
inline void CheckBatch(const Case& c, const std::vector<int>& dims, double tolerance = 0) {
  int64_t size = -1;
  std::vector<Type> unbatched;
  for (size_t i = 0; i < dims.size(); ++i) {
    Type t = TypeOf(c.in[i]);
    if (dims[i] >= 0) {
      size = t.shape[dims[i]];
      t.shape.erase(t.shape.begin() + dims[i]);
    }
    unbatched.push_back(t);
  }
  auto row = [&](int64_t k) {
    std::vector<Array> in;
    for (size_t i = 0; i < dims.size(); ++i)
      in.push_back(dims[i] < 0 ? c.in[i] : Row(c.in[i], dims[i], k));
    return EvalOne(c, in);
  };
  Builder b(Scope{});
  std::vector<Value> in;
  for (const Array& a : c.in) in.push_back(b.Param(TypeOf(a)));
  const RuleContext rc{b, *c.def, c.attrs, {}, in, {}, unbatched, {TypeOf(row(0))}};
  const Batched out = c.def->batch.written() ? c.def->batch.fn(rc, dims, size)
                                             : derive::ElementwiseBatch(rc, dims, size);
  ASSERT_GE(out.dims.at(0), 0);
  const Array got = RunOne(b.Build({out.values.at(0)}), c.in);
  ASSERT_EQ(got.shape().at(out.dims[0]), size);
  for (int64_t k = 0; k < size; ++k) {
    const Array want = row(k);
    if (tolerance == 0) {
      EXPECT_EQ(Row(got, out.dims[0], k), want)
          << "row " << k << ": " << Row(got, out.dims[0], k).ToString() << "; expected "
          << want.ToString();
    } else {
      ExpectNear(Row(got, out.dims[0], k), want, tolerance);
    }
  }
}

// Returns the block of `whole` that device `device` holds.
inline Array BlockOf(const Array& whole, const TensorFactors& dims,
                     const std::vector<AxisList>& axes, const Mesh& mesh, int64_t device) {
  const DimAxes sharding = JoinAxes(dims, axes);
  Dims shape = whole.shape(), start(shape.size(), 0);
  for (size_t d = 0; d < shape.size(); ++d) {
    shape[d] /= mesh.SizeOf(sharding[d]);
    start[d] = mesh.IndexAlong(device, sharding[d]) * shape[d];
  }
  return SliceBlock(whole, start, shape);
}

// Runs the partitioned op on every device's blocks, where axes[i] cuts factor i, and compares
// result 0 with the blocks of the whole result.
inline void CheckPartition(const Case& c, Mesh mesh, const std::vector<AxisList>& axes,
                           double tolerance = 0) {
  for (MeshAxis& a : mesh.axes) a.type = AxisType::kManual;
  const Array whole = EvalOne(c);
  const std::vector<Type> in_types = TypesOf(c.in), out_types = {TypeOf(whole)};
  const Scope scope{mesh, /*check_vma=*/false};
  const Signature s = c.def->factors({*c.def, scope, in_types, c.attrs, {}}, out_types);
  ASSERT_EQ(s.factors.size(), axes.size());
  Builder b(scope);
  std::vector<Value> in;
  for (size_t i = 0; i < c.in.size(); ++i)
    in.push_back(b.Param(LocalType(in_types[i], JoinAxes(s.operands[i], axes), mesh)));
  const RuleContext rc{b, *c.def, c.attrs, {}, in, {}, in_types, out_types};
  const PartitionContext pc{s, axes, {LocalType(out_types[0], JoinAxes(s.results[0], axes), mesh)}};
  const std::vector<Value> out =
      c.def->partition.written() ? c.def->partition.fn(rc, pc) : derive::PartitionByFactors(rc, pc);
  ASSERT_EQ(out.at(0).shape(), pc.local_out[0].shape);
  const FunctionRef body = b.Build(out);
  std::vector<int64_t> devices;
  std::vector<Shards> args(c.in.size());
  for (int64_t device = 0; device < mesh.num_devices(); ++device) {
    devices.push_back(device);
    for (size_t i = 0; i < c.in.size(); ++i)
      args[i].push_back(BlockOf(c.in[i], s.operands[i], axes, mesh, device));
  }
  Evaluator evaluator;
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Shards> got,
                               evaluator.RunOnDevices(devices, *body, args));
  for (int64_t device = 0; device < mesh.num_devices(); ++device) {
    const Array want = BlockOf(whole, s.results[0], axes, mesh, device);
    if (tolerance == 0) {
      EXPECT_EQ(got[0][device], want) << "device " << device << ": " << got[0][device].ToString()
                                      << "; expected " << want.ToString();
    } else {
      ExpectNear(got[0][device], want, tolerance);
    }
  }
}

// Returns the text of result 0's type, inferred for operands of the types `in` in `mesh`, or the
// error of inference.
inline absl::StatusOr<std::string> TypeOn(const Mesh& mesh, const OpDef& def,
                                          const std::vector<std::string>& in, const Attrs& attrs) {
  std::vector<Type> types;
  for (const std::string& t : in) types.push_back(ValueOrThrow(ParseType(t)));
  absl::StatusOr<std::vector<Type>> out = InferTypes(def, {mesh}, types, attrs, {});
  TESSERA_RETURN_IF_ERROR(out);
  return out->at(0).ToString();
}
inline Mesh ExplicitMesh() {
  return {{{"x", 2, AxisType::kExplicit}, {"y", 2, AxisType::kExplicit}}};
}

}  // namespace tessera::ir::ops::testing
