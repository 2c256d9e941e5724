// Helpers for the SDK's tests: they run a traced function on the reference evaluator, without any
// service.
#pragma once
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "client/tessera.h"
#include "ir/eval/eval.h"

namespace tessera::testing {

inline ir::Array Host(const std::vector<double>& values, Dims shape, DType dtype = DType::kF32) {
  return ir::Array::Of(dtype, std::move(shape), values);
}
inline ir::Array Vec(const std::vector<double>& values, DType dtype = DType::kF32) {
  return Host(values, {static_cast<int64_t>(values.size())}, dtype);
}

// Returns the flattened results of f(args...). Traces f at the types of the arguments and evaluates
// the trace.
template <class F, class... A>
std::vector<ir::Array> Evaluated(const F& f, const A&... args) {
  const auto traced = trace(f, abstract(args.shape(), args.dtype())...);
  EXPECT_TRUE(traced.captures.empty());
  auto out = ir::Evaluate(*traced.fn(), std::vector<ir::Array>{args...});
  EXPECT_TRUE(out.ok()) << out.status();
  return out.ok() ? *out : std::vector<ir::Array>{};
}
template <class F, class... A>
std::vector<double> Values(const F& f, const A&... args) {
  const std::vector<ir::Array> out = Evaluated(f, args...);
  return out.empty() ? std::vector<double>{} : out[0].ToDoubles();
}

// Returns the error that `f()` throws.
template <class F>
Error ErrorOf(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e;
  }
  ADD_FAILURE() << "no tessera::Error was thrown";
  return Error(absl::UnknownError("none"), Site{});
}

}  // namespace tessera::testing
