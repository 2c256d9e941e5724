// Proves that a slot always shows a complete op, even if its writer is killed during a write. The
// killed writer is a forked process that shares the page.
#include "worker/telemetry/in_flight.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gtest/gtest.h"

namespace tessera::worker {
namespace {

TEST(InFlightSlotTest, AReaderGetsTheLastOp) {
  InFlightPage page(1);
  EXPECT_EQ(page.slot(0).Read().launch, 0u);
  const std::string longest(InFlightSlot::kTextBytes, 'x');
  for (uint64_t launch = 1; launch <= 3; ++launch) {
    page.slot(0).Write(launch, launch == 2 ? longest + "y" : "sin", launch == 3);
    const InFlightOp op = page.slot(0).Read();
    EXPECT_EQ(op.launch, launch);
    EXPECT_EQ(op.op, launch == 2 ? longest : "sin");
    EXPECT_EQ(op.waiting, launch == 3);
  }
}

// A process may be killed at any moment, most likely in the middle of a write.
TEST(InFlightSlotTest, AKilledWriterLeavesACompleteOp) {
  const std::string text(InFlightSlot::kTextBytes, 'x');
  for (int i = 0; i < 50; ++i) {
    InFlightPage page(1);
    const pid_t writer = fork();
    ASSERT_GE(writer, 0);
    if (writer == 0) {
      while (true) {
        page.slot(0).Write(2, text, false);
        page.slot(0).Write(3, text, true);
      }
    }
    while (page.slot(0).Read().launch == 0) continue;
    ASSERT_EQ(kill(writer, SIGKILL), 0);
    ASSERT_EQ(waitpid(writer, nullptr, 0), writer);
    const InFlightOp op = page.slot(0).Read();
    ASSERT_TRUE(op.launch == 2 || op.launch == 3) << "round " << i << ": launch " << op.launch;
    EXPECT_EQ(op.op, text);
    EXPECT_EQ(op.waiting, op.launch == 3);
  }
}

}  // namespace
}  // namespace tessera::worker
