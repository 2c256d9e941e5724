// Proves that a child process that cannot be started leaves no descriptor open.
#include "bench/process.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <vector>

#include "base/testing/status_matchers.h"
#include "base/unique_fd.h"

namespace tessera::bench {
namespace {

// Opens descriptors until this process may open no more.
std::vector<UniqueFd> OpenAll() {
  std::vector<UniqueFd> all;
  for (int fd = 0; (fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) all.emplace_back(fd);
  return all;
}

TEST(ProcessTest, AFailureToMakeTheSecondPipeClosesTheFirst) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 64;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  {
    constexpr size_t kFree = 3;  // enough for one pipe and not for two
    std::vector<UniqueFd> all = OpenAll();
    ASSERT_GT(all.size(), kFree);
    all.resize(all.size() - kFree);
    EXPECT_THAT(Process::Start({"/bin/true"}).status(),
                StatusIs(absl::StatusCode::kInternal, "Too many open files"));
    EXPECT_EQ(OpenAll().size(), kFree);
  }
  setrlimit(RLIMIT_NOFILE, &before);
}

}  // namespace
}  // namespace tessera::bench
