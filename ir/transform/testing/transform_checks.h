// Helpers for tests of rules and transforms: functions from lambdas, and numeric checks of
// derivatives and of batching.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/status_exception.h"
#include "base/testing/status_matchers.h"
#include "ir/builder.h"
#include "ir/eval/eval.h"
#include "ir/ops.h"
#include "ir/strided.h"
#include "ir/transform/transform.h"

namespace tessera::ir::testing {

using Body = std::function<std::vector<Value>(Builder&, const std::vector<Value>&)>;

// Builds a function from `body`. Returns the error of building, if there is one.
inline absl::StatusOr<FunctionRef> TryFn(const Scope& scope, const std::vector<Type>& types,
                                         const Body& body) {
  return CatchStatusOr([&] {
    Builder b(scope, "f");
    std::vector<Value> params;
    for (const Type& t : types) params.push_back(b.Param(t));
    return b.Build(body(b, params));
  });
}
inline FunctionRef Fn(const Scope& scope, const std::vector<Type>& types, const Body& body) {
  absl::StatusOr<FunctionRef> f = TryFn(scope, types, body);
  if (!f.ok()) {
    ADD_FAILURE() << f.status();
    Throw(f.status());
  }
  return *f;
}
inline FunctionRef Fn(const std::vector<Type>& types, const Body& body) {
  return Fn(Scope{}, types, body);
}

inline Type F64(Dims shape) { return MakeType(DType::kF64, std::move(shape)); }
inline Type F32(Dims shape) { return MakeType(DType::kF32, std::move(shape)); }
inline Type Varying(Type t, AxisSet axes) {
  t.varying = std::move(axes);
  return t;
}
inline Scope MeshScope(std::vector<MeshAxis> axes, bool check_vma = true) {
  return {Mesh{std::move(axes)}, check_vma};
}

inline std::vector<Array> Eval(const Function& f, const std::vector<Array>& args) {
  absl::StatusOr<std::vector<Array>> out = Evaluate(f, args);
  if (!out.ok()) {
    ADD_FAILURE() << out.status();
    Throw(out.status());
  }
  return *out;
}
inline std::vector<double> Eval1(const Function& f, const std::vector<Array>& args) {
  return Eval(f, args).at(0).ToDoubles();
}

inline Array Random(const Type& t, int seed) {
  std::mt19937 gen(seed);
  std::uniform_real_distribution<double> u(-1, 1);
  std::vector<double> values;
  for (int64_t i = 0; i < t.num_elements(); ++i)
    values.push_back(IsInexact(t.dtype) ? u(gen) : std::floor(3 * u(gen)));
  return Array::Of(t.dtype, t.shape, values);
}
inline std::vector<Array> RandomArgs(const std::vector<Type>& types, int seed) {
  std::vector<Array> out;
  for (size_t i = 0; i < types.size(); ++i)
    out.push_back(Random(types[i], seed * 100 + static_cast<int>(i)));
  return out;
}

inline void ExpectNear(const std::vector<Array>& got, const std::vector<Array>& want, double tol,
                       const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].shape(), want[i].shape()) << what << " " << i;
    EXPECT_THAT(got[i].ToDoubles(),
                ::testing::Pointwise(::testing::DoubleNear(tol), want[i].ToDoubles()))
        << what << " " << i;
  }
}

inline double Dot(const std::vector<Array>& a, const std::vector<Array>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i)
    for (int64_t k = 0; k < a[i].num_elements(); ++k) sum += a[i].At(k) * b[i].At(k);
  return sum;
}

inline std::vector<bool> InexactParams(const Function& f) {
  std::vector<bool> active;
  for (const Type& t : f.param_types()) active.push_back(IsInexact(t.dtype));
  return active;
}
inline std::vector<Type> Masked(const std::vector<Type>& types, const std::vector<bool>& mask) {
  std::vector<Type> out;
  for (size_t i = 0; i < types.size(); ++i)
    if (mask[i]) out.push_back(types[i]);
  return out;
}
template <class T>
std::vector<T> Cat(std::vector<T> a, const std::vector<T>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Returns the vector-Jacobian product as one function: params, cotangents of the active results ->
// cotangents of the active params.
inline FunctionRef VjpFn(const Function& f, const std::vector<bool>& active) {
  const Linearized lin = ValueOrThrow(Linearize(f, active));
  std::vector<bool> linear(lin.linear->num_params, true);
  std::fill_n(linear.begin(), lin.num_residuals, false);
  const FunctionRef back = ValueOrThrow(TransposeFunction(*lin.linear, linear));
  Builder b(f.scope, f.name + "_vjp");
  std::vector<Value> params, cts;
  for (const Type& t : f.param_types()) params.push_back(b.Param(t));
  for (const Type& t : Masked(f.result_types(), lin.out_active))
    cts.push_back(b.Param(CotangentType(t)));
  const std::vector<Value> fwd = Inline(b, *lin.forward, params);
  std::vector<Value> args(fwd.end() - lin.num_residuals, fwd.end());
  return b.Build(Inline(b, *back, Cat(args, cts)));
}
// Returns the gradient of a function with one scalar result.
inline FunctionRef GradFn(const Function& f, const std::vector<bool>& active) {
  const FunctionRef vjp = VjpFn(f, active);
  Builder b(f.scope, f.name + "_grad");
  std::vector<Value> args;
  for (const Type& t : f.param_types()) args.push_back(b.Param(t));
  args.push_back(Full(b, CotangentType(f.result_types()[0]), 1.0));
  return b.Build(Inline(b, *vjp, args));
}

// Checks, in f64, jvp against central differences, linearize against jvp, and transpose by the
// dot-product test. With `order` above 1 it checks the derivatives of the vjp in the same way.
inline void CheckDerivatives(const Function& f, int order = 1, double tol = 2e-6) {
  const std::vector<bool> active = InexactParams(f);
  const std::vector<Array> x = RandomArgs(f.param_types(), 1);
  const std::vector<Array> t = RandomArgs(Masked(f.param_types(), active), 2);
  const std::vector<Array> y = Eval(f, x);

  absl::StatusOr<JvpResult> jvp = Jvp(f, active);
  ASSERT_THAT(jvp, IsOk());
  std::vector<Array> got = Eval(*jvp->fn, Cat(x, t));
  const std::vector<Array> dots(got.begin() + y.size(), got.end());
  got.erase(got.begin() + y.size(), got.end());
  ExpectNear(got, y, 1e-12, "jvp primal");

  auto moved = [&](double eps) {
    std::vector<Array> args = x;
    for (size_t i = 0, k = 0; i < x.size(); ++i) {
      if (!active[i]) continue;
      for (int64_t e = 0; e < x[i].num_elements(); ++e)
        args[i].Set(e, x[i].At(e) + eps * t[k].At(e));
      ++k;
    }
    return Eval(f, args);
  };
  const double eps = 1e-5;
  const std::vector<Array> up = moved(eps), down = moved(-eps);
  std::vector<Array> numeric;
  for (size_t r = 0; r < y.size(); ++r) {
    if (!jvp->out_active[r]) {
      // An inactive result must not move.
      EXPECT_EQ(up[r].ToDoubles(), down[r].ToDoubles()) << "result " << r;
      continue;
    }
    Array d(y[r].dtype(), y[r].shape());
    for (int64_t e = 0; e < d.num_elements(); ++e)
      d.Set(e, (up[r].At(e) - down[r].At(e)) / (2 * eps));
    numeric.push_back(d);
  }
  ExpectNear(dots, numeric, tol, "jvp vs finite differences");

  absl::StatusOr<Linearized> lin = Linearize(f, active);
  ASSERT_THAT(lin, IsOk());
  EXPECT_EQ(lin->out_active, jvp->out_active);
  std::vector<Array> fwd = Eval(*lin->forward, x);
  const std::vector<Array> residuals(fwd.begin() + y.size(), fwd.end());
  ASSERT_EQ(static_cast<int>(residuals.size()), lin->num_residuals);
  fwd.erase(fwd.begin() + y.size(), fwd.end());
  ExpectNear(fwd, y, 1e-12, "linearize primal");
  ExpectNear(Eval(*lin->linear, Cat(residuals, t)), dots, 1e-9, "linearize tangent");

  std::vector<bool> linear(lin->linear->num_params, true);
  std::fill_n(linear.begin(), lin->num_residuals, false);
  absl::StatusOr<FunctionRef> back = TransposeFunction(*lin->linear, linear);
  ASSERT_THAT(back, IsOk());
  const std::vector<Array> ct = RandomArgs(Masked(f.result_types(), lin->out_active), 3);
  const std::vector<Array> pulled = Eval(**back, Cat(residuals, ct));
  ASSERT_EQ(pulled.size(), t.size());
  EXPECT_NEAR(Dot(pulled, t), Dot(ct, dots), 1e-9) << "dot-product test";

  if (order > 1) {
    SCOPED_TRACE("derivatives of the vjp");
    CheckDerivatives(*VjpFn(f, active), order - 1, tol * 10);
  }
}

// Checks vmap against a loop.
inline void CheckBatch(const Function& f, const std::vector<int>& dims, int64_t size = 3) {
  absl::StatusOr<BatchResult> batched = Batch(f, dims, size);
  ASSERT_THAT(batched, IsOk());
  const std::vector<Array> args = RandomArgs(batched->fn->param_types(), 4);
  const std::vector<Array> got = Eval(*batched->fn, args);
  auto take = [&](const Array& a, int dim, int64_t i) {
    if (dim < 0) return a;
    Dims starts(a.rank(), 0), shape = a.shape();
    starts[dim] = i;
    shape[dim] = 1;
    Array row = SliceBlock(a, starts, shape);
    shape.erase(shape.begin() + dim);
    return row.Reshaped(shape);
  };
  for (int64_t i = 0; i < size; ++i) {
    std::vector<Array> one, out;
    for (size_t k = 0; k < args.size(); ++k) one.push_back(take(args[k], dims[k], i));
    for (size_t r = 0; r < got.size(); ++r) out.push_back(take(got[r], batched->out_dims[r], i));
    ExpectNear(out, Eval(f, one), 1e-9, "vmap vs loop");
  }
}

}  // namespace tessera::ir::testing
