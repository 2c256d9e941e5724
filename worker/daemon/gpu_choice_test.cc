// Tests how --gpus chooses GPUs.
#include "worker/daemon/gpu_choice.h"

#include "base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera::worker::daemon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::vector<std::string> kPresent = {"GPU-aa-0", "GPU-ab-1", "GPU-bb-2"};

TEST(GpuChoiceTest, EachFormChoosesGpus) {
  const auto choose = [](const std::string& wanted) { return ChooseGpus(wanted, kPresent, ""); };
  EXPECT_THAT(choose("all"), IsOkAndHolds(ElementsAre("GPU-aa-0", "GPU-ab-1", "GPU-bb-2")));
  EXPECT_THAT(choose("2"), IsOkAndHolds(ElementsAre("GPU-aa-0", "GPU-ab-1")));
  EXPECT_THAT(choose("0"), IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(choose("2,0"), IsOkAndHolds(ElementsAre("GPU-bb-2", "GPU-aa-0")));
  EXPECT_THAT(choose("device=1"), IsOkAndHolds(ElementsAre("GPU-ab-1")));
  EXPECT_THAT(choose("GPU-b,0"), IsOkAndHolds(ElementsAre("GPU-bb-2", "GPU-aa-0")));
  EXPECT_THAT(choose("MIG-cc,MIG-cd"), IsOkAndHolds(ElementsAre("MIG-cc", "MIG-cd")));
}

TEST(GpuChoiceTest, MissingGpusAreNamed) {
  const auto choose = [](const std::string& wanted) { return ChooseGpus(wanted, kPresent, ""); };
  EXPECT_THAT(choose("4").status(),
              ReasonIs("NOT_ENOUGH_DEVICES",
                       HasSubstr("--gpus is 4; this machine has 3: GPU-aa-0, GPU-ab-1")));
  EXPECT_THAT(choose("0,3").status(),
              ReasonIs("NOT_ENOUGH_DEVICES", HasSubstr("--gpus names GPU 3; this machine")));
  EXPECT_THAT(choose("GPU-a").status(),
              ReasonIs("NOT_ENOUGH_DEVICES", HasSubstr("2 GPUs have an id that begins so")));
  EXPECT_THAT(choose("GPU-x").status(),
              ReasonIs("NOT_ENOUGH_DEVICES", HasSubstr("0 GPUs have an id that begins so")));
  EXPECT_THAT(ChooseGpus("all", {}, "no NVIDIA driver").status(),
              ReasonIs("NOT_ENOUGH_DEVICES",
                       HasSubstr("--gpus is all; this machine has 0: no NVIDIA driver")));
}

TEST(GpuChoiceTest, OtherTextsAreRefused) {
  const auto error = [](const std::string& wanted) {
    return ChooseGpus(wanted, kPresent, "").status();
  };
  for (const char* wanted : {"", "gpu0", "0,", "0,x", "device="})
    EXPECT_THAT(error(wanted), ReasonIs("VALUE_ERROR", HasSubstr("expected an index"))) << wanted;
  EXPECT_THAT(error("0,GPU-aa"), ReasonIs("VALUE_ERROR", HasSubstr("names GPU-aa-0 twice")));
  EXPECT_THAT(error("65"), ReasonIs("VALUE_ERROR", HasSubstr("at most 64 GPUs")));
}

}  // namespace
}  // namespace tessera::worker::daemon
