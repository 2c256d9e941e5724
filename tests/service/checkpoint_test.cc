// Proves that a training run that is killed continues from its last checkpoint and ends with the
// same losses as an uninterrupted one. The training program is the example mlp_digits, run embedded
// and on a cluster.
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/testing/datadriven.h"
#include "base/testing/processes.h"
#include "base/testing/status_matchers.h"
#include "tests/service/cluster.h"

namespace tessera::service {
namespace {

using testing::Eventually;
namespace fs = std::filesystem;

constexpr int kEpochs = 12, kKilledAfterEpoch = 4;
constexpr absl::Duration kPatience = absl::Seconds(120);

std::string TextOf(const fs::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Gives each test a folder of its own.
class CheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string folder = (fs::temp_directory_path() / "tessera-checkpoint-XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
  }
  void TearDown() override {
    if (HasFailure())
      std::cerr << TextOf(folder_ / "killed.log") << TextOf(folder_ / "resumed.log");
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  // Starts a training, which writes the losses of its steps to NAME.losses and its output to
  // NAME.log.
  absl::StatusOr<std::unique_ptr<Process>> Train(const std::string& name,
                                                 std::vector<std::string> extra_args) const {
    std::vector<std::string> args = {"--no-explain",
                                     "--dtype",
                                     "f64",
                                     "--epochs",
                                     absl::StrCat(kEpochs),
                                     "--losses-out",
                                     folder_ / (name + ".losses")};
    args.insert(args.end(), extra_args.begin(), extra_args.end());
    return Process::Start(SourcePath(MLP_DIGITS), args, folder_ / (name + ".log"));
  }
  // Trains once without interruption and once with checkpoints. The second training is killed in
  // the middle and started again. Both must end with the same losses, which also shows that the
  // checkpoint holds the whole state.
  void ExpectThatTrainingResumes(const std::vector<std::string>& place_args,
                                 const std::string& checkpoint) {
    TESSERA_ASSERT_OK_AND_ASSIGN(const auto uninterrupted, Train("uninterrupted", place_args));
    ASSERT_EQ(uninterrupted->Wait(kPatience), 0);
    std::vector<std::string> checkpoint_args = place_args;
    checkpoint_args.insert(checkpoint_args.end(), {"--checkpoint", checkpoint});
    TESSERA_ASSERT_OK_AND_ASSIGN(const auto killed, Train("killed", checkpoint_args));
    const std::string epoch = absl::StrCat("epoch   ", kKilledAfterEpoch, "/");
    ASSERT_TRUE(Eventually([&] { return absl::StrContains(TextOf(folder_ / "killed.log"), epoch); },
                           kPatience));
    killed->Signal(SIGKILL);
    ASSERT_TRUE(killed->Wait(kPatience).has_value());
    ASSERT_FALSE(fs::exists(folder_ / "killed.losses")) << "the training had ended already";

    TESSERA_ASSERT_OK_AND_ASSIGN(const auto resumed, Train("resumed", checkpoint_args));
    ASSERT_EQ(resumed->Wait(kPatience), 0);
    const std::string output = TextOf(folder_ / "resumed.log");
    const size_t from = output.find("goes on from epoch ");
    ASSERT_NE(from, std::string::npos) << output;
    // The last epoch that was printed may not have been saved yet; the training then repeats it.
    EXPECT_GE(std::stoi(output.substr(from + 19)), kKilledAfterEpoch - 1) << output;
    EXPECT_FALSE(absl::StrContains(output, "epoch   1/")) << output;
    const std::string losses = TextOf(folder_ / "uninterrupted.losses");
    EXPECT_GT(losses.size(), 1000u);
    EXPECT_EQ(TextOf(folder_ / "resumed.losses"), losses) << "the same numbers, step for step";
    // The last line of the output holds the accuracy.
    const auto last_line = [](const std::string& text) { return text.substr(text.rfind("epoch")); };
    EXPECT_EQ(last_line(output), last_line(TextOf(folder_ / "uninterrupted.log")));
  }

  fs::path folder_;
};

TEST_F(CheckpointTest, ATrainingResumesInsideOneProcess) {
  ExpectThatTrainingResumes({"--embedded"}, folder_ / "mlp.safetensors");
}

TEST_F(CheckpointTest, ATrainingResumesOnACluster) {
  ClusterOptions options;
  options.worker_flags = {absl::StrCat("--files-dir=", folder_.string())};
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Cluster> cluster, Cluster::Start(options));
  ExpectThatTrainingResumes({"--address", cluster->address()}, "runs/mlp.safetensors");
  EXPECT_TRUE(fs::exists(folder_ / "default/runs/mlp.safetensors"));
  if (HasFailure()) std::cerr << cluster->Logs();
}

}  // namespace
}  // namespace tessera::service
