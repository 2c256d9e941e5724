// Compiles only if our declarations agree with NVIDIA's headers. It checks values and sizes, and
// for every function the number of parameters and how each is passed. It is built wherever the
// toolkit's headers are installed.
#include "worker/cuda/abi_check.h"

#include <cublasLt.h>
#include <cuda.h>
#include <nccl.h>

#include <cstddef>

#include "worker/cuda/cublaslt_api.h"
#include "worker/cuda/driver_api.h"
#include "worker/cuda/nccl_api.h"

#if CUDA_VERSION < 13000
// This result was in the table of the runtime API only.
constexpr auto CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER = cudaErrorCallRequiresNewerDriver;
#endif

namespace tessera::worker::cuda {
namespace {

#define TESSERA_X(name, params) \
  static_assert(SameCall<decltype(DriverApi::name), decltype(&::name)>::value, #name);
TESSERA_CUDA_DRIVER_FUNCTIONS(TESSERA_X)
TESSERA_CUDA_DRIVER_OPTIONAL_FUNCTIONS(TESSERA_X)
#undef TESSERA_X
#define TESSERA_X(result, name, params) \
  static_assert(SameCall<decltype(NcclApi::name), decltype(&::name)>::value, #name);
TESSERA_NCCL_FUNCTIONS(TESSERA_X)
TESSERA_NCCL_OPTIONAL_FUNCTIONS(TESSERA_X)
#undef TESSERA_X
#define TESSERA_X(result, name, params) \
  static_assert(SameCall<decltype(CublasLtApi::name), decltype(&::name)>::value, #name);
TESSERA_CUBLASLT_FUNCTIONS(TESSERA_X)
#undef TESSERA_X

#define TESSERA_X(name, value) TESSERA_SAME(name);
TESSERA_CUDA_RESULTS(TESSERA_X)
TESSERA_CUDA_DEVICE_ATTRIBUTES(TESSERA_X)
TESSERA_NCCL_RESULTS(TESSERA_X)
TESSERA_NCCL_DATA_TYPES(TESSERA_X)
TESSERA_CUBLAS_STATUSES(TESSERA_X)
#undef TESSERA_X
static_assert(CUDA_ERROR_INSUFFICIENT_DRIVER ==
              static_cast<CUresult>(::cudaErrorInsufficientDriver));
TESSERA_SAME(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
TESSERA_SAME(CU_JIT_ERROR_LOG_BUFFER);
TESSERA_SAME(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
TESSERA_SAME(CU_STREAM_CAPTURE_MODE_GLOBAL);
TESSERA_SAME(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
TESSERA_SAME(CU_STREAM_CAPTURE_MODE_RELAXED);
TESSERA_SAME(CU_STREAM_NON_BLOCKING);
TESSERA_SAME(CU_EVENT_DEFAULT);
TESSERA_SAME(CU_EVENT_DISABLE_TIMING);

TESSERA_SAME(ncclSum);
TESSERA_SAME(ncclProd);
TESSERA_SAME(ncclMax);
TESSERA_SAME(ncclMin);
static_assert(sizeof(ncclUniqueId) == sizeof(::ncclUniqueId));
// NcclConfig is a prefix of ncclConfig_t.
static_assert(sizeof(NcclConfig) <= sizeof(::ncclConfig_t));
static_assert(offsetof(NcclConfig, size) == offsetof(::ncclConfig_t, size));
static_assert(offsetof(NcclConfig, magic) == offsetof(::ncclConfig_t, magic));
static_assert(offsetof(NcclConfig, version) == offsetof(::ncclConfig_t, version));
static_assert(offsetof(NcclConfig, blocking) == offsetof(::ncclConfig_t, blocking));
static_assert(offsetof(NcclConfig, cga_cluster_size) == offsetof(::ncclConfig_t, cgaClusterSize));
static_assert(offsetof(NcclConfig, min_ctas) == offsetof(::ncclConfig_t, minCTAs));
static_assert(offsetof(NcclConfig, max_ctas) == offsetof(::ncclConfig_t, maxCTAs));
static_assert(offsetof(NcclConfig, net_name) == offsetof(::ncclConfig_t, netName));
static_assert(offsetof(NcclConfig, split_share) == offsetof(::ncclConfig_t, splitShare));
constexpr ::ncclConfig_t kInitial = NCCL_CONFIG_INITIALIZER;
static_assert(NcclConfig().magic == kInitial.magic);
static_assert(NcclConfig().blocking == kInitial.blocking);
static_assert(NcclConfig().cga_cluster_size == kInitial.cgaClusterSize);
static_assert(NcclConfig().min_ctas == kInitial.minCTAs);
static_assert(NcclConfig().max_ctas == kInitial.maxCTAs);
static_assert(NcclConfig().net_name == kInitial.netName);
static_assert(NcclConfig().split_share == kInitial.splitShare);

TESSERA_SAME(CUDA_R_32F);
TESSERA_SAME(CUDA_R_64F);
TESSERA_SAME(CUDA_R_16F);
TESSERA_SAME(CUDA_R_16BF);
TESSERA_SAME(CUBLAS_COMPUTE_32F);
TESSERA_SAME(CUBLAS_COMPUTE_64F);
TESSERA_SAME(CUBLAS_COMPUTE_32F_FAST_TF32);
TESSERA_SAME(CUBLAS_OP_N);
TESSERA_SAME(CUBLAS_OP_T);
TESSERA_SAME(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
TESSERA_SAME(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
TESSERA_SAME(CUBLASLT_MATMUL_DESC_TRANSA);
TESSERA_SAME(CUBLASLT_MATMUL_DESC_TRANSB);
TESSERA_SAME(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
TESSERA_SAME(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
TESSERA_SAME(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
TESSERA_SAME(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
TESSERA_SAME(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(::cublasLtMatmulAlgo_t));
static_assert(sizeof(cublasLtMatmulHeuristicResult_t) == sizeof(::cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize) ==
              offsetof(::cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(cublasLtMatmulHeuristicResult_t, state) ==
              offsetof(::cublasLtMatmulHeuristicResult_t, state));

}  // namespace
}  // namespace tessera::worker::cuda
