// Tests of the way from kernels to running functions: sharing, the cache on disk, and compilers
// that crash or hang. This test's binary is its own compile child. Depending on its first argument,
// main() runs a correct child, one that crashes, one that hangs, or one that reports what it was
// given.
#include "worker/codegen/host_code.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/jail.h"
#include "base/log.h"
#include "base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/codegen/compile.h"
#include "worker/codegen/compile_child.h"
#include "worker/codegen/object_cache.h"
#include "worker/codegen/testing/kernel_cases.h"

namespace tessera::worker::codegen {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Returns a kernel that computes p1[i] = p0[i] + addend.
Kernel Adder(int addend, int64_t n = 100) {
  const absl::StatusOr<Kernel> kernel =
      ParseKernel(absl::StrCat("kernel [", n, "] reduced 0\nin s32 ", n, "\nout s32 ", n,
                               "\n%0 = load p0 [0: 1] : s32\n%1 = Constant ", addend,
                               " : s32\n%2 = Add %0, %1 : s32\nstore %2 p1 [0: 1]\n"));
  TESSERA_CHECK_OK(kernel);
  return *kernel;
}

// Returns the adder's result for 5.
int AddedTo5(const HostCode& code, int kernel) {
  std::vector<int32_t> in(100, 5), out(100, -1);
  void* const buffers[] = {in.data(), out.data()};
  code.function(kernel)(buffers, 0, 100);
  for (const int32_t v : out) EXPECT_EQ(v, out[0]);
  return out[0];
}

class HostCodeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "host_code_test.XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    options_.cache_dir = name;
  }
  void TearDown() override { fs::remove_all(options_.cache_dir); }

  // Makes compile children of this binary. `kind` is one of the flags that MainOfTest knows.
  void UseChild(const std::string& kind) {
    options_.cache_dir.clear();
    options_.compile_binary = fs::read_symlink("/proc/self/exe").string();
    options_.compile_args = {kind};
  }

  HostCompilerOptions options_;
};

TEST_F(HostCodeTest, KernelsAreCompiledOnceAndThenShared) {
  HostCompiler compiler(options_);
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto code, compiler.Compile({Adder(1), Adder(2), Adder(1)}));
  EXPECT_EQ(AddedTo5(*code, 0), 6);
  EXPECT_EQ(AddedTo5(*code, 1), 7);
  EXPECT_EQ(AddedTo5(*code, 2), 6);
  EXPECT_EQ(code->function(0), code->function(2));
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto again, compiler.Compile({Adder(2)}));
  EXPECT_EQ(again->function(0), code->function(1));
  EXPECT_EQ(compiler.counters().compiled, 2);
  EXPECT_EQ(compiler.counters().shared, 2);
  EXPECT_EQ(compiler.counters().from_disk, 0);
}

TEST_F(HostCodeTest, CodeOutlivesTheCompiler) {
  std::shared_ptr<const HostCode> code;
  {
    HostCompiler compiler(options_);
    TESSERA_ASSERT_OK_AND_ASSIGN(code, compiler.Compile({Adder(3)}));
  }
  EXPECT_EQ(AddedTo5(*code, 0), 8);
}

TEST_F(HostCodeTest, TheNextProcessFindsObjectsOnDisk) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto first, HostCompiler(options_).Compile({Adder(1)}));
  HostCompiler next(options_);
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto code, next.Compile({Adder(1), Adder(4)}));
  EXPECT_EQ(AddedTo5(*code, 0), 6);
  EXPECT_EQ(AddedTo5(*code, 1), 9);
  EXPECT_EQ(next.counters().from_disk, 1);
  EXPECT_EQ(next.counters().compiled, 1);
}

TEST_F(HostCodeTest, TargetsDoNotShareCacheEntries) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto first, HostCompiler(options_).Compile({Adder(1)}));
  options_.target = "baseline";
  HostCompiler next(options_);
  const absl::StatusOr<HostTarget> best = FindHostTarget("host");
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto code, next.Compile({Adder(1)}));
  EXPECT_EQ(AddedTo5(*code, 0), 6);
  EXPECT_EQ(next.counters().compiled, best->name == "baseline" ? 0 : 1);
}

// The entry is intact but is not an object, as if it came from a compiler with a bug.
TEST_F(HostCodeTest, AnEntryThatDoesNotLoadIsCompiledAnew) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto first, HostCompiler(options_).Compile({Adder(1)}));
  std::string entry;
  for (const fs::directory_entry& file : fs::directory_iterator(options_.cache_dir))
    entry = file.path().stem().string();
  ObjectCache(options_.cache_dir, 1 << 20).Put(entry, "no object at all");
  HostCompiler next(options_);
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto code, next.Compile({Adder(1)}));
  EXPECT_EQ(AddedTo5(*code, 0), 6);
  EXPECT_EQ(next.counters().compiled, 1);
}

TEST_F(HostCodeTest, AnUnknownTargetIsAnError) {
  options_.target = "vax";
  EXPECT_THAT(HostCompiler(options_).Compile({Adder(1)}),
              ReasonIs("VALUE_ERROR", AllOf(HasSubstr("vax"), HasSubstr("baseline"))));
}

TEST_F(HostCodeTest, ThreadsCompileConcurrently) {
  HostCompiler compiler(options_);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&compiler, t] {
      for (int i = 0; i < 10; ++i) {
        // Some addends are the same as another thread's.
        const int addend = t / 2 * 100 + i;
        const auto code = compiler.Compile({Adder(addend)});
        ASSERT_THAT(code, IsOk());
        EXPECT_EQ(AddedTo5(**code, 0), 5 + addend);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(HostCodeTest, AnObjectDoesNotDependOnEarlierCompilations) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const HostTarget target, FindHostTarget("host"));
  HostCodegen used(target);
  for (int seed = 0; seed < 20; ++seed) {
    const Kernel kernel = RandomKernel(seed, {.reduce = seed % 2 == 0, .functions = true});
    TESSERA_ASSERT_OK_AND_ASSIGN(const std::string object, used.Compile(kernel));
    TESSERA_ASSERT_OK_AND_ASSIGN(const std::string fresh, HostCodegen(target).Compile(kernel));
    EXPECT_EQ(object, fresh) << "seed " << seed;
  }
}

// ---- In a child. -------------------------------------------------------------------------------

TEST_F(HostCodeTest, AChildCompilesTheSameObject) {
  const Kernel kernel = RandomKernel(3, {.functions = true});
  TESSERA_ASSERT_OK_AND_ASSIGN(const HostTarget target, FindHostTarget("host"));
  UseChild(kCompileChildFlag);
  CompileChild child({options_.compile_binary, options_.compile_args, target.name});
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::string here, HostCodegen(target).Compile(kernel));
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::string there,
                               child.Compile({kernel}, "k", absl::InfiniteFuture()));
  EXPECT_EQ(here, there);
  HostCompiler compiler(options_);
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto code, compiler.Compile({Adder(1), Adder(2)}));
  EXPECT_EQ(AddedTo5(*code, 1), 7);
}

TEST_F(HostCodeTest, ACrashIsAnErrorThatNamesTheKernelAndTheNextCompileWorks) {
  // The compiler crashes on kernels that add 13.
  UseChild("--crash-on-13");
  HostCompiler compiler(options_);
  EXPECT_THAT(compiler.Compile({Adder(1)}, {"one"}), IsOk());
  for (int again = 0; again < 2; ++again) {
    EXPECT_THAT(compiler.Compile({Adder(2), Adder(13)}, {"fine", "tanh (model.cc:3)"}),
                ReasonIs("INTERNAL", AllOf(HasSubstr("compile of tanh (model.cc:3)"),
                                           HasSubstr("killed by signal"))));
  }
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto code, compiler.Compile({Adder(3)}, {"three"}));
  EXPECT_EQ(AddedTo5(*code, 0), 8);
}

TEST_F(HostCodeTest, ACompilerThatHangsIsKilledAtTheDeadline) {
  UseChild("--hang-on-13");
  options_.compile_deadline = absl::Seconds(5);
  HostCompiler compiler(options_);
  EXPECT_THAT(compiler.Compile({Adder(1)}, {"one"}), IsOk());
  options_.compile_deadline = absl::Milliseconds(50);
  HostCompiler impatient(options_);
  EXPECT_THAT(impatient.Compile({Adder(13)}, {"slow"}),
              ReasonIs("COMPILE_TIMEOUT", HasSubstr("compile of slow")));
}

TEST_F(HostCodeTest, TheDeadlineAppliesToTheWholeProgram) {
  UseChild("--hang-on-13");
  options_.compile_deadline = absl::ZeroDuration();
  EXPECT_THAT(HostCompiler(options_).Compile({Adder(1)}, {"late"}),
              ReasonIs("COMPILE_TIMEOUT", HasSubstr("compile of late")));
}

TEST_F(HostCodeTest, AHangingCompilerDoesNotBlockOthers) {
  UseChild("--hang-on-13");
  options_.compile_deadline = absl::Seconds(5);
  HostCompiler compiler(options_);
  std::atomic<bool> ended{false};
  std::thread hanging([&] {
    EXPECT_THAT(compiler.Compile({Adder(13)}, {"slow"}), ReasonIs("COMPILE_TIMEOUT"));
    ended = true;
  });
  for (int i = 0; i < 3; ++i) {
    TESSERA_ASSERT_OK_AND_ASSIGN(const auto code, compiler.Compile({Adder(i)}));
    EXPECT_EQ(AddedTo5(*code, 0), 5 + i);
  }
  EXPECT_FALSE(ended);
  hanging.join();
}

// Each thread has a compiler of its own, as executors have, or all share one.
TEST_F(HostCodeTest, ConcurrentCallsCompileAKernelOnce) {
  constexpr int kThreads = 4, kKernels = 8;
  for (const int processes : {1, kThreads}) {
    HostCompilerOptions options = options_;
    options.cache_dir += absl::StrCat("/", processes);
    options.compile_binary = fs::read_symlink("/proc/self/exe").string();
    options.compile_args = {kCompileChildFlag};
    std::vector<std::unique_ptr<HostCompiler>> compilers;
    for (int p = 0; p < processes; ++p)
      compilers.push_back(std::make_unique<HostCompiler>(options));
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < kKernels; ++i) {
          const auto code = compilers[t % processes]->Compile({Adder(i)});
          ASSERT_THAT(code, IsOk());
          EXPECT_EQ(AddedTo5(**code, 0), 5 + i);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    int64_t compiled = 0;
    for (const auto& compiler : compilers) compiled += compiler->counters().compiled;
    EXPECT_EQ(compiled, kKernels) << processes << " processes";
  }
}

// Several children compile the kernels of one program.
TEST_F(HostCodeTest, TheKernelsOfAProgramAreCompiledConcurrently) {
  constexpr int kKernels = 40;
  std::vector<Kernel> kernels;
  // Some kernels occur twice.
  for (int i = 0; i < kKernels; ++i) kernels.push_back(Adder(100 + i % 36));
  for (const int at_once : {1, 4}) {
    UseChild(kCompileChildFlag);
    options_.compiled_at_once_max = at_once;
    HostCompiler compiler(options_);
    TESSERA_ASSERT_OK_AND_ASSIGN(const auto code, compiler.Compile(kernels));
    for (int i = 0; i < kKernels; ++i) EXPECT_EQ(AddedTo5(*code, i), 105 + i % 36);
    EXPECT_EQ(compiler.counters().compiled, 36);
    EXPECT_EQ(compiler.counters().shared, 4);
  }
}

TEST_F(HostCodeTest, TenantsShareNeitherCodeNorChildren) {
  UseChild(kCompileChildFlag);
  HostCompiler compiler(options_);
  const std::vector<Kernel> kernels = {Adder(1)};
  std::vector<std::shared_ptr<const HostCode>> codes;
  for (const char* const tenant : {"a", "b", "a"}) {
    TESSERA_ASSERT_OK_AND_ASSIGN(codes.emplace_back(), compiler.Compile(kernels, {}, {}, tenant));
    EXPECT_EQ(AddedTo5(*codes.back(), 0), 6);
  }
  EXPECT_EQ(compiler.counters().compiled, 2);
  EXPECT_EQ(compiler.counters().shared, 1) << "a's second, with its first";
  CompileChildren children({options_.compile_binary, options_.compile_args, "host"});
  CompileChild* const of_a = children.Take("a").release();
  children.Release("a", std::unique_ptr<CompileChild>(of_a));
  const auto of_b = children.Take("b");
  EXPECT_NE(of_b.get(), of_a);
  EXPECT_EQ(children.Take("a").get(), of_a);
}

// Returns the number of processes whose parent is this one.
int NumChildren() {
  int children = 0;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator("/proc", none)) {
    std::ifstream file(entry.path() / "stat");
    std::string stat;
    if (!std::getline(file, stat)) continue;
    std::istringstream rest(stat.substr(stat.rfind(')') + 1));  // the fields after the name
    std::string state;
    int parent = 0;
    rest >> state >> parent;
    if (parent == getpid()) ++children;
  }
  return children;
}

// The compilers hang, so that in the end as many run as may run at once.
TEST_F(HostCodeTest, ConcurrentProgramsShareTheLimitOfChildren) {
  UseChild("--hang-on-13");
  constexpr int kCalls = 4, kAtOnce = 4, kKernels = 40;
  options_.compiled_at_once_max = kAtOnce;
  options_.compile_deadline = absl::Seconds(2);
  HostCompiler compiler(options_);
  std::atomic<int> done{0};
  std::vector<std::thread> calls;
  for (int c = 0; c < kCalls; ++c)
    calls.emplace_back([&, c] {
      std::vector<Kernel> kernels;
      for (int i = 0; i < kKernels; ++i) kernels.push_back(Adder(13, 100 + kKernels * c + i));
      EXPECT_THAT(compiler.Compile(kernels), ReasonIs("COMPILE_TIMEOUT", HasSubstr("kernel 0")));
      ++done;
    });
  int most = 0;
  while (done < kCalls) {
    most = std::max(most, NumChildren());
    std::this_thread::yield();
  }
  for (std::thread& call : calls) call.join();
  EXPECT_GT(most, kCalls);
  EXPECT_LE(most, kCalls + kAtOnce - 1);
}

TEST_F(HostCodeTest, WithoutThreadsTheCallerCompilesAll) {
  options_.compiled_at_once_max = 4;
  HostCompiler compiler(options_);
  std::vector<Kernel> kernels;
  for (int i = 0; i < 40; ++i) kernels.push_back(Adder(100 + i));
  pthread_attr_t before, unlimited;
  ASSERT_EQ(pthread_getattr_default_np(&before), 0);
  ASSERT_EQ(pthread_getattr_default_np(&unlimited), 0);
  // No address space has room for this stack.
  ASSERT_EQ(pthread_attr_setstacksize(&unlimited, size_t{1} << 60), 0);
  ASSERT_EQ(pthread_setattr_default_np(&unlimited), 0);
  EXPECT_THROW(std::thread([] {}), std::system_error);
  const auto code = compiler.Compile(kernels);
  ASSERT_EQ(pthread_setattr_default_np(&before), 0);
  ASSERT_THAT(code, IsOk());
  for (int i = 0; i < 40; ++i) EXPECT_EQ(AddedTo5(**code, i), 105 + i);
}

// If several kernels fail, the error of the first kernel is reported, whichever fails first.
TEST_F(HostCodeTest, TheFirstErrorOfAProgramIsReported) {
  UseChild("--crash-on-13");
  options_.compiled_at_once_max = 4;
  HostCompiler compiler(options_);
  std::vector<Kernel> kernels;
  std::vector<std::string> labels;
  for (int i = 0; i < 40; ++i) {
    // Kernels of different sizes are different kernels.
    kernels.push_back(i < 5 ? Adder(200 + i) : Adder(13, 100 + i));
    labels.push_back(absl::StrCat("op ", i));
  }
  for (int again = 0; again < 3; ++again)
    EXPECT_THAT(compiler.Compile(kernels, labels),
                ReasonIs("INTERNAL", HasSubstr("compile of op 5:")));
}

TEST_F(HostCodeTest, AChildGetsNoSecrets) {
  UseChild("--say-what-it-has");
  // Sets a token in the environment and opens a file carelessly, without close-on-exec.
  setenv("TESSERA_TOKEN", "tsr_secret", /*overwrite=*/1);
  setenv("UNLIKELY_NAME", "secret", /*overwrite=*/1);
  setenv("LD_LIBRARY_PATH", "/nowhere", /*overwrite=*/1);
  const int careless = fcntl(STDERR_FILENO, F_DUPFD, 20);
  ASSERT_GE(careless, 20);
  const auto answer = HostCompiler(options_).Compile({Adder(1)}, {"one"});
  close(careless);
  unsetenv("TESSERA_TOKEN");
  unsetenv("UNLIKELY_NAME");
  unsetenv("LD_LIBRARY_PATH");
  EXPECT_THAT(answer, ReasonIs("INTERNAL", HasSubstr("LD_LIBRARY_PATH=/nowhere; fds 0 1 2 3.")));
  EXPECT_THAT(answer.status().message(), Not(HasSubstr("secret")));
}

TEST_F(HostCodeTest, ACompilerOutOfMemoryIsAnError) {
  UseChild(kCompileChildFlag);
  options_.compile_memory_bytes_max = 1 << 20;
  std::string text = "kernel [100] reduced 0\nin f32 100\nout f32 100\n%0 = load p0 [0: 1] : f32\n";
  constexpr int kFunctions = 300;
  for (int i = 0; i < kFunctions; ++i)
    absl::StrAppend(&text, "%", i + 1, " = Tanh %", i, " : f32\n");
  absl::StrAppend(&text, "store %", kFunctions, " p1 [0: 1]\n");
  TESSERA_ASSERT_OK_AND_ASSIGN(const Kernel kernel, ParseKernel(text));
  EXPECT_THAT(HostCompiler(options_).Compile({kernel}, {"many"}),
              ReasonIs("INTERNAL", HasSubstr("compile of many: the compiler")));
}

TEST_F(HostCodeTest, AMissingCompilerIsAnError) {
  options_.compile_binary = "/no/such/compiler";
  EXPECT_THAT(HostCompiler(options_).Compile({Adder(1)}, {"one"}),
              ReasonIs("INTERNAL", HasSubstr("/no/such/compiler")));
}

TEST(HostCompilerOptions, TheFolderIsTheOptionOrTheUsersCache) {
  const auto env = [](std::map<std::string, std::string> vars) {
    return [vars](const std::string& name) -> std::optional<std::string> {
      const auto at = vars.find(name);
      return at == vars.end() ? std::nullopt : std::optional(at->second);
    };
  };
  Options options;
  EXPECT_EQ(HostCompilerOptionsFrom(options, env({{"HOME", "/h"}})).cache_dir, "/h/.cache/tessera");
  EXPECT_EQ(
      HostCompilerOptionsFrom(options, env({{"HOME", "/h"}, {"XDG_CACHE_HOME", "/x"}})).cache_dir,
      "/x/tessera");
  EXPECT_EQ(HostCompilerOptionsFrom(options, env({})).cache_dir, "");
  options.cache_dir = "/c";
  EXPECT_EQ(HostCompilerOptionsFrom(options, env({{"HOME", "/h"}})).cache_dir, "/c");
  options.cache_dir = "off";
  EXPECT_EQ(HostCompilerOptionsFrom(options, env({{"HOME", "/h"}})).cache_dir, "");
}

// A compiler with a bug: a kernel that adds 13 ends it or makes it hang. Other kernels are
// compiled.
int RunFaultyChild(bool crash) {
  TESSERA_CHECK(FindHostTarget("host").ok());
  HostCodegen codegen(*FindHostTarget("host"));
  return ServeInJail("faulty", [&](std::string_view request) -> std::string {
    if (request.find("Constant 13") != std::string_view::npos) {
      if (crash) raise(SIGKILL);
      absl::Notification().WaitForNotification();  // until the parent gives up
    }
    const absl::StatusOr<Kernel> kernel =
        ParseKernel(std::string(request.substr(request.find('\n') + 1)));
    return "o" + *codegen.Compile(*kernel);
  });
}

// Answers with an error that lists what the child was given: its environment, then its descriptors.
int RunTellingChild() {
  std::string has;
  for (char** variable = environ; *variable != nullptr; ++variable)
    absl::StrAppend(&has, *variable, "; ");
  absl::StrAppend(&has, "fds");
  constexpr int kFdsMax = 256;
  for (int fd = 0; fd < kFdsMax; ++fd)
    if (fcntl(fd, F_GETFD) >= 0) absl::StrAppend(&has, " ", fd);
  return ServeInJail("telling", [&](std::string_view) { return absl::StrCat("e", has, ".\n"); });
}

}  // namespace

int MainOfTest(int argc, char** argv) {
  const std::string kind = argc > 1 ? argv[1] : "";
  if (kind == kCompileChildFlag) return RunCompileChild(/*compile_image=*/nullptr);
  if (kind == "--crash-on-13") return RunFaultyChild(/*crash=*/true);
  if (kind == "--say-what-it-has") return RunTellingChild();
  if (kind == "--hang-on-13") return RunFaultyChild(/*crash=*/false);
  ::testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}

}  // namespace tessera::worker::codegen

int main(int argc, char** argv) { return tessera::worker::codegen::MainOfTest(argc, argv); }
