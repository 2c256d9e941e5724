// The training of mlp_digits gives the same numbers whatever its sharding.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace {

constexpr const char* kMeshes[] = {"data=2,model=1", "data=1,model=2", "data=2,model=2",
                                   "data=4,model=1"};

template <class T>
std::vector<T> ReadLines(const std::string& path) {
  std::ifstream in(path);
  std::vector<T> values;
  for (T value; in >> value;) values.push_back(value);
  return values;
}

struct Training {
  std::vector<double> losses;
  std::vector<int> predictions;
};

Training Train(const std::string& mesh, const std::string& dtype) {
  const std::string at = ::testing::TempDir() + "/agreement_" + dtype + "_" + mesh;
  const std::string command = std::string(MLP_DIGITS) + " --embedded --no-explain --dtype " +
                              dtype + " --mesh " + mesh + " --losses-out " + at + ".losses" +
                              " --predictions-out " + at + ".predictions >" + at + ".out 2>&1";
  Training t;
  if (std::system(command.c_str()) != 0) {
    std::ifstream out(at + ".out");
    ADD_FAILURE() << command << "\n" << std::string(std::istreambuf_iterator<char>(out), {});
    return t;
  }
  t.losses = ReadLines<double>(at + ".losses");
  t.predictions = ReadLines<int>(at + ".predictions");
  return t;
}

double WorstRelative(const std::vector<double>& a, const std::vector<double>& b, size_t steps) {
  double worst = 0;
  for (size_t i = 0; i < steps; ++i)
    worst = std::fmax(worst, std::abs(a[i] - b[i]) / std::abs(b[i]));
  return worst;
}

TEST(AgreementTest, InF64TheWholeLossCurveAgrees) {
  const Training one = Train("data=1,model=1", "f64");
  ASSERT_EQ(one.losses.size(), 30u * 11u);
  ASSERT_EQ(one.predictions.size(), 360u);
  for (const char* mesh : kMeshes) {
    const Training cut = Train(mesh, "f64");
    ASSERT_EQ(cut.losses.size(), one.losses.size()) << mesh;
    const double worst = WorstRelative(cut.losses, one.losses, one.losses.size());
    EXPECT_LE(worst, 1e-9) << mesh;
    RecordProperty(mesh, std::to_string(worst));
    EXPECT_EQ(cut.predictions, one.predictions) << mesh;
  }
}

TEST(AgreementTest, InF32TheFirstStepsAndThePredictionsAgree) {
  const Training one = Train("data=1,model=1", "f32");
  ASSERT_EQ(one.losses.size(), 30u * 11u);
  ASSERT_EQ(one.predictions.size(), 360u);
  for (const char* mesh : kMeshes) {
    const Training cut = Train(mesh, "f32");
    ASSERT_EQ(cut.losses.size(), one.losses.size()) << mesh;
    EXPECT_LE(WorstRelative(cut.losses, one.losses, 20), 1e-5) << mesh;
    ASSERT_EQ(cut.predictions.size(), one.predictions.size()) << mesh;
    int differ = 0;
    for (size_t i = 0; i < one.predictions.size(); ++i) {
      differ += cut.predictions[i] != one.predictions[i];
    }
    EXPECT_LE(differ, 2) << mesh;
  }
}

}  // namespace
