// Measures a device through its plugin. In the same run it compares kernels with the device's copy
// bandwidth, matmuls with the library's fastest algorithm, and single launches with a graph of
// launches.
//
//   bench-device [--plugin PATH] [--device N] [--megabytes N] [--rounds N] [--smoke]
//
// Bandwidth counts each byte that a kernel must read or write once. A copy counts its bytes twice,
// because it reads and writes them. The cases are interleaved, round by round. The host's clock
// measures the time from the first launch of a batch until the event after the last launch.
#include "worker/device/device.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "bench/flags.h"
#include "bench/samples.h"
#include "worker/codegen/device_code.h"
#include "worker/codegen/kernel.h"
#include "worker/device/api_values.h"
#include "worker/device/plugin.h"

namespace tessera::bench {
namespace {

namespace codegen = worker::codegen;
using worker::device::Device;
using worker::device::EventHandle;
using worker::device::GraphHandle;
using worker::device::MatmulHandle;
using worker::device::ModuleHandle;
using worker::device::StreamHandle;

constexpr absl::Duration kBatchTimeout = absl::Seconds(60);  // limit for one batch of launches
constexpr int64_t kRow = 1024;

struct Flags {
  std::string plugin;
  int device = 0;
  int64_t bytes = int64_t{256} << 20;  // size of each array
  int rounds = 11;
  int batch = 10;  // launches per time measurement
  int64_t matmul = 4096;
};

class Bench {
 public:
  explicit Bench(const Flags& flags) : flags_(flags) {
    absl::StatusOr<const tessera_device_api*> api = worker::device::LoadDevicePlugin(flags.plugin);
    if (!api.ok()) {
      std::cout << "no device: " << api.status().message() << "\n";
      std::exit(0);
    }
    absl::StatusOr<std::unique_ptr<Device>> device = Device::Open(*api, flags.device);
    TESSERA_CHECK_OK(device);
    device_ = *std::move(device);
    absl::StatusOr<StreamHandle> stream = device_->NewStream(/*high_priority=*/false);
    TESSERA_CHECK_OK(stream);
    stream_ = *std::move(stream);
    arrays_[0] = AllocateNumbers(ir::DType::kF32, flags.bytes / 4);
    arrays_[1] = Allocate(flags.bytes);
    arrays_[2] = Allocate(flags.bytes);
    std::cout << device_->info().name << ", " << device_->info().versions << ", "
              << device_->info().target << "\n";
  }
  ~Bench() {
    for (const uint64_t address : allocated_) {
      static_cast<void>(api().free(device_->context(), address));
    }
  }

  void Run() {
    MeasureKernels();
    MeasureMatmuls();
    MeasureCollectives();
    MeasureLaunches();
  }

 private:
  const tessera_device_api& api() const { return device_->api(); }
  void Check(int code, const char* what) const {
    const absl::Status status = device_->Check(code, what);
    TESSERA_CHECK_OK(status);
  }

  uint64_t Allocate(int64_t bytes) {
    uint64_t address = 0;
    Check(api().allocate(device_->context(), bytes, &address), "an array");
    Check(api().fill_zero(stream_.get(), address, bytes), "an array's zeros");
    allocated_.push_back(address);
    return address;
  }

  // Returns an array of `count` numbers in [-1, 1). Zeros would give wrong times, because a device
  // draws less power for zeros than for a program's numbers, and may therefore run faster.
  uint64_t AllocateNumbers(ir::DType dtype, int64_t count) {
    TESSERA_CHECK(dtype == ir::DType::kF32 || dtype == ir::DType::kBF16)
        << "AllocateNumbers makes no numbers of this dtype";
    const int64_t size = dtype == ir::DType::kF32 ? 4 : 2;
    void* pinned = nullptr;
    Check(api().allocate_host(device_->context(), count * size, &pinned), "host memory");
    char* const numbers = static_cast<char*>(pinned);
    std::minstd_rand random(1);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (int64_t i = 0; i < count; ++i) {
      const float number = uniform(random);
      // A bf16 is the upper half of an f32.
      std::memcpy(numbers + i * size, reinterpret_cast<const char*>(&number) + (4 - size), size);
    }
    const uint64_t address = Allocate(count * size);
    Check(api().copy_to_device(stream_.get(), address, numbers, count * size), "numbers");
    Synchronize();
    static_cast<void>(api().free_host(device_->context(), pinned));
    return address;
  }

  // Waits until all work on the stream has ended.
  void Synchronize() const {
    absl::StatusOr<EventHandle> event = device_->RecordEvent(stream_);
    TESSERA_CHECK_OK(event);
    const absl::Time deadline = absl::Now() + kBatchTimeout;
    while (true) {
      const absl::StatusOr<bool> reached = device_->IsReached(*event);
      TESSERA_CHECK_OK(reached);
      if (*reached) return;
      TESSERA_CHECK(absl::Now() < deadline) << "the device did not finish the batch";
    }
  }

  // Calls `work` for a whole batch and returns the mean time of a call in microseconds.
  double MeanMicroseconds(const std::function<void()>& work) const {
    Synchronize();
    const absl::Time start = absl::Now();
    for (int i = 0; i < flags_.batch; ++i) work();
    Synchronize();
    return absl::ToDoubleMicroseconds(absl::Now() - start) / flags_.batch;
  }

  struct Case {
    std::string name;
    std::function<void()> work;
    Samples samples;
  };
  void MeasureInterleaved(std::vector<Case>& cases) const {
    for (Case& c : cases) c.work();  // warm-up
    for (int round = 0; round < flags_.rounds; ++round) {
      for (Case& c : cases) c.samples.AddValue(MeanMicroseconds(c.work));
    }
  }

  struct Code {
    codegen::DeviceCode code;
    ModuleHandle module;
  };
  Code Compile(const std::string& text) const {
    absl::StatusOr<codegen::Kernel> kernel = codegen::ParseKernel(text);
    TESSERA_CHECK_OK(kernel) << text;
    absl::StatusOr<codegen::DeviceCode> code =
        codegen::CompileForDevice(device_->info().target, {codegen::Canonical(*kernel)});
    TESSERA_CHECK_OK(code) << text;
    tessera_module* module = nullptr;
    Check(api().module_load(device_->context(), code->image.data(),
                            static_cast<int64_t>(code->image.size()), &module),
          "a module");
    return {*std::move(code), ModuleHandle(&api(), module)};
  }
  void Launch(const Code& code, const std::vector<uint64_t>& args) const {
    const codegen::GpuKernel& k = code.code.kernels[0];
    Check(api().launch(stream_.get(), code.module.get(), k.entry.c_str(), k.grid, k.block,
                       k.shared_bytes, args.data(), static_cast<int32_t>(args.size())),
          "a launch");
  }

  // Compiles three kernels as the worker does and prints their bandwidth beside that of the
  // device's copy. The kernels are an addition, a fused chain of functions and a row sum. All of
  // them are limited by memory, so that the copy shows how fast they could be. Printed times are
  // medians of the rounds.
  void MeasureKernels() {
    const int64_t n = flags_.bytes / 4, rows = n / kRow;
    const uint64_t x = arrays_[0], y = arrays_[1], z = arrays_[2];
    const std::string shape = absl::StrCat("kernel [", n, "] reduced 0\n");
    const std::string in = absl::StrCat("in f32 ", n, "\n"),
                      out = absl::StrCat("out f32 ", n, "\n");
    const std::string load = "%0 = load p0 [0: 1] : f32\n";
    const auto add = std::make_shared<Code>(
        Compile(absl::StrCat(shape, in, in, out, load, "%1 = load p1 [0: 1] : f32\n",
                             "%2 = Add %0, %1 : f32\nstore %2 p2 [0: 1]\n")));
    const auto chain = std::make_shared<Code>(Compile(absl::StrCat(
        shape, in, out, load,
        "%1 = Tanh %0 : f32\n%2 = Mul %1, %0 : f32\n%3 = Exp %2 : f32\nstore %3 p1 [0: 1]\n")));
    const auto sum = std::make_shared<Code>(Compile(absl::StrCat(
        "kernel [", rows, ",", kRow, "] reduced 1\n", in, "out f32 ", rows, "\n%0 = load p0 [0: ",
        kRow, ",1] : f32\n%1 = reduce sum %0 : f32\nstore %1 p1 [0: 1,0]\n")));
    std::vector<Case> cases(4);
    cases[0] = {
        "copy", [=, this] { Check(api().copy(stream_.get(), y, x, flags_.bytes), "a copy"); }, {}};
    cases[1] = {"add", [=, this] { Launch(*add, {x, y, z}); }, {}};
    cases[2] = {"exp(tanh(x) x)", [=, this] { Launch(*chain, {x, y}); }, {}};
    cases[3] = {"row sum", [=, this] { Launch(*sum, {x, y}); }, {}};
    const double bytes[] = {2.0 * flags_.bytes, 3.0 * flags_.bytes, 2.0 * flags_.bytes,
                            1.0 * flags_.bytes};
    MeasureInterleaved(cases);
    std::printf("%-28s %12s %12s %10s\n", "kernel, f32", "us", "GB/s", "of copy");
    const double copy = bytes[0] / cases[0].samples.Quantile(0.5);
    for (size_t i = 0; i < cases.size(); ++i) {
      const double us = cases[i].samples.Quantile(0.5);
      std::printf("%-28s %12.1f %12.1f %9.1f%%\n", cases[i].name.c_str(), us, bytes[i] / us / 1e3,
                  100 * bytes[i] / us / copy);
    }
  }

  struct PlannedMatmul {
    MatmulHandle matmul;
    uint64_t scratch = 0;
  };
  // Plans a matmul with the library's preferred algorithm if `trials` is 0, and otherwise with the
  // fastest of `trials` algorithms, which are timed.
  PlannedMatmul PlanMatmul(ir::DType dtype, bool allow_tf32, int trials) {
    setenv("TESSERA_CUDA_MATMUL_TRIALS", absl::StrCat(trials).c_str(), 1);
    const int64_t n = flags_.matmul;
    tessera_matmul_shape shape = {};
    shape.batch = 1;
    shape.m = shape.n = shape.k = n;
    for (int64_t* strides : {shape.a_strides, shape.b_strides, shape.c_strides}) {
      strides[0] = n * n, strides[1] = n, strides[2] = 1;
    }
    shape.in = shape.out = worker::device::ApiValue(dtype);
    shape.allow_tf32 = allow_tf32 ? 1 : 0;
    tessera_matmul* matmul = nullptr;
    int64_t scratch = 0;
    Check(api().matmul_plan(device_->context(), &shape, &matmul, &scratch), "a matmul");
    return {MatmulHandle(&api(), matmul), scratch > 0 ? Allocate(scratch) : 0};
  }

  // Times square matmuls of each dtype with the algorithm that the worker would use, and with the
  // fastest of many algorithms. The difference is what the library's heuristic costs.
  void MeasureMatmuls() {
    constexpr int kTrials = 32;
    std::printf("%-28s %12s %12s %10s\n", "matmul", "us", "TFLOP/s", "of best");
    // "tf32" multiplies f32 numbers at the default precision, and "f32" at the highest.
    struct Product {
      std::string name;
      ir::DType dtype;
      bool allow_tf32;
    };
    const Product products[] = {{"bf16", ir::DType::kBF16, false},
                                {"tf32", ir::DType::kF32, true},
                                {"f32", ir::DType::kF32, false}};
    for (const auto& [name, dtype, allow_tf32] : products) {
      const int64_t n = flags_.matmul;
      const uint64_t a = AllocateNumbers(dtype, n * n), b = AllocateNumbers(dtype, n * n);
      const uint64_t c = Allocate(4 * n * n);
      const auto work_of = [=, this](const std::shared_ptr<PlannedMatmul>& p) {
        return [=, this] {
          Check(api().matmul_run(stream_.get(), p->matmul.get(), a, b, c, p->scratch), "a matmul");
        };
      };
      std::vector<Case> cases(2);
      const auto work_of_plan = [&, allow = allow_tf32, type = dtype](int trials) {
        return work_of(std::make_shared<PlannedMatmul>(PlanMatmul(type, allow, trials)));
      };
      cases[0] = {"as planned", work_of_plan(0), {}};
      cases[1] = {"best", work_of_plan(kTrials), {}};
      MeasureInterleaved(cases);
      const double best = cases[1].samples.Quantile(0.5);
      for (const Case& measured : cases) {
        const double us = measured.samples.Quantile(0.5);
        std::printf("%-28s %12.1f %12.1f %9.1f%%\n",
                    absl::StrCat(n, "^3 ", name, ", ", measured.name).c_str(), us,
                    2e-6 * n * n * n / us, 100 * best / us);
      }
    }
  }

  // Checks that the library's collectives work on this device with a single rank, and measures
  // what a call costs.
  void MeasureCollectives() {
    tessera_comm_id id = {};
    tessera_comm* created = nullptr;
    int code = api().comm_id(&id);
    if (code == TESSERA_OK) code = api().comm_create(device_->context(), &id, 1, 0, &created);
    const auto comm = std::make_shared<worker::device::CommHandle>(&api(), created);
    const absl::Time deadline = absl::Now() + kBatchTimeout;
    while (code == TESSERA_NOT_READY && absl::Now() < deadline) code = api().comm_ready(created);
    if (code != TESSERA_OK) {
      std::cout << "no collectives: " << api().error_text() << "\n";
      return;
    }
    const int64_t n = flags_.bytes / 4;
    // Waits for each collective to be ready, because the next may not be started before.
    const auto call = [=, this](tessera_collective_kind kind) {
      return [=, this] {
        const tessera_collective collective = {.kind = kind,
                                               .dtype = TESSERA_F32,
                                               .reduce = TESSERA_SUM,
                                               .source = -1,
                                               .target = -1,
                                               .in = arrays_[0],
                                               .out = arrays_[1],
                                               .elements = n,
                                               .order = nullptr};
        int result = api().collective(comm->get(), stream_.get(), &collective);
        const absl::Time end = absl::Now() + kBatchTimeout;
        while (result == TESSERA_NOT_READY && absl::Now() < end) {
          result = api().comm_ready(comm->get());
        }
        Check(result, "a collective");
      };
    };
    std::vector<Case> cases;
    for (const auto& [name, kind] :
         {std::pair("all_reduce", TESSERA_ALL_REDUCE), std::pair("all_gather", TESSERA_ALL_GATHER),
          std::pair("reduce_scatter", TESSERA_REDUCE_SCATTER),
          std::pair("all_to_all", TESSERA_ALL_TO_ALL)}) {
      cases.push_back({name, call(kind), {}});
    }
    MeasureInterleaved(cases);
    std::printf("%-28s %12s %12s\n", "collective, one rank", "us", "GB/s");
    for (const Case& c : cases) {
      const double us = c.samples.Quantile(0.5);
      std::printf("%-28s %12.1f %12.1f\n", c.name.c_str(), us, 2.0 * flags_.bytes / us / 1e3);
    }
  }

  // Measures how long the host takes to launch a step of many small kernels, one by one and as a
  // graph.
  void MeasureLaunches() {
    constexpr int kKernels = 100;
    const auto small = std::make_shared<Code>(
        Compile("kernel [1024] reduced 0\nin f32 1024\nout f32 1024\n"
                "%0 = load p0 [0: 1] : f32\n%1 = Add %0, %0 : f32\nstore %1 p1 [0: 1]\n"));
    const auto step = [=, this] {
      for (int i = 0; i < kKernels; ++i) {
        Launch(*small, {arrays_[i % 2], arrays_[(i + 1) % 2]});
      }
    };
    Check(api().graph_begin(stream_.get()), "a graph");
    step();
    tessera_graph* captured = nullptr;
    Check(api().graph_end(stream_.get(), &captured), "a graph");
    const auto graph = std::make_shared<GraphHandle>(&api(), captured);
    std::vector<Case> cases(2);
    cases[0] = {"100 launches", step, {}};
    cases[1] = {"a graph of them",
                [=, this] { Check(api().graph_launch(stream_.get(), graph->get()), "a graph"); },
                {}};
    for (Case& c : cases) c.work();
    std::printf("%-28s %12s %12s\n", "step of 100 small kernels", "host us", "us");
    for (Case& c : cases) {
      Samples host;
      for (int round = 0; round < flags_.rounds; ++round) {
        Synchronize();
        const absl::Time start = absl::Now();
        c.work();
        host.Add(absl::Now() - start);
        c.samples.AddValue(MeanMicroseconds(c.work));
      }
      std::printf("%-28s %12.1f %12.1f\n", c.name.c_str(), host.Quantile(0.5),
                  c.samples.Quantile(0.5));
    }
  }

  const Flags flags_;
  std::unique_ptr<Device> device_;
  StreamHandle stream_;
  std::vector<uint64_t> allocated_;
  uint64_t arrays_[3] = {};
};

// Reads the flags and runs the benchmark on one device. Returns 2 if a flag is wrong. Bench itself
// ends the process with status 0 if the plugin finds no device, so that the smoke test passes on
// machines without one.
int Main(int argc, char** argv) {
  Flags flags;
  int64_t megabytes = flags.bytes >> 20;
  FlagParser parser("bench-device", "Measures a device through its plugin.");
  parser.AddText("--plugin", "PATH", &flags.plugin, "the plugin to load");
  parser.AddNumber("--device", &flags.device, "number of the device", {.least = 0});
  parser.AddNumber("--megabytes", &megabytes, "size of each array, in MiB",
                   {.most = int64_t{1} << 30});
  parser.AddNumber("--rounds", &flags.rounds, "number of rounds");
  parser.AddAction(
      "--smoke",
      [&flags, &megabytes] {
        megabytes = 1;
        flags.rounds = 2;
        flags.batch = 2;
        flags.matmul = 64;
      },
      "runs short, as a test");
  if (const std::optional<int> status = parser.Parse(argc, argv)) return *status;
  flags.bytes = megabytes << 20;
  Bench(flags).Run();
  return 0;
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) { return tessera::bench::Main(argc, argv); }
