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

constexpr int kEpochs = 12, kKilledAfter = 4;
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
    if (HasFailure()) std::cerr << TextOf(folder_ / "killed.log") << TextOf(folder_ / "again.log");
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  // Starts a training. It writes the losses of its steps to NAME.losses and its output to NAME.log.
  absl::StatusOr<std::unique_ptr<Process>> Train(const std::string& name,
                                                 std::vector<std::string> more) const {
    std::vector<std::string> args = {"--no-explain",
                                     "--dtype",
                                     "f64",
                                     "--epochs",
                                     absl::StrCat(kEpochs),
                                     "--losses-out",
                                     folder_ / (name + ".losses")};
    args.insert(args.end(), more.begin(), more.end());
    return Process::Start(SourcePath(MLP_DIGITS), args, folder_ / (name + ".log"));
  }
  // Trains once without interruption and once with checkpoints. The second training is killed in
  // the middle and started again. Both must end with the same losses, which also shows that the
  // checkpoint holds the whole state.
  void ExpectThatItGoesOn(const std::vector<std::string>& where, const std::string& checkpoint) {
    TESSERA_ASSERT_OK_AND_ASSIGN(const auto whole, Train("whole", where));
    ASSERT_EQ(whole->Wait(kPatience), 0);
    std::vector<std::string> saving = where;
    saving.insert(saving.end(), {"--checkpoint", checkpoint});
    TESSERA_ASSERT_OK_AND_ASSIGN(const auto killed, Train("killed", saving));
    const std::string epoch = absl::StrCat("epoch   ", kKilledAfter, "/");
    ASSERT_TRUE(Eventually([&] { return absl::StrContains(TextOf(folder_ / "killed.log"), epoch); },
                           kPatience));
    killed->Signal(SIGKILL);
    ASSERT_TRUE(killed->Wait(kPatience).has_value());
    ASSERT_FALSE(fs::exists(folder_ / "killed.losses")) << "it had ended already";

    TESSERA_ASSERT_OK_AND_ASSIGN(const auto again, Train("again", saving));
    ASSERT_EQ(again->Wait(kPatience), 0);
    const std::string said = TextOf(folder_ / "again.log");
    const size_t from = said.find("goes on from epoch ");
    ASSERT_NE(from, std::string::npos) << said;
    // The last epoch that was printed may not have been saved yet; the training then repeats it.
    EXPECT_GE(std::stoi(said.substr(from + 19)), kKilledAfter - 1) << said;
    EXPECT_FALSE(absl::StrContains(said, "epoch   1/")) << said;
    const std::string curve = TextOf(folder_ / "whole.losses");
    EXPECT_GT(curve.size(), 1000u);
    EXPECT_EQ(TextOf(folder_ / "again.losses"), curve) << "the same numbers, step for step";
    // The last line of the output holds the accuracy.
    const auto last = [](const std::string& text) { return text.substr(text.rfind("epoch")); };
    EXPECT_EQ(last(said), last(TextOf(folder_ / "whole.log")));
  }

  fs::path folder_;
};

TEST_F(CheckpointTest, InsideOneProcess) {
  ExpectThatItGoesOn({"--embedded"}, folder_ / "mlp.safetensors");
}

TEST_F(CheckpointTest, OnACluster) {
  ClusterOptions options;
  options.worker_flags = {absl::StrCat("--files-dir=", folder_.string())};
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Cluster> cluster, Cluster::Start(options));
  ExpectThatItGoesOn({"--address", cluster->address()}, "runs/mlp.safetensors");
  EXPECT_TRUE(fs::exists(folder_ / "default/runs/mlp.safetensors"));
  if (HasFailure()) std::cerr << cluster->Logs();
}

}  // namespace
}  // namespace tessera::service
