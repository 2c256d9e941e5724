// Proves that distances are counted in units in the last place, and that infinities, NaNs and
// subnormal numbers are treated as the header says.
#include "base/testing/ulps.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace tessera {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

TEST(Ulps, AreCountedForTheTypeOfTheNumbers) {
  EXPECT_EQ(DistanceInUlps(1, 1, 52, 0), 0);
  EXPECT_EQ(DistanceInUlps(std::nextafter(1.0, 2.0), 1, 52, 0), 1);
  EXPECT_EQ(DistanceInUlps(std::nextafter(1.0f, 2.0f), 1, 23, 0), 1);
  EXPECT_EQ(DistanceInUlps(-1, 1, 52, 0), 0x1p53);
}

TEST(Ulps, AreUnitsOfTheScaleIfItIsLarger) {
  EXPECT_EQ(DistanceInUlps(0x1p-52, 0, 52, 1), 1);
  EXPECT_EQ(DistanceInUlps(0x1p-52, 0, 52, 2), 0.5);
}

TEST(Ulps, EqualInfinitiesAndNansAreNotApart) {
  EXPECT_EQ(DistanceInUlps(kInf, kInf, 52, 0), 0);
  EXPECT_EQ(DistanceInUlps(kNan, kNan, 52, 0), 0);
  EXPECT_EQ(DistanceInUlps(kInf, -kInf, 52, 0), kInf);
  EXPECT_EQ(DistanceInUlps(kNan, 1, 52, 0), kInf);
  EXPECT_EQ(DistanceInUlps(1, kInf, 52, 0), kInf);
}

TEST(Ulps, SubnormalNumbersAreZeroIfTheCallerSaysSo) {
  EXPECT_EQ(DistanceInUlps(0x1p-1030, 0, 52, 0, Subnormals::kAreZero), 0);
  EXPECT_EQ(DistanceInUlps(0x1p-130, 0, 23, 0, Subnormals::kAreZero), 0);
  EXPECT_EQ(DistanceInUlps(0x1p-130, 0, 23, 0x1p-126), 0x1p19);
  EXPECT_GT(DistanceInUlps(0x1p-126, 0, 23, 0x1p-126, Subnormals::kAreZero), 0);
}

}  // namespace
}  // namespace tessera
