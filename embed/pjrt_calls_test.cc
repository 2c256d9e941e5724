// Proves that programs can call functions of the host through the plugin. The test loads the plugin
// from its file, as a framework does, and runs artifacts that JAX exported.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "embed/testing/pjrt_framework.h"
#include "gmock/gmock.h"

namespace tessera::pjrt {

namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsNan;

// The calls that the host got, and the callbacks that the plugin has held and released. Threads of
// the plugin append to both lists.
struct HostCalls {
  absl::Mutex mu;
  std::vector<std::string> made;
  std::vector<std::string> holds;
};
HostCalls& AllCalls() {
  static auto* const calls = new HostCalls;
  return *calls;
}

void SetCallbacks(HostCallback callback) {
  const auto* extension = static_cast<const Extension*>(Table().extension_start);
  while (extension->type != kTesseraExtension) extension = extension->next;
  static_cast<const TesseraExtension*>(extension)->set_callbacks(
      callback, [](const char* id, bool held) {
        absl::MutexLock lock(&AllCalls().mu);
        AllCalls().holds.push_back(absl::StrCat(id, held ? " held" : " released"));
      });
}
const float* Floats(const HostValue& value) {
  EXPECT_EQ(value.type, kF32);
  return static_cast<const float*>(value.data);
}

TEST_F(PjrtTest, ProgramsCallTheHostAndTokensAreNoArrays) {
  SetCallbacks([](const char* id, size_t num_values, const HostValue* values, size_t num_results,
                  const HostValue*, char*, size_t) {
    std::string text = absl::StrCat(id, ":");
    EXPECT_EQ(num_results, 0);
    EXPECT_EQ(num_values, 2);
    absl::StrAppend(&text, " ", *static_cast<const int32_t*>(values[0].data));
    EXPECT_EQ(values[1].num_dims, 1);
    for (int64_t i = 0; i < values[1].dims[0]; ++i)
      absl::StrAppend(&text, " ", Floats(values[1])[i]);
    absl::MutexLock lock(&AllCalls().mu);
    AllCalls().made.push_back(text);
    return 0;
  });
  // The program has a loop of three iterations. Each iteration calls the host with its number and
  // x, and adds one to x.
  LoadedExecutable* run = nullptr;
  ASSERT_EQ(TakeMessage(TryCompile(ReadArtifactFile("host_callback"), "", &run)), "");
  Buffer* token = Put({0}, {}, devices_[0]);  // Any buffer may be given as the first token.
  for (int times = 0; times < 2; ++times) {
    const RunResult ran = Run(run, {{token, Put({1, 2}, {2}, devices_[0])}}, 2);
    ASSERT_EQ(ran.error, "");
    token = ran.outputs[0][0];
    auto type = MakeArgs<Buffer_ElementType_Args>();
    type.buffer = token;
    EXPECT_CALL_OK(kBuffer_ElementType, &type);
    EXPECT_EQ(type.type, 23);
    EXPECT_THAT(Read(ran.outputs[0][1]), ElementsAre(4, 5));
    absl::MutexLock lock(&AllCalls().mu);  // The run has ended, so the calls have been made.
    EXPECT_THAT(AllCalls().made, ElementsAre("0--0: 0 1 2", "0--0: 1 2 3", "0--0: 2 3 4"));
    AllCalls().made.clear();
  }
  auto destroy = MakeArgs<LoadedExecutable_Destroy_Args>();
  destroy.executable = run;
  EXPECT_CALL_OK(kLoadedExecutable_Destroy, &destroy);
  executables_.clear();
  absl::MutexLock lock(&AllCalls().mu);
  EXPECT_THAT(AllCalls().holds, ElementsAre("0--0 held", "0--0 released"));
  AllCalls().holds.clear();
}

TEST_F(PjrtTest, ProgramsUseTheResultsOfCallsOfTheHost) {
  // The program returns f(f(x)) and x. The function f(x) calls the host with x + 1 and doubles the
  // result.
  LoadedExecutable* run = nullptr;
  ASSERT_EQ(TakeMessage(TryCompile(ReadArtifactFile("host_callback_asks"), "", &run)), "");
  SetCallbacks([](const char*, size_t num_values, const HostValue* values, size_t num_results,
                  const HostValue* results, char*, size_t) {
    EXPECT_EQ(num_values, 1);
    EXPECT_EQ(num_results, 1);
    EXPECT_EQ(results[0].dims[0], 2);
    for (int i = 0; i < 2; ++i) static_cast<float*>(results[0].data)[i] = 10 * Floats(values[0])[i];
    return 0;
  });
  const RunResult ran = Run(run, {{Put({0, 1}, {2}, devices_[0])}}, 2);
  ASSERT_EQ(ran.error, "");
  EXPECT_THAT(Read(ran.outputs[0][0]), ElementsAre(420, 820));
  EXPECT_THAT(Read(ran.outputs[0][1]), ElementsAre(0, 1));
  SetCallbacks([](const char*, size_t, const HostValue*, size_t, const HostValue*, char* error,
                  size_t size) {
    std::fill_n(error, size, 'x');  // a message without a final null character
    return 1;
  });
  EXPECT_THAT(Run(run, {{Put({0, 1}, {2}, devices_[0])}}, 2).error, HasSubstr("xxx"));
  SetCallbacks(nullptr);
  EXPECT_THAT(Run(run, {{Put({0, 1}, {2}, devices_[0])}}, 2).error,
              HasSubstr("has already dropped the functions that programs call"));
}

TEST_F(PjrtTest, ACallInABranchMayFailButNotReturnValues) {
  LoadedExecutable* run = nullptr;
  ASSERT_EQ(TakeMessage(TryCompile(ReadArtifactFile("host_callback_late"), "", &run)), "");
  const auto run_with = [&](bool called) {
    return Run(run, {{Put({3, 4}, {2}, devices_[0]), PutBool(called)}}, 1);
  };
  SetCallbacks([](const char*, size_t, const HostValue* values, size_t num_results,
                  const HostValue*, char* error, size_t size) {
    EXPECT_EQ(num_results, 1);
    std::snprintf(error, size, "no good: %g", Floats(values[0])[1]);
    return 1;
  });
  const RunResult ran = run_with(false);
  ASSERT_EQ(ran.error, "");
  EXPECT_THAT(Read(ran.outputs[0][0]), ElementsAre(3, 4));
  const RunResult failed = run_with(true);
  EXPECT_EQ(failed.error, "no good: 4");
  // The results of the failed run have failed too, and so has every run that takes them.
  std::vector<float> nothing;
  EXPECT_EQ(TryRead(failed.outputs[0][0], &nothing), "no good: 4");
  const RunResult next = Run(run, {{failed.outputs[0][0], PutBool(false)}}, 1);
  EXPECT_EQ(next.error, "no good: 4");
  EXPECT_EQ(TryRead(next.outputs[0][0], &nothing), "no good: 4");
  Buffer* copy = nullptr;
  ASSERT_EQ(TryCopy(failed.outputs[0][0], devices_[1], &copy), "");
  EXPECT_EQ(TryRead(copy, &nothing), "no good: 4");
  SetCallbacks(
      [](const char*, size_t, const HostValue*, size_t, const HostValue* results, char*, size_t) {
        std::fill_n(static_cast<float*>(results[0].data), 2, std::nanf(""));
        return 0;
      });
  const RunResult guessed = run_with(true);  // The program has gone on with NaNs.
  ASSERT_EQ(guessed.error, "");
  EXPECT_THAT(Read(guessed.outputs[0][0]), Each(IsNan()));
  SetCallbacks(
      [](const char*, size_t, const HostValue*, size_t, const HostValue* results, char*, size_t) {
        std::fill_n(static_cast<float*>(results[0].data), 2, 0.f);
        return 0;
      });
  EXPECT_THAT(run_with(true).error, HasSubstr("call it outside of loops"));
  SetCallbacks(nullptr);
}

}  // namespace
}  // namespace tessera::pjrt
