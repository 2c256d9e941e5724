// The plugin's table called as a framework calls it, in JAX's order, with the traps that the
// interface has.
//
// A test that uses it defines Table(), or is built with pjrt_loaded.cc.
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

enum Index : int {
#define TESSERA_PJRT(name) k##name,
#define TESSERA_PJRT_ABSENT(name) k##name,
#include "client/pjrt/functions.def"
#undef TESSERA_PJRT
#undef TESSERA_PJRT_ABSENT
};
static_assert(kError_ForEachPayload == 132);
static_assert(kTopologyDescription_GetMemorySpaceKindIds + 1 == kNumFunctions);

inline constexpr int kPred = 1, kF32 = 11;

// An argument struct as a caller makes it.
template <class Args>
Args Make() {
  Args args;
  std::memset(static_cast<void*>(&args), 0, sizeof(args));
  args.struct_size = sizeof(args);
  return args;
}

// Which functions the test has called, by index.
std::array<std::atomic<bool>, kNumFunctions>& Called();

template <class Args>
Error* Call(Index index, Args* args) {
  Called()[index] = true;
  return reinterpret_cast<Error* (*)(Args*)>(Table().functions[index])(args);
}

// The message of an error, which is given back; "" for none.
std::string Take(Error* error, int* code = nullptr);
#define EXPECT_CALL_OK(index, args) EXPECT_EQ(Take(Call(index, args)), "")

// Calls a function of an object, which must be without an error.
template <class Args, class Object>
Args Ask(Index index, Object* Args::*field, Object* object) {
  auto args = Make<Args>();
  args.*field = object;
  EXPECT_CALL_OK(index, &args) << index;
  return args;
}

NamedValue Option(const char* name, int64_t value);
// Waits for an event and destroys it; its error.
std::string Await(Event* event);
// An artifact of tests/fuzz/stablehlo.
std::string Artifact(const std::string& name);

// A client of four embedded devices, and what the test makes with it, all of which is given back.
class PjrtTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override { Close(); }
  virtual Client* Open();
  // Gives back all buffers, executables and the client.
  void Close();

  Memory* MemoryOf(Device* device);
  Buffer* Put(const std::vector<float>& values, std::vector<int64_t> dims, Device* device,
              std::vector<int64_t> byte_strides = {});
  Buffer* PutBool(bool value);
  std::string ReadError(Buffer* buffer, std::vector<float>* out);
  std::vector<float> Read(Buffer* buffer);
  // Null, after an error. The executable is kept until Close.
  Error* TryCompile(const std::string& code, const std::string& options,
                    LoadedExecutable** executable);
  // Of a program's text, for the first devices, as many as the program's mesh has.
  Error* TryCompileText(const std::string& text, LoadedExecutable** executable);
  LoadedExecutable* Compile(const std::string& text);

  struct Ran {
    std::vector<std::vector<Buffer*>> outputs;  // by device; none if the call itself failed
    std::string error;
  };
  // `args`: by device. `wait`: for the end; else the error is that of the call alone.
  Ran Run(LoadedExecutable* executable, const std::vector<std::vector<Buffer*>>& args,
          size_t num_outputs, const std::vector<int64_t>& keep = {}, bool wait = true);
  std::string TryCopy(Buffer* from, Device* to, Buffer** copy);
  bool IsDeleted(Buffer* buffer);

  // Until Close. Thread-safe.
  void Keep(Buffer* buffer) ABSL_LOCKS_EXCLUDED(mu_);

  Client* client_ = nullptr;
  std::vector<Device*> devices_;
  absl::Mutex mu_;
  std::vector<Buffer*> buffers_ ABSL_GUARDED_BY(mu_);
  std::vector<LoadedExecutable*> executables_;
};

// x + x on one device.
extern const char kDouble[];
// On four devices: the elements of `a` times `b`, and their sum.
extern const char kSharded[];

}  // namespace tessera::pjrt
