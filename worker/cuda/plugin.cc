// The plugin's one entry: the table of worker/device/device_api.h, implemented by CUDA, NCCL and
// cuBLASLt. worker/device/plugin.cc loads the library and calls the entry.
#include <cstdio>
#include <new>

#include "worker/cuda/capture_mode.h"
#include "worker/cuda/comm.h"
#include "worker/cuda/context.h"
#include "worker/cuda/error.h"
#include "worker/cuda/graph.h"
#include "worker/cuda/matmul.h"
#include "worker/cuda/memory.h"
#include "worker/cuda/module.h"
#include "worker/cuda/monitor.h"
#include "worker/cuda/stream.h"
#include "worker/device/device_api.h"

namespace tessera::worker::cuda {
namespace {

int DeviceCount(int32_t* count) {
  *count = 0;
  const Driver* driver = nullptr;
  TESSERA_CUDA_TRY(OpenDriver(&driver));
  int found = 0;
  TESSERA_CUDA_TRY(CheckDriver(driver->api.cuDeviceGetCount(&found), "cuDeviceGetCount"));
  if (found == 0) {
    return Fail(TESSERA_UNAVAILABLE,
                "the NVIDIA driver shows no GPU; check nvidia-smi, and that CUDA_VISIBLE_DEVICES "
                "or the container hides no GPU");
  }
  *count = found;
  return TESSERA_OK;
}

int DeviceId(int32_t device, char* id, int32_t size) {
  const Driver* driver = nullptr;
  TESSERA_CUDA_TRY(OpenDriver(&driver));
  CUdevice handle = 0;
  TESSERA_CUDA_TRY(CheckDriver(driver->api.cuDeviceGet(&handle, device), "cuDeviceGet"));
  CUuuid uuid = {};
  TESSERA_CUDA_TRY(CheckDriver(driver->api.cuDeviceGetUuid_v2(&uuid, handle), "cuDeviceGetUuid"));
  std::string text = "GPU";
  for (size_t i = 0; i < sizeof uuid.bytes; ++i) {
    char byte[4];
    const bool begins_group = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
    snprintf(byte, sizeof byte, "%s%02x", begins_group ? "-" : "",
             static_cast<unsigned>(static_cast<unsigned char>(uuid.bytes[i])));
    text += byte;
  }
  snprintf(id, static_cast<size_t>(size), "%s", text.c_str());
  return TESSERA_OK;
}

void DescribeLibraries(tessera_context* context, char* text, int32_t size) {
  const int version = GetDriver().version;
  std::string line = "CUDA driver " + std::to_string(version / 1000) + "." +
                     std::to_string(version % 1000 / 10) + "; " + DescribeNccl();
  if (context->MakeCurrent() == TESSERA_OK) line += "; " + DescribeCublasLt(context);
  snprintf(text, static_cast<size_t>(size), "%s", line.c_str());
}

int ModuleLoad(tessera_context* context, const void* image, int64_t bytes,
               tessera_module** module) {
  std::shared_ptr<LoadedModule> code;
  TESSERA_CUDA_TRY(LoadedModule::Load(context, image, bytes, &code));
  *module = new tessera_module{std::move(code)};
  return TESSERA_OK;
}

template <class T>
void Delete(T* handle) {
  delete handle;
}

constexpr tessera_device_api kApi = {
    .version = TESSERA_DEVICE_API_VERSION,
    .kind = "gpu",
    .error_text = ErrorText,
    .device_count = DeviceCount,
    .device_id = DeviceId,
    .open = tessera_context::Open,
    .close = Delete<tessera_context>,
    .info = [](tessera_context* context, tessera_device_info* info) { return context->Info(info); },
    .describe_libraries = DescribeLibraries,
    .allocate = Allocate,
    .free = Free,
    .allocate_host = AllocateHost,
    .free_host = FreeHost,
    .stream_create =
        [](tessera_context* context, int32_t high_priority, tessera_stream** stream) {
          return tessera_stream::Create(context, high_priority != 0, stream);
        },
    .stream_destroy = Delete<tessera_stream>,
    .event_create = tessera_event::Create,
    .event_destroy = Delete<tessera_event>,
    .event_record = [](tessera_event* event,
                       tessera_stream* stream) { return event->Record(stream); },
    .stream_wait = [](tessera_stream* stream,
                      tessera_event* event) { return event->MakeStreamWait(stream); },
    .event_query = [](tessera_event* event) { return event->Query(); },
    .copy_to_device = CopyToDevice,
    .copy_to_host = CopyToHost,
    .copy = Copy,
    .fill_zero = FillZero,
    .module_load = ModuleLoad,
    .module_unload = Delete<tessera_module>,
    .launch =
        [](tessera_stream* stream, tessera_module* module, const char* function,
           const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
           const uint64_t* args, int32_t num_args) {
          return module->Launch(stream, function, grid, block, shared_bytes, args, num_args);
        },
    .graph_begin = tessera_graph::Begin,
    .graph_end = tessera_graph::End,
    .graph_destroy = Delete<tessera_graph>,
    .graph_launch = [](tessera_stream* stream,
                       tessera_graph* graph) { return graph->Launch(stream); },
    .matmul_plan =
        [](tessera_context* context, const tessera_matmul_shape* shape, tessera_matmul** matmul,
           int64_t* scratch_bytes) {
          return tessera_matmul::Plan(context, *shape, matmul, scratch_bytes);
        },
    .matmul_destroy = Delete<tessera_matmul>,
    .matmul_run = [](tessera_stream* stream, tessera_matmul* matmul, uint64_t a, uint64_t b,
                     uint64_t c,
                     uint64_t scratch) { return matmul->Run(stream, a, b, c, scratch); },
    .comm_id = tessera_comm::MakeId,
    .comm_create =
        [](tessera_context* context, const tessera_comm_id* id, int32_t num_ranks, int32_t rank,
           tessera_comm** comm) {
          return tessera_comm::Create(context, *id, num_ranks, rank, comm);
        },
    .comm_ready = [](tessera_comm* comm) { return comm->CheckReady(); },
    .comm_error = [](tessera_comm* comm) { return comm->CheckError(); },
    .comm_abort = [](tessera_comm* comm) { return comm->Abort(); },
    .comm_destroy = Delete<tessera_comm>,
    .collective = [](tessera_comm* comm, tessera_stream* stream,
                     const tessera_collective* what) { return comm->Enqueue(stream, *what); },
    .monitor_open = tessera_monitor::Open,
    .monitor_close = Delete<tessera_monitor>,
    .monitor_read =
        [](tessera_monitor* monitor, int32_t device, int (*is_ours)(int32_t pid),
           tessera_device_reading* reading) { return monitor->Read(device, is_ours, reading); },
    .monitor_wait = [](tessera_monitor* monitor, int32_t timeout_ms, int32_t* device,
                       int64_t* code) { return monitor->Wait(timeout_ms, device, code); },
};

}  // namespace
}  // namespace tessera::worker::cuda

// The symbol has the name of a type, so the function needs another name in C++.
extern "C" __attribute__((visibility("default"))) const tessera_device_api* PluginEntry(
    uint32_t version) asm("tessera_device_api");

const tessera_device_api* PluginEntry(uint32_t version) {
  return version == TESSERA_DEVICE_API_VERSION ? &tessera::worker::cuda::kApi : nullptr;
}
