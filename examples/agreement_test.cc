// Proves that trainings give the same numbers on every mesh, and also when they are interrupted and
// resumed from a checkpoint. The tests run the programs mlp_digits and gpt on embedded clusters
// with different meshes, and compare the losses and predictions that the programs write to files.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "base/testing/datadriven.h"

namespace tessera {
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

// Runs the command with its output in the file `output`. A failure shows the file.
bool Succeeds(std::string command, const std::string& output) {
  command += " >" + output + " 2>&1";
  if (std::system(command.c_str()) == 0) return true;
  std::ifstream out(output);
  ADD_FAILURE() << command << "\n" << std::string(std::istreambuf_iterator<char>(out), {});
  return false;
}

Training TrainDigits(const std::string& mesh, const std::string& dtype) {
  const std::string path = ::testing::TempDir() + "/agreement_" + dtype + "_" + mesh;
  Training t;
  if (!Succeeds(SourcePath(MLP_DIGITS) + " --embedded --no-explain --dtype " + dtype + " --mesh " +
                    mesh + " --losses-out " + path + ".losses" + " --predictions-out " + path +
                    ".predictions",
                path + ".out"))
    return t;
  t.losses = ReadLines<double>(path + ".losses");
  t.predictions = ReadLines<int>(path + ".predictions");
  return t;
}

// Returns the losses of a training of gpt with these options.
std::vector<double> TrainGpt(const std::string& name, const std::string& options) {
  const std::string path = ::testing::TempDir() + "/agreement_gpt_" + name;
  if (!Succeeds(SourcePath(GPT) + " --embedded --losses-out " + path + ".losses " + options,
                path + ".out"))
    return {};
  return ReadLines<double>(path + ".losses");
}

double LargestRelativeDifference(const std::vector<double>& a, const std::vector<double>& b,
                                 size_t steps) {
  double worst = 0;
  for (size_t i = 0; i < steps; ++i)
    worst = std::fmax(worst, std::abs(a[i] - b[i]) / std::abs(b[i]));
  return worst;
}

TEST(AgreementTest, InF64TheWholeLossCurveAgrees) {
  const Training one_device = TrainDigits("data=1,model=1", "f64");
  ASSERT_EQ(one_device.losses.size(), 30u * 11u);
  ASSERT_EQ(one_device.predictions.size(), 360u);
  for (const char* mesh : kMeshes) {
    const Training sharded = TrainDigits(mesh, "f64");
    ASSERT_EQ(sharded.losses.size(), one_device.losses.size()) << mesh;
    const double worst =
        LargestRelativeDifference(sharded.losses, one_device.losses, one_device.losses.size());
    EXPECT_LE(worst, 1e-9) << mesh;
    RecordProperty(mesh, std::to_string(worst));
    EXPECT_EQ(sharded.predictions, one_device.predictions) << mesh;
  }
}

TEST(AgreementTest, InF32TheFirstStepsAndThePredictionsAgree) {
  const Training one_device = TrainDigits("data=1,model=1", "f32");
  ASSERT_EQ(one_device.losses.size(), 30u * 11u);
  ASSERT_EQ(one_device.predictions.size(), 360u);
  for (const char* mesh : kMeshes) {
    const Training sharded = TrainDigits(mesh, "f32");
    ASSERT_EQ(sharded.losses.size(), one_device.losses.size()) << mesh;
    EXPECT_LE(LargestRelativeDifference(sharded.losses, one_device.losses, 20), 1e-5) << mesh;
    ASSERT_EQ(sharded.predictions.size(), one_device.predictions.size()) << mesh;
    int num_different = 0;
    for (size_t i = 0; i < one_device.predictions.size(); ++i) {
      num_different += sharded.predictions[i] != one_device.predictions[i];
    }
    EXPECT_LE(num_different, 2) << mesh;
  }
}

TEST(GptTest, LossesOnAMeshEqualThoseOnOneDevice) {
  const std::vector<double> one_device = TrainGpt("one_device", "--steps 12 --mesh data=1,model=1");
  const std::vector<double> sharded = TrainGpt("sharded", "--steps 12");
  ASSERT_EQ(one_device.size(), 12u);
  ASSERT_EQ(sharded.size(), 12u);
  EXPECT_LE(LargestRelativeDifference(sharded, one_device, 12), 1e-3);
}

TEST(GptTest, AResumedTrainingGivesTheSameLosses) {
  const std::string checkpoint = ::testing::TempDir() + "/agreement_gpt.safetensors";
  std::remove(checkpoint.c_str());
  const std::vector<double> whole = TrainGpt("whole", "--steps 12");
  const std::vector<double> first = TrainGpt("first", "--steps 5 --checkpoint " + checkpoint);
  std::vector<double> second = TrainGpt("second", "--steps 12 --checkpoint " + checkpoint);
  ASSERT_EQ(first.size(), 5u);
  ASSERT_EQ(second.size(), 7u);
  second.insert(second.begin(), first.begin(), first.end());
  EXPECT_EQ(second, whole);
}

}  // namespace
}  // namespace tessera
