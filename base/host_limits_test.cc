// Proves how memory and CPU limits follow from cgroup files of both versions, and that the limit of
// open files is raised. The tests write trees of fake /proc and cgroup files into a temporary
// folder.
#include "base/host_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

namespace tessera {

bool operator==(const HostLimits& a, const HostLimits& b) {
  return a.memory_bytes == b.memory_bytes && a.cores == b.cores;
}
void PrintTo(const HostLimits& limits, std::ostream* os) {
  *os << limits.memory_bytes << " bytes, " << limits.cores << " cores";
}

namespace {

constexpr int64_t kGiB = int64_t{1} << 30;
constexpr HostLimits kMachine = {64 * kGiB, 32};

using Files = std::map<std::string, std::string>;

HostLimits LimitsOf(const Files& files) {
  const std::filesystem::path root =
      std::filesystem::path(::testing::TempDir()) /
      ("host_limits_" + std::to_string(getpid()) + "_" +
       ::testing::UnitTest::GetInstance()->current_test_info()->name());
  std::filesystem::remove_all(root);
  for (const auto& [path, text] : files) {
    std::filesystem::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text;
  }
  const HostLimits found = ReadCgroupLimits(root.string(), kMachine);
  std::filesystem::remove_all(root);
  return found;
}

constexpr char kUnified[] = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw,nsdelegate\n";
constexpr char kVersion1[] =
    "23 20 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
    "31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
    "32 30 0:28 / /sys/fs/cgroup/memory rw shared:10 - cgroup cgroup rw,memory\n";

TEST(HostLimitsTest, WithoutCgroupsTheMachineIsTheLimit) { EXPECT_EQ(LimitsOf({}), kMachine); }

TEST(HostLimitsTest, ReadsTheLimitsOfAContainerOfVersion2) {
  EXPECT_EQ(LimitsOf({{"proc/self/cgroup", "0::/\n"},
                      {"proc/self/mountinfo", kUnified},
                      {"sys/fs/cgroup/memory.max", "8589934592\n"},
                      {"sys/fs/cgroup/memory.high", "max\n"},
                      {"sys/fs/cgroup/cpu.max", "150000 100000\n"}}),
            (HostLimits{8 * kGiB, 2}));
}

TEST(HostLimitsTest, TheLeastLimitOnAPathOfVersion2Counts) {
  const Files path = {
      {"proc/self/cgroup", "0::/system.slice/tessera.service/inner\n"},
      {"proc/self/mountinfo", kUnified},
      {"sys/fs/cgroup/system.slice/memory.max", "4294967296\n"},
      {"sys/fs/cgroup/system.slice/cpu.max", "max 100000\n"},
      {"sys/fs/cgroup/system.slice/tessera.service/memory.max", "max\n"},
      {"sys/fs/cgroup/system.slice/tessera.service/memory.high", "3221225472\n"},
      {"sys/fs/cgroup/system.slice/tessera.service/cpu.max", "300000 100000\n"},
      {"sys/fs/cgroup/system.slice/tessera.service/inner/memory.max", "17179869184\n"},
      {"sys/fs/cgroup/system.slice/tessera.service/inner/cpu.max", "800000 100000\n"},
      // Files that limit other groups or set no limit.
      {"sys/fs/cgroup/system.slice/memory.min", "0\n"},
      {"sys/fs/cgroup/user.slice/memory.max", "1\n"}};
  EXPECT_EQ(LimitsOf(path), (HostLimits{3 * kGiB, 3}));
}

TEST(HostLimitsTest, ContainerOfVersion1SeesItsOwnGroupAsTheMountsRoot) {
  const std::string id = "/docker/0123456789ab";
  EXPECT_EQ(
      LimitsOf({{"proc/self/cgroup",
                 "4:memory:" + id + "\n2:cpu,cpuacct:" + id + "\n1:name=systemd:" + id + "\n"},
                {"proc/self/mountinfo",
                 "31 30 0:27 " + id +
                     " /sys/fs/cgroup/cpu,cpuacct ro master:9 - cgroup cgroup rw,cpu,cpuacct\n"
                     "32 30 0:28 " +
                     id + " /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"},
                {"sys/fs/cgroup/memory/memory.limit_in_bytes", "8589934592\n"},
                {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "50000\n"},
                {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"}}),
      (HostLimits{8 * kGiB, 1}))
      << "half a core is one";
}

TEST(HostLimitsTest, TheLeastLimitOnAPathOfVersion1Counts) {
  EXPECT_EQ(
      LimitsOf({{"proc/self/cgroup", "4:memory:/batch/job\n2:cpu,cpuacct:/batch/job\n"},
                {"proc/self/mountinfo", kVersion1},
                {"sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"},
                {"sys/fs/cgroup/memory/batch/memory.limit_in_bytes", "2147483648\n"},
                {"sys/fs/cgroup/memory/batch/job/memory.limit_in_bytes", "9223372036854771712\n"},
                {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"},
                {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"},
                {"sys/fs/cgroup/cpu,cpuacct/batch/cpu.cfs_quota_us", "400000\n"},
                {"sys/fs/cgroup/cpu,cpuacct/batch/cpu.cfs_period_us", "100000\n"}}),
      (HostLimits{2 * kGiB, 4}));
}

TEST(HostLimitsTest, LimitsAboveTheMountCountWhereTheKernelRepeatsThem) {
  EXPECT_EQ(
      LimitsOf(
          {{"proc/self/cgroup", "4:memory:/outer/docker/id\n"},
           {"proc/self/mountinfo",
            "32 30 0:28 /outer/docker/id /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"},
           {"sys/fs/cgroup/memory/memory.limit_in_bytes", "8589934592\n"},
           {"sys/fs/cgroup/memory/memory.stat",
            "cache 0\nhierarchical_memory_limit 1073741824\nhierarchical_memsw_limit 1\n"}}),
      (HostLimits{kGiB, 32}));
}

TEST(HostLimitsTest, BothVersionsCountTogether) {
  EXPECT_EQ(LimitsOf({{"proc/self/cgroup", "4:memory:/a\n0::/b\n"},
                      {"proc/self/mountinfo",
                       std::string(kVersion1) +
                           "33 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"},
                      {"sys/fs/cgroup/memory/a/memory.limit_in_bytes", "2147483648\n"},
                      {"sys/fs/cgroup/unified/b/cpu.max", "200000 100000\n"}}),
            (HostLimits{2 * kGiB, 2}));
}

TEST(HostLimitsTest, AGroupOutsideTheMountGetsTheLimitsOfTheMount) {
  EXPECT_EQ(LimitsOf({{"proc/self/cgroup", "0::/../elsewhere\n"},
                      {"proc/self/mountinfo", kUnified},
                      {"sys/fs/cgroup/memory.max", "1073741824\n"}}),
            (HostLimits{kGiB, 32}));
  EXPECT_EQ(LimitsOf({{"proc/self/cgroup", "4:memory:/batch-two\n"},
                      {"proc/self/mountinfo",
                       "32 30 0:28 /batch /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"},
                      {"sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n"},
                      {"sys/fs/cgroup/memory-two/memory.limit_in_bytes", "1\n"}}),
            (HostLimits{kGiB, 32}));
}

TEST(HostLimitsTest, NamesMayContainSpaces) {
  EXPECT_EQ(
      LimitsOf({{"proc/self/cgroup", "0::/a b\n"},
                {"proc/self/mountinfo", "30 23 0:26 / /my\\040groups rw - cgroup2 cgroup rw\n"},
                {"my groups/a b/memory.max", "1073741824\n"}}),
      (HostLimits{kGiB, 32}));
}

TEST(HostLimitsTest, UnreadableFilesSetNoLimit) {
  EXPECT_EQ(LimitsOf({{"proc/self/cgroup", "nonsense\n0::/\n7\n"},
                      {"proc/self/mountinfo", std::string("short line\n- \n - \n") + kUnified},
                      {"sys/fs/cgroup/memory.max", "99999999999999999999999\n"},
                      {"sys/fs/cgroup/memory.high", ""},
                      {"sys/fs/cgroup/cpu.max", "0 0\n"},
                      {"sys/fs/cgroup/cpu.cfs_quota_us", "100000\n"}}),
            kMachine);
}

TEST(HostLimitsTest, ALimitAboveTheMachineIsIgnored) {
  EXPECT_EQ(LimitsOf({{"proc/self/cgroup", "0::/\n"},
                      {"proc/self/mountinfo", kUnified},
                      {"sys/fs/cgroup/memory.max", "1099511627776\n"},
                      {"sys/fs/cgroup/cpu.max", "6400000 100000\n"}}),
            kMachine);
}

TEST(HostLimitsTest, CoresFollowTheAffinityMask) {
  cpu_set_t all, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
  CPU_ZERO(&one);
  for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(ProcessLimits().cores, 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof(all), &all), 0);
  EXPECT_LE(ProcessLimits().cores, CPU_COUNT(&all));
  EXPECT_GT(ProcessLimits().memory_bytes, 0);
}

TEST(HostLimitsTest, TheLimitOfOpenFilesIsRaisedToTheHardLimit) {
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 256;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  RaiseFileLimit();
  rlimit after;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &after), 0);
  EXPECT_EQ(after.rlim_cur, std::min<rlim_t>(before.rlim_max, 65'536));
  EXPECT_EQ(after.rlim_max, before.rlim_max);
  setrlimit(RLIMIT_NOFILE, &before);
}

}  // namespace
}  // namespace tessera
