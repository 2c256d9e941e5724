// Tests of printing: the text must be what JAX 0.10.2 with NumPy 2.4.6 prints for the same values.
#include "client/repr.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "client/testing/evaluated.h"

namespace tessera {
namespace {

using internal::ReprOf;
using testing::Host;

ir::Array Iota(Dims shape, DType dtype = kF32) {
  ir::Array out(dtype, std::move(shape));
  for (int64_t i = 0; i < out.num_elements(); ++i) out.Set(i, static_cast<double>(i));
  return out;
}
ir::Array Sevenths(int64_t n) {
  ir::Array out(kF32, {n});
  for (int64_t i = 0; i < n; ++i) out.Set(i, static_cast<double>(i) / 7);
  return out;
}
// Makes an array of complex numbers from their parts.
ir::Array ComplexNumbers(const std::vector<double>& parts) {
  const auto n = static_cast<int64_t>(parts.size());
  return ir::Array(kC64, {n / 2}, Host(parts, {n}).bytes());
}

TEST(ReprTest, IsWhatJaxPrints) {
  const std::vector<std::pair<ir::Array, std::string>> rows = {
      {Iota({3}), R"(Array([0., 1., 2.], dtype=float32))"},
      {Iota({2, 3, 4}, kS32),
       R"(Array([[[ 0,  1,  2,  3],
        [ 4,  5,  6,  7],
        [ 8,  9, 10, 11]],

       [[12, 13, 14, 15],
        [16, 17, 18, 19],
        [20, 21, 22, 23]]], dtype=int32))"},
      {Iota({2000}, kS32), R"(Array([   0,    1,    2, ..., 1997, 1998, 1999], dtype=int32))"},
      {Iota({40, 30}),
       R"(Array([[0.000e+00, 1.000e+00, 2.000e+00, ..., 2.700e+01, 2.800e+01,
        2.900e+01],
       [3.000e+01, 3.100e+01, 3.200e+01, ..., 5.700e+01, 5.800e+01,
        5.900e+01],
       [6.000e+01, 6.100e+01, 6.200e+01, ..., 8.700e+01, 8.800e+01,
        8.900e+01],
       ...,
       [1.110e+03, 1.111e+03, 1.112e+03, ..., 1.137e+03, 1.138e+03,
        1.139e+03],
       [1.140e+03, 1.141e+03, 1.142e+03, ..., 1.167e+03, 1.168e+03,
        1.169e+03],
       [1.170e+03, 1.171e+03, 1.172e+03, ..., 1.197e+03, 1.198e+03,
        1.199e+03]], dtype=float32))"},
      {Iota({0, 3}), R"(Array([], shape=(0, 3), dtype=float32))"},
      {Iota({0}), R"(Array([], shape=(0,), dtype=float32))"},
      {Host({1.5, 2.25, 100, -3}, {2, 2}),
       R"(Array([[  1.5 ,   2.25],
       [100.  ,  -3.  ]], dtype=float32))"},
      {Sevenths(30),
       R"(Array([0.        , 0.14285715, 0.2857143 , 0.42857143, 0.5714286 ,
       0.71428573, 0.85714287, 1.        , 1.1428572 , 1.2857143 ,
       1.4285715 , 1.5714285 , 1.7142857 , 1.8571428 , 2.        ,
       2.142857  , 2.2857144 , 2.4285715 , 2.5714285 , 2.7142856 ,
       2.857143  , 3.        , 3.142857  , 3.2857144 , 3.4285715 ,
       3.5714285 , 3.7142856 , 3.857143  , 4.        , 4.142857  ],      dtype=float32))"},
      {Host({1e-5, 1}, {2}), R"(Array([1.e-05, 1.e+00], dtype=float32))"},
      {Host({1e9, 1}, {2}), R"(Array([1.e+09, 1.e+00], dtype=float32))"},
      {Host({16777216, 1}, {2}), R"(Array([1.6777216e+07, 1.0000000e+00], dtype=float32))"},
      {Host({1e-10, 1e10}, {2}), R"(Array([1.e-10, 1.e+10], dtype=float32))"},
      {Host({1e20, -1e-20, 0}, {3}), R"(Array([ 1.e+20, -1.e-20,  0.e+00], dtype=float32))"},
      {Host({0, -0.0}, {2}), R"(Array([ 0., -0.], dtype=float32))"},
      {Host({NAN, 1, HUGE_VAL, -HUGE_VAL}, {4}),
       R"(Array([ nan,   1.,  inf, -inf], dtype=float32))"},
      {Host({NAN, NAN}, {2}), R"(Array([nan, nan], dtype=float32))"},
      {Host({HUGE_VAL, 1e-9}, {2}), R"(Array([   inf, 1.e-09], dtype=float32))"},
      {Host({3}, {}), R"(Array(3., dtype=float32))"},
      {Host({1, 0}, {2}, kBool), R"(Array([ True, False], dtype=bool))"},
      {Host({1}, {}, kBool), R"(Array(True, dtype=bool))"},
      {Host({-1, 100}, {2}, kS8), R"(Array([ -1, 100], dtype=int8))"},
      {Host({1, -2}, {2}, DType::kS4), R"(Array([1, -2], dtype=int4))"},
      {Host({1, 4294967295}, {2}, kU32), R"(Array([         1, 4294967295], dtype=uint32))"},
      {Host({1. / 3, 2. / 3, 1}, {3}, kF16), R"(Array([0.3333, 0.6665, 1.    ], dtype=float16))"},
      {Host({1, 0.5, 100, 1. / 3}, {4}, kBF16),
       R"(Array([1, 0.5, 100, 0.333984], dtype=bfloat16))"},
      {Host({1, 2}, {2}, DType::kF8E4M3FN), R"(Array([1, 2], dtype=float8_e4m3fn))"},
      {Host({1. / 3, 1e10}, {2}, kF64),
       R"(Array([3.33333333e-01, 1.00000000e+10], dtype=float64))"},
      {Host({1. / 3, 2}, {2}, kF64), R"(Array([0.33333333, 2.        ], dtype=float64))"},
      {ComplexNumbers({1, 2, 3.5, -1}), R"(Array([1. +2.j, 3.5-1.j], dtype=complex64))"},
      {ComplexNumbers({1, -0.25, 1e-7, 1}),
       R"(Array([1.e+00-0.25j, 1.e-07+1.j  ], dtype=complex64))"},
      {Iota({3, 50}, kS32),
       R"(Array([[  0,   1,   2,   3,   4,   5,   6,   7,   8,   9,  10,  11,  12,
         13,  14,  15,  16,  17,  18,  19,  20,  21,  22,  23,  24,  25,
         26,  27,  28,  29,  30,  31,  32,  33,  34,  35,  36,  37,  38,
         39,  40,  41,  42,  43,  44,  45,  46,  47,  48,  49],
       [ 50,  51,  52,  53,  54,  55,  56,  57,  58,  59,  60,  61,  62,
         63,  64,  65,  66,  67,  68,  69,  70,  71,  72,  73,  74,  75,
         76,  77,  78,  79,  80,  81,  82,  83,  84,  85,  86,  87,  88,
         89,  90,  91,  92,  93,  94,  95,  96,  97,  98,  99],
       [100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112,
        113, 114, 115, 116, 117, 118, 119, 120, 121, 122, 123, 124, 125,
        126, 127, 128, 129, 130, 131, 132, 133, 134, 135, 136, 137, 138,
        139, 140, 141, 142, 143, 144, 145, 146, 147, 148, 149]],      dtype=int32))"},
  };
  for (const auto& [value, text] : rows) EXPECT_EQ(ReprOf(value, /*weak=*/false), text);
  EXPECT_EQ(ReprOf(Host({3}, {}), /*weak=*/true), "Array(3., dtype=float32, weak_type=True)");
}

TEST(ReprTest, ArraysThatAreNotConcretePrintTheirType) {
  std::ostringstream out;
  out << abstract({2, 3}) << " " << Array();
  jit([&](Array x) {
    out << " " << x;
    return x;
  }).lower(abstract({4}));
  EXPECT_EQ(out.str(), "Abstract<f32[2,3]> Array() Traced<f32[4]>");
}

}  // namespace
}  // namespace tessera
