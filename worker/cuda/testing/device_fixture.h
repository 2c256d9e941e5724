// For tests of the plugin: a context of a fake device with a stream, and short functions that move
// vectors to the device and back. Every wait is bounded.
#pragma once
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/cuda/testing/fakes.h"
#include "worker/device/device_api.h"

namespace tessera::worker::cuda {

constexpr std::chrono::seconds kTestTimeout(60);

// Calls `poll` until it returns something other than TESSERA_NOT_READY.
template <class F>
int Poll(const F& poll) {
  const auto deadline = std::chrono::steady_clock::now() + kTestTimeout;
  while (true) {
    const int code = poll();
    if (code != TESSERA_NOT_READY || std::chrono::steady_clock::now() > deadline) return code;
    std::this_thread::yield();
  }
}

// A context with a stream. One thread uses it.
class TestDevice {
 public:
  explicit TestDevice(int device) {
    EXPECT_EQ(api().open(device, &context_), TESSERA_OK) << api().error_text();
    EXPECT_EQ(api().stream_create(context_, 0, &stream_), TESSERA_OK) << api().error_text();
  }
  TestDevice(const TestDevice&) = delete;
  TestDevice& operator=(const TestDevice&) = delete;
  ~TestDevice() {
    for (void* address : pinned_addresses_) api().free_host(context_, address);
    for (const uint64_t address : device_addresses_) api().free(context_, address);
    api().stream_destroy(stream_);
    api().close(context_);
  }

  static const tessera_device_api& api() { return FakeDevices(); }
  tessera_context* context() const { return context_; }
  tessera_stream* stream() const { return stream_; }

  uint64_t Allocate(int64_t bytes) {
    uint64_t address = 0;
    EXPECT_EQ(api().allocate(context_, bytes, &address), TESSERA_OK) << api().error_text();
    device_addresses_.push_back(address);
    return address;
  }
  void Free(uint64_t address) {
    EXPECT_EQ(api().free(context_, address), TESSERA_OK) << api().error_text();
    std::erase(device_addresses_, address);
  }

  void* AllocateHost(int64_t bytes) {
    void* address = nullptr;
    EXPECT_EQ(api().allocate_host(context_, bytes, &address), TESSERA_OK) << api().error_text();
    pinned_addresses_.push_back(address);
    return address;
  }

  // Waits until all work enqueued on the stream has ended, and returns the code of the wait.
  int Sync(tessera_stream* stream) {
    tessera_event* event = nullptr;
    if (const int code = api().event_create(context_, &event)) return code;
    int code = api().event_record(event, stream);
    if (code == TESSERA_OK) code = Poll([&] { return api().event_query(event); });
    api().event_destroy(event);
    return code;
  }
  int Sync() { return Sync(stream_); }

  // Lets the plugin destroy the resources whose destruction it has put off until the streams have
  // passed them.
  void Reap() {
    EXPECT_EQ(Sync(), TESSERA_OK) << api().error_text();
    tessera_device_info info = {};
    EXPECT_EQ(api().info(context_, &info), TESSERA_OK) << api().error_text();
  }

  template <class T>
  uint64_t Put(const std::vector<T>& values) {
    const int64_t bytes = static_cast<int64_t>(values.size() * sizeof(T));
    const uint64_t to = Allocate(bytes);
    void* const staging = AllocateHost(bytes);
    memcpy(staging, values.data(), bytes);
    EXPECT_EQ(api().copy_to_device(stream_, to, staging, bytes), TESSERA_OK) << api().error_text();
    EXPECT_EQ(Sync(), TESSERA_OK) << api().error_text();
    return to;
  }

  template <class T>
  std::vector<T> Get(uint64_t from, int64_t count) {
    std::vector<T> values(count);
    const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
    void* const staging = AllocateHost(bytes);
    EXPECT_EQ(api().copy_to_host(stream_, staging, from, bytes), TESSERA_OK) << api().error_text();
    EXPECT_EQ(Sync(), TESSERA_OK) << api().error_text();
    memcpy(values.data(), staging, bytes);
    return values;
  }

  int Launch(tessera_module* module, const char* function, const std::vector<uint64_t>& args,
             tessera_stream* stream = nullptr) {
    const uint32_t one[3] = {1, 1, 1};
    return api().launch(stream == nullptr ? stream_ : stream, module, function, one, one, 0,
                        args.data(), static_cast<int32_t>(args.size()));
  }

  tessera_module* Load() {
    tessera_module* module = nullptr;
    EXPECT_EQ(api().module_load(context_, kTestImage, sizeof kTestImage, &module), TESSERA_OK)
        << api().error_text();
    return module;
  }

 private:
  tessera_context* context_ = nullptr;
  tessera_stream* stream_ = nullptr;
  std::vector<uint64_t> device_addresses_;
  std::vector<void*> pinned_addresses_;
};

// Resets the knobs before each test, and expects that no violation is left after it.
class FakesTest : public ::testing::Test {
 protected:
  FakesTest() {
    FakeDevices();
    ResetFakes();
    SetFake("violation_abort", 0);
  }
  ~FakesTest() override {
    EXPECT_EQ(FakeViolations(), "");
    ResetFakes();
  }
  static const tessera_device_api& api() { return FakeDevices(); }
  static std::string ErrorText() { return api().error_text(); }
};

}  // namespace tessera::worker::cuda
