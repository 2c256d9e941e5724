// Proves what a jailed process can and cannot do, and how its parent learns how it ended. The test
// starts itself as the jailed process, which then does what each request says.
#include "base/jail.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/clock.h"
#include "base/testing/processes.h"
#include "base/unique_fd.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr char kJailedFlag[] = "--jailed";
constexpr absl::Duration kPatience = absl::Seconds(60);

JailOptions Options() {
  return {.binary = std::filesystem::read_symlink("/proc/self/exe").string(),
          .args = {kJailedFlag},
          .title = "jailed"};
}

std::string Outcome(int64_t result) { return result >= 0 ? "done" : std::strerror(errno); }

// Does what the request says, as far as the jail lets it, and returns the result in words.
std::string Obey(std::string_view request) {
  if (request == "open") return Outcome(open("/etc/passwd", O_RDONLY));
  if (request == "stat") {
    struct stat found;
    return Outcome(stat("/etc/passwd", &found));
  }
  if (request == "write a file") return Outcome(open("/tmp/from_jail", O_CREAT | O_WRONLY, 0600));
  if (request == "limit the parent") {
    const rlimit none{0, 0};
    return Outcome(prlimit(getppid(), RLIMIT_CPU, &none, nullptr));
  }
  if (request == "signal the parent")
    return Outcome(syscall(SYS_tgkill, getppid(), getppid(), SIGKILL));
  if (request == "signals of the socket") return Outcome(fcntl(3, F_SETOWN, getppid()));
  if (request == "thread") {
    try {
      std::thread([] {}).join();
    } catch (const std::system_error& error) {
      return error.what();
    }
    return "done";
  }
  if (request == "socket") return Outcome(socket(AF_INET, SOCK_STREAM, 0));
  if (request == "kill the parent") return Outcome(kill(getppid(), SIGKILL));
  if (request == "exec") return Outcome(execl("/bin/true", "true", nullptr));
  if (request == "fork") return Outcome(vfork());
  if (request == "write to 4") return Outcome(write(4, "x", 1));
  if (request == "spin")
    while (true) static_cast<void>(SteadyNow());
  if (request == "hang") absl::Notification().WaitForNotification();
  if (request == "crash") raise(SIGSEGV);
  if (request == "abort") abort();
  if (request.substr(0, 5) == "take ")
    return std::string(std::stoul(std::string(request.substr(5))), 'x');
  return absl::StrCat("pid ", getpid(), ": ", std::string(request));
}

std::string CallOrEnd(JailedProcess& process, std::string_view request,
                      absl::Duration patience = kPatience) {
  JailEnd end;
  std::optional<std::string> reply = process.Call(request, SteadyNow() + patience, &end);
  if (reply) return *std::move(reply);
  constexpr const char* kCauses[] = {"crash", "memory", "cpu", "wall", "stopped", "not started"};
  return absl::StrCat(kCauses[static_cast<int>(end.cause)], ": it ", end.how);
}

TEST(Jail, OneProcessAnswersOneRequestAfterTheOther) {
  JailedProcess process(Options());
  const std::string first = CallOrEnd(process, "a");
  EXPECT_EQ(first, absl::StrCat("pid ", process.pid(), ": a"));
  const std::string second = CallOrEnd(process, "b");
  EXPECT_EQ(second, absl::StrCat("pid ", process.pid(), ": b"));
  // A request and a reply that are larger than the buffer of a socket.
  const std::string large(8 << 20, 'z');
  EXPECT_EQ(CallOrEnd(process, large), absl::StrCat("pid ", process.pid(), ": ", large));
  EXPECT_EQ(CallOrEnd(process, ""), absl::StrCat("pid ", process.pid(), ": "));
}

TEST(Jail, ForbiddenCallsFailOrEndTheProcess) {
  if (!JailFiltersCalls())
    GTEST_SKIP() << "a sanitizer's runtime needs the calls that the filter refuses";
  JailedProcess process(Options());
  for (const char* const wish : {"open", "stat", "write a file", "limit the parent",
                                 "signal the parent", "signals of the socket", "thread"})
    EXPECT_THAT(CallOrEnd(process, wish), HasSubstr("Operation not permitted")) << wish;
  const std::string still = CallOrEnd(process, "still here");
  EXPECT_EQ(still, absl::StrCat("pid ", process.pid(), ": still here"));
  for (const char* const attack : {"socket", "kill the parent", "exec", "fork"}) {
    EXPECT_EQ(CallOrEnd(process, attack), "crash: it was killed by signal 31 (Bad system call)")
        << attack;
  }
  EXPECT_THAT(CallOrEnd(process, "again"), HasSubstr(": again"));
}

TEST(Jail, ACrashIsReportedAndTheNextCallGetsAnotherProcess) {
  JailedProcess process(Options());
  EXPECT_THAT(CallOrEnd(process, "crash"),
              AnyOf("crash: it was killed by signal 11 (Segmentation fault)",
                    // The runtime of a sanitizer catches the signal.
                    "crash: it exited with status 1", "crash: it exited with status 66"));
  EXPECT_EQ(process.pid(), -1);
  EXPECT_THAT(CallOrEnd(process, "abort"), HasSubstr("crash: it "));
  EXPECT_THAT(CallOrEnd(process, "next"), HasSubstr(": next"));
}

TEST(Jail, AProcessThatDiedBetweenCallsIsReplaced) {
  JailedProcess process(Options());
  CallOrEnd(process, "a");
  const pid_t pid = process.pid();
  kill(pid, SIGKILL);
  // Wait until all threads of the process have ended, without reaping it: its first thread becomes
  // a zombie earlier than the others.
  siginfo_t end;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(pid), &end, WEXITED | WNOWAIT), 0);
  const std::string reply = CallOrEnd(process, "b");
  EXPECT_EQ(reply, absl::StrCat("pid ", process.pid(), ": b"));
  EXPECT_NE(process.pid(), pid);
}

TEST(Jail, MemoryIsLimited) {
  JailOptions options = Options();
  options.memory_bytes_max = 64 << 20;
  JailedProcess process(options);
  EXPECT_EQ(CallOrEnd(process, "take 1000000").size(), 1'000'000u);
  // The allocator of a sanitizer ends the process itself.
  EXPECT_THAT(CallOrEnd(process, "take 100000000"),
              AnyOf("memory: it wanted more than 67108864 bytes of memory",
                    "crash: it exited with status 1", "crash: it exited with status 66"));
}

TEST(Jail, AReplyThatIsTooLongIsRefused) {
  JailOptions options = Options();
  options.reply_bytes_max = 1 << 20;
  JailedProcess process(options);
  EXPECT_EQ(CallOrEnd(process, "take 1000000").size(), 1'000'000u);
  EXPECT_EQ(CallOrEnd(process, "take 2000000"),
            "crash: it closed its socket, or answered with too much");
  EXPECT_THAT(CallOrEnd(process, "next"), HasSubstr(": next"));
}

TEST(Jail, TimeIsLimited) {
  JailedProcess process(Options());
  EXPECT_EQ(CallOrEnd(process, "hang", absl::Milliseconds(200)),
            "wall: it did not answer in time and was stopped");
  EXPECT_THAT(CallOrEnd(process, "spin", absl::Milliseconds(200)), HasSubstr("wall: "));
  // The process is stopped before it can begin.
  ASSERT_EQ(process.Start(), absl::OkStatus());
  kill(process.pid(), SIGSTOP);
  EXPECT_THAT(CallOrEnd(process, "a", absl::Milliseconds(200)), HasSubstr("wall: "));
  EXPECT_THAT(CallOrEnd(process, "next"), HasSubstr(": next"));
}

// The kernel enforces the limit on processor time, so the limit also holds while the parent is
// suspended.
TEST(Jail, ProcessorTimeIsLimited) {
  JailedProcess process(Options());
  ASSERT_EQ(process.Start(), absl::OkStatus());
  const pid_t pid = process.pid();
  std::string end;
  std::thread caller([&] { end = CallOrEnd(process, "spin", absl::Seconds(1000)); });
  EXPECT_TRUE(testing::Eventually([pid] { return testing::CpuTicks(pid) > 5; }));
  rlimit limit{};
  EXPECT_TRUE(testing::Eventually([&] {
    return prlimit(pid, RLIMIT_CPU, nullptr, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  }));
  EXPECT_GE(limit.rlim_cur, 1000u);
  EXPECT_LE(limit.rlim_cur, 1005u);
  const rlimit one{1, limit.rlim_max};  // one second, which the process has soon used
  EXPECT_EQ(prlimit(pid, RLIMIT_CPU, &one, nullptr), 0);
  caller.join();
  EXPECT_EQ(end, "cpu: it took too much processor time");
}

TEST(Jail, CallsEndWhenTheStopDescriptorIsReadable) {
  int stop[2];
  ASSERT_EQ(pipe(stop), 0);
  JailOptions options = Options();
  options.stop_fd = stop[0];
  JailedProcess process(options);
  ASSERT_EQ(process.Start(), absl::OkStatus());
  const pid_t pid = process.pid();
  std::string end;
  std::thread caller([&] { end = CallOrEnd(process, "spin"); });
  EXPECT_TRUE(testing::Eventually([pid] { return testing::CpuTicks(pid) > 5; }));
  close(stop[1]);
  caller.join();
  EXPECT_EQ(end, "stopped: it was stopped");
  EXPECT_EQ(CallOrEnd(process, "more"), "stopped: it was stopped");
  close(stop[0]);
}

TEST(Jail, AProcessHasTheDescriptorsThatItIsGivenAndNoOthers) {
  const UniqueFd memory(memfd_create("test", MFD_CLOEXEC)), other(dup(STDERR_FILENO));
  JailOptions options = Options();
  JailedProcess without(options);
  EXPECT_THAT(CallOrEnd(without, "write to 4"), HasSubstr("Bad file descriptor"));
  options.fds = {memory.get()};
  JailedProcess with(options);
  EXPECT_EQ(CallOrEnd(with, "write to 4"), "done");
  EXPECT_EQ(lseek(memory.get(), 0, SEEK_END), 1);
}

TEST(Jail, TheLimitOnProcessorTimeIsThatOfAllThreads) {
  JailOptions options = Options();
  options.threads = 4;
  JailedProcess process(options);
  ASSERT_EQ(process.Start(), absl::OkStatus());
  JailEnd end;
  EXPECT_TRUE(process.Call("a", SteadyNow() + absl::Seconds(1000), &end).has_value());
  rlimit limit{};
  ASSERT_EQ(prlimit(process.pid(), RLIMIT_CPU, nullptr, &limit), 0);
  EXPECT_GE(limit.rlim_cur, 3990u);
  EXPECT_LE(limit.rlim_cur, 4010u);
}

TEST(Jail, TheSignalThatKilledAProcessIsReported) {
  JailedProcess process(Options());
  ASSERT_EQ(process.Start(), absl::OkStatus());
  const pid_t pid = process.pid();
  JailEnd end;
  std::thread caller([&] { process.Call("spin", SteadyNow() + kPatience, &end); });
  EXPECT_TRUE(testing::Eventually([pid] { return testing::CpuTicks(pid) > 5; }));
  kill(pid, SIGKILL);
  caller.join();
  EXPECT_EQ(end.signal, SIGKILL);
  EXPECT_EQ(end.how, "was killed by signal 9 (Killed)");
}

TEST(Jail, AProgramThatDoesNotStartIsReported) {
  JailOptions options = Options();
  options.binary = "/no/such/program";
  JailedProcess process(options);
  EXPECT_THAT(CallOrEnd(process, "a"), HasSubstr("not started: it cannot start /no/such/program"));
}

TEST(Jail, TheProcessEndsWithItsParent) {
  int pids[2];
  ASSERT_EQ(pipe(pids), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    JailedProcess process(Options());
    if (!process.Start().ok()) _exit(1);
    const pid_t pid = process.pid();
    if (write(pids[1], &pid, sizeof pid) != sizeof pid) _exit(1);
    JailEnd end;
    process.Call("spin", SteadyNow() + absl::Hours(1), &end);
    _exit(1);
  }
  pid_t jailed = 0;
  ASSERT_EQ(read(pids[0], &jailed, sizeof jailed), static_cast<ssize_t>(sizeof jailed));
  EXPECT_TRUE(testing::Eventually([jailed] { return testing::CpuTicks(jailed) > 5; }));
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  EXPECT_TRUE(testing::Eventually([jailed] { return testing::HasEnded(jailed); }));
}

}  // namespace

int MainOfTest(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == kJailedFlag) return ServeInJail("jailed", Obey);
  ::testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}

}  // namespace tessera

int main(int argc, char** argv) { return tessera::MainOfTest(argc, argv); }
