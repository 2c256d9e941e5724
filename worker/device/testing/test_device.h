// For tests: a device backend on the fake driver (tests/fakes), with what a launch needs around it.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "base/testing/status_matchers.h"
#include "ir/text.h"
#include "worker/cuda/testing/fakes.h"
#include "worker/device/device_backend.h"

namespace tessera::worker::device {

using ir::Array;
using ir::DType;

inline constexpr absl::Duration kPatience = absl::Seconds(60);
// Returns reproducible elements, from -1 to 1 in f32 and f64, else from 0 to 99.
inline Array Random(DType dtype, const ir::Dims& shape, uint32_t seed) {
  Array a(dtype, shape);
  for (int64_t i = 0; i < a.num_elements(); ++i) {
    seed = seed * 1664525u + 1013904223u;
    a.Set(i, dtype == DType::kF32 || dtype == DType::kF64
                 ? static_cast<double>(seed >> 8) / (1 << 23) - 1
                 : static_cast<double>((seed >> 8) % 100));
  }
  return a;
}

inline ir::Program Parse(const std::string& text) {
  absl::StatusOr<ir::Program> program = ir::ParseProgram(text);
  EXPECT_THAT(program, IsOk());
  return program.ok() ? *std::move(program) : ir::Program{};
}

// One device with everything that a launch needs around it.
class TestDevice {
 public:
  explicit TestDevice(int device, DeviceBackendOptions options = {}) {
    options.ordinal = device;
    if (options.memory_bytes == 0) options.memory_bytes = 64 << 20;
    options.on_fatal = [this](const absl::Status& why) {
      absl::MutexLock lock(&mu_);
      fatal_status_.Update(why);
    };
    absl::StatusOr<std::unique_ptr<Backend>> made =
        MakeDeviceBackend(&cuda::FakeDevices(), options);
    EXPECT_THAT(made, IsOk());
    if (made.ok()) backend = *std::move(made);
  }

  absl::Status fatal_status() {
    absl::MutexLock lock(&mu_);
    return fatal_status_;
  }

  // A launch that has been enqueued, and its end.
  struct EnqueuedLaunch {
    std::vector<DeviceBufferRef> results;
    std::shared_ptr<absl::Notification> done = std::make_shared<absl::Notification>();
    std::shared_ptr<absl::Status> status = std::make_shared<absl::Status>();
    std::shared_ptr<Event> event;
    std::vector<DeviceBufferRef> args;

    absl::Status Wait() const {
      if (!done->WaitForNotificationWithTimeout(kPatience)) {
        return absl::DeadlineExceededError("the launch does not end");
      }
      return *status;
    }
  };
  // Enqueues a launch. The launch is the only user of the arguments for which `donated` is true.
  absl::StatusOr<EnqueuedLaunch> Enqueue(const Executable& executable,
                                         const std::vector<DeviceBufferRef>& args,
                                         std::vector<bool> donated = {}) {
    donated.resize(args.size(), false);
    const std::vector<int> donations =
        backend->ChooseDonations(executable, args, std::move(donated));
    context.donations = donations;
    context.launch = ++launches_;
    context.program = "program";
    context.cancel = next_cancel;
    context.in_flight = queue_.Begin(context.launch);
    TESSERA_ASSIGN_OR_RETURN(Enqueued enqueued, backend->Enqueue(executable, context, args));
    EnqueuedLaunch running;
    running.results.assign(enqueued.results.begin(), enqueued.results.end());
    running.args = args;
    running.event = std::move(enqueued.event);
    running.event->OnDone([done = running.done, into = running.status](const absl::Status& s) {
      *into = s;
      done->Notify();
    });
    return running;
  }
  absl::StatusOr<std::vector<Array>> Run(const Executable& executable,
                                         const std::vector<DeviceBufferRef>& args,
                                         std::vector<bool> donated = {}) {
    TESSERA_ASSIGN_OR_RETURN(const EnqueuedLaunch running,
                             Enqueue(executable, args, std::move(donated)));
    TESSERA_RETURN_IF_ERROR(running.Wait());
    std::vector<Array> results;
    for (const DeviceBufferRef& result : running.results) {
      TESSERA_ASSIGN_OR_RETURN(results.emplace_back(), backend->ToHost(*result));
    }
    return results;
  }
  DeviceBufferRef Put(const Array& value) {
    absl::StatusOr<DeviceBufferRef> buffer = backend->FromHost(0, value);
    EXPECT_THAT(buffer, IsOk());
    return buffer.ok() ? *buffer : nullptr;
  }

  CancelToken cancel;
  CancelToken* next_cancel = &cancel;  // that of the next launch
  RunContext context;
  std::unique_ptr<Backend> backend;

 private:
  uint64_t launches_ = 0;
  InFlightPage page_{1};
  InFlightQueue queue_{&page_.slot(0)};
  absl::Mutex mu_;
  absl::Status fatal_status_ ABSL_GUARDED_BY(mu_);
};

// Tests on eight fake GPUs.
class FakeDevicesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    cuda::ResetFakes();
    cuda::SetFake("devices", 8);
  }
};

}  // namespace tessera::worker::device
