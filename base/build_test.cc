// Proves that two builds agree on the greatest common protocol, and that the error says which side
// to upgrade if there is none. Builds are plain values here; nothing is connected.
#include "base/build.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/status_matchers.h"
#include "base/words.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Build BuildWithProtocols(int32_t min, int32_t max) { return {"0.1.0", "abc", min, max}; }

TEST(Build, TheGreatestProtocolThatBothSpeakIsChosen) {
  const struct {
    Build coordinator, worker;
    int32_t chosen;
  } rows[] = {
      {BuildWithProtocols(1, 2), BuildWithProtocols(1, 2), 2},
      {BuildWithProtocols(1, 2), BuildWithProtocols(1, 5), 2},
      {BuildWithProtocols(1, 5), BuildWithProtocols(2, 3), 3},
      {BuildWithProtocols(3, 5), BuildWithProtocols(2, 3), 3},
      {BuildWithProtocols(1, 2), Build(), 1},
      {Build(), BuildWithProtocols(1, 2), 1},
      {Build(), Build(), 1},
  };
  for (const auto& row : rows)
    EXPECT_THAT(ChooseProtocol("w0", row.coordinator, row.worker), IsOkAndHolds(row.chosen));
}

TEST(Build, WithoutACommonProtocolTheOlderSideMustBeUpgraded) {
  EXPECT_THAT(ChooseProtocol("registration: worker w0", BuildWithProtocols(3, 4), Build()),
              ReasonIs("PROTOCOL_MISMATCH",
                       "registration: worker w0: it is an earlier build and speaks protocol 1, the "
                       "coordinator is 0.1.0 (revision abc) and speaks protocols 3 to 4; upgrade "
                       "the worker"));
  EXPECT_THAT(ChooseProtocol("w0", BuildWithProtocols(1, 2), BuildWithProtocols(3, 3)),
              ReasonIs("PROTOCOL_MISMATCH",
                       AllOf(HasSubstr("speaks protocol 3, the coordinator"),
                             HasSubstr("speaks protocols 1 to 2; upgrade the coordinator"))));
  // A peer whose range of protocols is empty is refused.
  EXPECT_THAT(ChooseProtocol("w0", BuildWithProtocols(1, 2), BuildWithProtocols(2, 1)).status(),
              ReasonIs("PROTOCOL_MISMATCH", HasSubstr("w0")));
}

TEST(Build, VersionTextNamesThisBuild) {
  EXPECT_EQ(VersionText("tessera"), "tessera " + BuildText(ThisBuild()) + "\n");
}

}  // namespace
}  // namespace tessera
