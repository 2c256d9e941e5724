// Proves that special functions and their derivatives give the same bits on arrays that are sharded
// over two devices as on one device. A row is one function with its points (rows.h). The devices
// are an embedded cluster.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "client/tessera.h"
#include "tests/special/rows.h"

namespace tessera::special_rows {
namespace {

class CutSpecialTest : public ::testing::TestWithParam<const Row*> {
 protected:
  static void SetUpTestSuite() { Session::SetDefault(Session::Embedded({.devices = 2})); }
  static void TearDownTestSuite() { Session::SetDefault(nullptr); }
};

// Returns an array with one row for each argument of the function, which holds the argument at all
// points. If the number of points is odd, the last point is repeated, so that two devices can share
// each row.
ir::Array Points(DType dtype) {
  const Columns& columns = CutSpecialTest::GetParam()->points;
  const auto given = static_cast<int64_t>(columns[0].size());
  const int64_t n = given + given % 2;
  ir::Array out(dtype, {static_cast<int64_t>(columns.size()), n});
  for (size_t c = 0; c < columns.size(); ++c)
    for (int64_t i = 0; i < n; ++i)
      out.Set(static_cast<int64_t>(c) * n + i, columns[c][std::min(i, given - 1)]);
  return out;
}
Array ValuesOf(const Array& x) {
  std::vector<Array> columns;
  for (int64_t i = 0; i < x.dim(0); ++i) columns.push_back(x[Index(i)]);
  return CutSpecialTest::GetParam()->f(columns);
}
// Returns the derivatives by those arguments by which the function has derivatives.
Array DerivativesOf(const Array& x) {
  std::vector<Array> out;
  for (const int by : CutSpecialTest::GetParam()->derivatives) {
    const auto sum_of = [&](const Array& column) {
      std::vector<Array> columns;
      for (int i = 0; i < static_cast<int>(x.dim(0)); ++i)
        columns.push_back(i == by ? column : x[Index(i)]);
      return sum(CutSpecialTest::GetParam()->f(columns));
    };
    out.push_back(expand_dims(grad(sum_of)(x[Index(by)]), 0));
  }
  return concatenate(out, 0);
}
template <class F>
void ExpectSameBits(const F& f, const ir::Array& points) {
  const Mesh mesh = make_mesh({2}, {"x"}, {AxisType::kAuto});
  const ir::Array uncut = jit(f)(put(points)).value();
  const Array cut = jit(f)(put(points, mesh, P(None, "x")));
  EXPECT_TRUE(cut.sharding().Mentions("x")) << cut.sharding().ToString();
  EXPECT_TRUE(cut.value() == uncut) << cut.value().ToString() << "\n" << uncut.ToString();
}

TEST_P(CutSpecialTest, ValuesAreThoseOfOneDevice) {
  for (const DType dtype : {kF32, kF64}) {
    SCOPED_TRACE(std::string(ir::DTypeName(dtype)));
    ExpectSameBits([](const Array& x) { return ValuesOf(x); }, Points(dtype));
  }
}
TEST_P(CutSpecialTest, DerivativesAreThoseOfOneDevice) {
  if (GetParam()->derivatives.empty()) return;
  ExpectSameBits([](const Array& x) { return DerivativesOf(x); }, Points(kF64));
}

std::vector<const Row*> Pointers() {
  std::vector<const Row*> out;
  for (const Row& row : Rows()) out.push_back(&row);
  return out;
}
INSTANTIATE_TEST_SUITE_P(Rows, CutSpecialTest, ::testing::ValuesIn(Pointers()),
                         [](const auto& info) { return info.param->name; });

}  // namespace
}  // namespace tessera::special_rows
