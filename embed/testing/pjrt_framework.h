// Calls the functions of a PJRT plugin as a framework does, in the order in which JAX calls them.
// PJRT is the C interface between a framework and a device library: one table of functions, each of
// which takes a struct of arguments.
//
// A test that uses this file defines Table(), or is built with pjrt_loaded.cc.
#pragma once
#include <array>
#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/pjrt/abi.h"
#include "gtest/gtest.h"

namespace tessera::pjrt {

// The table that is tested.
const Api& Table();

enum FunctionIndex : int {
#define TESSERA_PJRT(name) k##name,
#define TESSERA_PJRT_ABSENT(name) k##name,
#include "client/pjrt/functions.def"
#undef TESSERA_PJRT
#undef TESSERA_PJRT_ABSENT
};
static_assert(kError_ForEachPayload == 132);
static_assert(kTopologyDescription_GetMemorySpaceKindIds + 1 == kNumFunctions);

inline constexpr int kPred = 1, kF32 = 11;

// Returns an argument struct as a caller initialises it: all zeros except its size.
template <class Args>
Args MakeArgs() {
  Args args;
  std::memset(static_cast<void*>(&args), 0, sizeof(args));
  args.struct_size = sizeof(args);
  return args;
}

// Returns which functions the tests have called so far, by index.
std::array<std::atomic<bool>, kNumFunctions>& CalledFunctions();

template <class Args>
Error* Call(FunctionIndex index, Args* args) {
  CalledFunctions()[index] = true;
  return reinterpret_cast<Error* (*)(Args*)>(Table().functions[index])(args);
}

// Returns the message of an error and destroys the error. Returns "" if `error` is null. Stores the
// status code in `code` unless that is null.
std::string TakeMessage(Error* error, int* code = nullptr);
#define EXPECT_CALL_OK(index, args) EXPECT_EQ(TakeMessage(Call(index, args)), "")

// Calls a function with one object as its argument, and returns the argument struct with the
// results. If the call returns an error, the test fails.
template <class Args, class Object>
Args CallWithObject(FunctionIndex index, Object* Args::*field, Object* object) {
  auto args = MakeArgs<Args>();
  args.*field = object;
  EXPECT_CALL_OK(index, &args) << index;
  return args;
}

// Returns an option for Client_Create.
NamedValue IntOption(const char* name, int64_t value);
// Waits for an event and destroys it. Returns the message of its error, or "".
std::string Await(Event* event);
// Returns the bytes of an artifact of tests/fuzz/stablehlo.
std::string ReadArtifactFile(const std::string& name);

// A fixture with a client of four embedded devices. It destroys all objects that the test has made
// with the client.
class PjrtTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override { Close(); }
  virtual Client* OpenClient();
  // Destroys all buffers, all executables and the client.
  void Close();

  Memory* MemoryOf(Device* device);
  Buffer* Put(const std::vector<float>& values, std::vector<int64_t> dims, Device* device,
              std::vector<int64_t> byte_strides = {});
  Buffer* PutBool(bool value);
  // Reads the buffer into `out`. Returns the message of the error, or "".
  std::string TryRead(Buffer* buffer, std::vector<float>* out);
  std::vector<float> Read(Buffer* buffer);
  // Compiles a program. Returns null on success, or the error. The executable lives until Close.
  Error* TryCompile(const std::string& code, const std::string& options,
                    LoadedExecutable** executable);
  // Compiles a program that is given as text, for the first devices. It runs on as many devices as
  // the program's mesh has.
  Error* TryCompileText(const std::string& text, LoadedExecutable** executable);
  LoadedExecutable* Compile(const std::string& text);

  struct RunResult {
    std::vector<std::vector<Buffer*>> outputs;  // outputs of each device; empty if the call failed
    std::string error;
  };
  // Runs an executable. `args` are the arguments of each device, and `keep` the indices of
  // arguments that must not be donated. If `wait` is true, waits for the end of the run and returns
  // the error of the run. If it is false, returns only an error of the call itself.
  RunResult Run(LoadedExecutable* executable, const std::vector<std::vector<Buffer*>>& args,
                size_t num_outputs, const std::vector<int64_t>& keep = {}, bool wait = true);
  // Copies the buffer to a device. Returns the message of the error, or "".
  std::string TryCopy(Buffer* from, Device* to, Buffer** copy);
  bool IsDeleted(Buffer* buffer);

  // Keeps the buffer until Close. Thread-safe.
  void Keep(Buffer* buffer) ABSL_LOCKS_EXCLUDED(mu_);

  Client* client_ = nullptr;
  std::vector<Device*> devices_;
  absl::Mutex mu_;
  std::vector<Buffer*> buffers_ ABSL_GUARDED_BY(mu_);
  std::vector<LoadedExecutable*> executables_;
};

// A program that computes x + x on one device.
extern const char kTwiceProgram[];
// A program that computes the elements of `a` times `b`, and their sum, on four devices.
extern const char kShardedProgram[];

}  // namespace tessera::pjrt
