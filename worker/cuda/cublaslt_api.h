// The part of cuBLASLt that we use: types, constants and the table of entry points that matmul.cc
// fills in. We declare it ourselves, so that the plugin builds on any machine.
//
// This is the ABI of cublasLt.h 13.1, which is the same in 12.x. abi_check.cc compares it with the
// real header where there is one. Names are NVIDIA's, in our namespace.
#pragma once
#include <cstddef>
#include <cstdint>

#include "worker/cuda/driver_api.h"

namespace tessera::worker::cuda {

struct cublasLtContext;
struct cublasLtMatrixLayoutOpaque_t;
struct cublasLtMatmulDescOpaque_t;
struct cublasLtMatmulPreferenceOpaque_t;

using cublasStatus_t = uint32_t;
using cublasLtHandle_t = cublasLtContext*;
using cublasLtMatrixLayout_t = cublasLtMatrixLayoutOpaque_t*;
using cublasLtMatmulDesc_t = cublasLtMatmulDescOpaque_t*;
using cublasLtMatmulPreference_t = cublasLtMatmulPreferenceOpaque_t*;

// Each row is X(name, value).
// clang-format off
#define TESSERA_CUBLAS_STATUSES(X)                                                                \
  X(CUBLAS_STATUS_SUCCESS, 0)                                                                     \
  X(CUBLAS_STATUS_NOT_INITIALIZED, 1)                                                             \
  X(CUBLAS_STATUS_ALLOC_FAILED, 3)                                                                \
  X(CUBLAS_STATUS_INVALID_VALUE, 7)                                                               \
  X(CUBLAS_STATUS_ARCH_MISMATCH, 8)                                                               \
  X(CUBLAS_STATUS_EXECUTION_FAILED, 13)                                                           \
  X(CUBLAS_STATUS_INTERNAL_ERROR, 14)                                                             \
  X(CUBLAS_STATUS_NOT_SUPPORTED, 15)
// clang-format on
enum : cublasStatus_t {
#define TESSERA_X(name, value) name = value,
  TESSERA_CUBLAS_STATUSES(TESSERA_X)
#undef TESSERA_X
};

enum cudaDataType : uint32_t {
  CUDA_R_32F = 0,
  CUDA_R_64F = 1,
  CUDA_R_16F = 2,
  CUDA_R_16BF = 14,
};

enum cublasComputeType_t : uint32_t {
  CUBLAS_COMPUTE_32F = 68,
  CUBLAS_COMPUTE_64F = 70,
  CUBLAS_COMPUTE_32F_FAST_TF32 = 77,
};

enum cublasOperation_t : int32_t { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 };

enum cublasLtMatrixLayoutAttribute_t : uint32_t {
  CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5,           // int32_t
  CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 6,  // int64_t, in elements
};

enum cublasLtMatmulDescAttributes_t : uint32_t {
  CUBLASLT_MATMUL_DESC_TRANSA = 3,  // int32_t
  CUBLASLT_MATMUL_DESC_TRANSB = 4,  // int32_t
};

enum cublasLtMatmulPreferenceAttributes_t : uint32_t {
  CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,    // uint64_t
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5,  // uint32_t, like the next three
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES = 6,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES = 7,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES = 8,
};

struct cublasLtMatmulAlgo_t {
  uint64_t data[8];
};

struct cublasLtMatmulHeuristicResult_t {
  cublasLtMatmulAlgo_t algo;
  size_t workspaceSize;
  cublasStatus_t state;
  float wavesCount;
  int reserved[4];
};

// Every function of cuBLASLt that we call. Each row is X(result, symbol, parameters).
// clang-format off
#define TESSERA_CUBLASLT_FUNCTIONS(X)                                                             \
  X(size_t, cublasLtGetVersion, ())                                                               \
  X(const char*, cublasLtGetStatusString, (cublasStatus_t status))                                \
  X(cublasStatus_t, cublasLtCreate, (cublasLtHandle_t* handle))                                   \
  X(cublasStatus_t, cublasLtDestroy, (cublasLtHandle_t handle))                                   \
  X(cublasStatus_t, cublasLtMatrixLayoutCreate, (cublasLtMatrixLayout_t* layout,                  \
                                                 cudaDataType type, uint64_t rows, uint64_t cols, \
                                                 int64_t ld))                                     \
  X(cublasStatus_t, cublasLtMatrixLayoutDestroy, (cublasLtMatrixLayout_t layout))                 \
  X(cublasStatus_t, cublasLtMatrixLayoutSetAttribute, (cublasLtMatrixLayout_t layout,             \
                                                       cublasLtMatrixLayoutAttribute_t attribute, \
                                                       const void* value, size_t bytes))          \
  X(cublasStatus_t, cublasLtMatmulDescCreate, (cublasLtMatmulDesc_t* desc,                        \
                                               cublasComputeType_t compute, cudaDataType scale))  \
  X(cublasStatus_t, cublasLtMatmulDescDestroy, (cublasLtMatmulDesc_t desc))                       \
  X(cublasStatus_t, cublasLtMatmulDescSetAttribute, (cublasLtMatmulDesc_t desc,                   \
                                                     cublasLtMatmulDescAttributes_t attribute,    \
                                                     const void* value, size_t bytes))            \
  X(cublasStatus_t, cublasLtMatmulPreferenceCreate, (cublasLtMatmulPreference_t* preference))     \
  X(cublasStatus_t, cublasLtMatmulPreferenceDestroy, (cublasLtMatmulPreference_t preference))     \
  X(cublasStatus_t, cublasLtMatmulPreferenceSetAttribute,                                         \
    (cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,       \
     const void* value, size_t bytes))                                                            \
  X(cublasStatus_t, cublasLtMatmulAlgoGetHeuristic,                                               \
    (cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,                \
     cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,                \
     cublasLtMatmulPreference_t preference, int num_requested,                                    \
     cublasLtMatmulHeuristicResult_t* results, int* num_results))                                 \
  X(cublasStatus_t, cublasLtMatmul,                                                               \
    (cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,        \
     cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,             \
     const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,                   \
     cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo, void* workspace,          \
     size_t workspace_bytes, CUstream stream))
// clang-format on

struct CublasLtApi {
#define TESSERA_X(result, name, params) result(*name) params = nullptr;
  TESSERA_CUBLASLT_FUNCTIONS(TESSERA_X)
#undef TESSERA_X
};

}  // namespace tessera::worker::cuda
