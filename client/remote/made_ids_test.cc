// Proves that what a lost session has made is told from what other sessions have made.
#include "client/remote/made_ids.h"

#include "base/status.h"
#include "base/testing/status_matchers.h"

namespace tessera::remote {
namespace {

absl::Status Why(const char* text) { return MakeError(ErrorKind::kSessionNotFound, text); }

TEST(MadeIdsTest, OnlyTheIdsOfALostSessionAreLost) {
  MadeIds made;
  made.Note(5, {100, 101});
  made.Note(5, {107});
  made.Lose(5, Why("the lease of session 5"));
  made.Note(6, {110});
  for (const uint64_t id : {100, 101, 107})
    EXPECT_THAT(made.WhyLost({id}), ReasonIs("SESSION_NOT_FOUND", "of session 5"));
  for (const uint64_t id : {99, 108, 110}) TESSERA_EXPECT_OK(made.WhyLost({id}));
  EXPECT_THAT(made.WhyLost({110, 107}), ReasonIs("SESSION_NOT_FOUND", "of session 5"));
  TESSERA_EXPECT_OK(made.WhyLost({}));
}

// The answer to a call may arrive when its session has been lost.
TEST(MadeIdsTest, IdsThatAreNotedLateAreLostToo) {
  MadeIds made;
  made.Lose(5, Why("gone"));
  TESSERA_EXPECT_OK(made.WhyLost({100}));
  made.Note(5, {100});
  EXPECT_THAT(made.WhyLost({100}), ReasonIs("SESSION_NOT_FOUND", "gone"));
}

TEST(MadeIdsTest, EveryIdMayBeLost) {
  MadeIds made;
  made.LoseAll(Why("gone"));
  EXPECT_THAT(made.WhyLost({1}), ReasonIs("SESSION_NOT_FOUND", "gone"));
}

}  // namespace
}  // namespace tessera::remote
