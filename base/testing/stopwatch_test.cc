// Proves that the stopwatch reads /proc/pressure correctly and leaves out overload. One test
// overloads the machine itself, with three busy threads per processor for half a second.
#include "base/testing/stopwatch.h"

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace tessera::testing {
namespace {

TEST(Stopwatch, ReadsTheTotalOfTheLineSome) {
  EXPECT_EQ(ParseSomeStall("some avg10=0.82 avg60=1.38 avg300=15.11 total=6572876730\n"
                           "full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"),
            absl::Microseconds(6572876730));
  for (const char* text : {"", "full avg10=0.00 total=7\n", "some avg10=0.00\n", "some total=\n",
                           "some avg10=0.00 total=x\n"})
    EXPECT_EQ(ParseSomeStall(text), std::nullopt) << text;
}

TEST(Stopwatch, LeavesOutTheTimeInWhichTheMachineIsOverloaded) {
  const Stopwatch watch;
  // Run three threads for each processor until half a second has passed.
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 3 * std::thread::hardware_concurrency(); ++i) {
    threads.emplace_back([&] {
      for (std::atomic<int64_t> n = 0; watch.Elapsed() < absl::Milliseconds(500);) ++n;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(watch.Elapsed(), absl::Milliseconds(500));
  EXPECT_LT(watch.Unhindered(), watch.Elapsed() / 2);
  EXPECT_GE(watch.Unhindered(), absl::ZeroDuration());
}

}  // namespace
}  // namespace tessera::testing
