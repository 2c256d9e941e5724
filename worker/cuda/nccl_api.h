// The part of NCCL that we use: types, constants and the table of entry points that comm.cc fills
// in. We declare it ourselves, so that the plugin builds on any machine.
//
// This is the ABI of nccl.h 2.28.9 (NCCL_VERSION_CODE 22809). abi_check.cc compares it with the
// real header where there is one. Names are NCCL's, in our namespace.
#pragma once
#include <climits>
#include <cstddef>
#include <cstdint>

#include "worker/cuda/driver_api.h"

namespace tessera::worker::cuda {

struct ncclComm;

using ncclResult_t = uint32_t;
using ncclComm_t = ncclComm*;

struct ncclUniqueId {
  char internal[128];
};

// Each row is X(name, value).
// clang-format off
#define TESSERA_NCCL_RESULTS(X)                                                                   \
  X(ncclSuccess, 0)                                                                               \
  X(ncclUnhandledCudaError, 1)                                                                    \
  X(ncclSystemError, 2)                                                                           \
  X(ncclInternalError, 3)                                                                         \
  X(ncclInvalidArgument, 4)                                                                       \
  X(ncclInvalidUsage, 5)                                                                          \
  X(ncclRemoteError, 6)                                                                           \
  X(ncclInProgress, 7)
// clang-format on
enum : ncclResult_t {
#define TESSERA_X(name, value) name = value,
  TESSERA_NCCL_RESULTS(TESSERA_X)
#undef TESSERA_X
};

enum ncclRedOp_t : uint32_t { ncclSum = 0, ncclProd = 1, ncclMax = 2, ncclMin = 3 };

// Each row is X(name, value).
// clang-format off
#define TESSERA_NCCL_DATA_TYPES(X)                                                                \
  X(ncclInt8, 0)                                                                                  \
  X(ncclUint8, 1)                                                                                 \
  X(ncclInt32, 2)                                                                                 \
  X(ncclUint32, 3)                                                                                \
  X(ncclInt64, 4)                                                                                 \
  X(ncclUint64, 5)                                                                                \
  X(ncclFloat16, 6)                                                                               \
  X(ncclFloat32, 7)                                                                               \
  X(ncclFloat64, 8)                                                                               \
  X(ncclBfloat16, 9)
// clang-format on
enum ncclDataType_t : uint32_t {
#define TESSERA_X(name, value) name = value,
  TESSERA_NCCL_DATA_TYPES(TESSERA_X)
#undef TESSERA_X
};

// The first fields of ncclConfig_t, as in NCCL 2.18. NCCL reads `size` bytes and gives all other
// fields their defaults, so that older and newer libraries both accept it.
struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  unsigned int magic = 0xcafebeef;
  unsigned int version = 21800;
  int blocking = INT_MIN;
  int cga_cluster_size = INT_MIN;
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
};

// The oldest library that accepts NcclConfig, and the first one that has ncclCommRevoke.
inline constexpr int kNcclVersionMin = 21800;
inline constexpr int kNcclVersionRevoke = 22807;

// Every function of NCCL that we call. Each row is X(result, symbol, parameters).
// clang-format off
#define TESSERA_NCCL_FUNCTIONS(X)                                                                 \
  X(ncclResult_t, ncclGetVersion, (int* version))                                                 \
  X(ncclResult_t, ncclGetUniqueId, (ncclUniqueId* id))                                            \
  X(ncclResult_t, ncclCommInitRankConfig, (ncclComm_t* comm, int num_ranks, ncclUniqueId id,      \
                                           int rank, NcclConfig* config))                         \
  X(ncclResult_t, ncclCommFinalize, (ncclComm_t comm))                                            \
  X(ncclResult_t, ncclCommDestroy, (ncclComm_t comm))                                             \
  X(ncclResult_t, ncclCommAbort, (ncclComm_t comm))                                               \
  X(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t* error))                  \
  X(const char*, ncclGetErrorString, (ncclResult_t result))                                       \
  X(const char*, ncclGetLastError, (ncclComm_t comm))                                             \
  X(ncclResult_t, ncclGroupStart, ())                                                             \
  X(ncclResult_t, ncclGroupEnd, ())                                                               \
  X(ncclResult_t, ncclAllReduce, (const void* in, void* out, size_t count, ncclDataType_t type,   \
                                  ncclRedOp_t op, ncclComm_t comm, CUstream stream))              \
  X(ncclResult_t, ncclAllGather, (const void* in, void* out, size_t count, ncclDataType_t type,   \
                                  ncclComm_t comm, CUstream stream))                              \
  X(ncclResult_t, ncclReduceScatter, (const void* in, void* out, size_t count,                    \
                                      ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,       \
                                      CUstream stream))                                           \
  X(ncclResult_t, ncclReduce, (const void* in, void* out, size_t count, ncclDataType_t type,      \
                               ncclRedOp_t op, int root, ncclComm_t comm, CUstream stream))       \
  X(ncclResult_t, ncclSend, (const void* in, size_t count, ncclDataType_t type, int peer,         \
                             ncclComm_t comm, CUstream stream))                                   \
  X(ncclResult_t, ncclRecv, (void* out, size_t count, ncclDataType_t type, int peer,              \
                             ncclComm_t comm, CUstream stream))

// Functions that are null in the table if the library is older.
#define TESSERA_NCCL_OPTIONAL_FUNCTIONS(X)                                                        \
  X(ncclResult_t, ncclCommRevoke, (ncclComm_t comm, int flags))
// clang-format on

struct NcclApi {
#define TESSERA_X(result, name, params) result(*name) params = nullptr;
  TESSERA_NCCL_FUNCTIONS(TESSERA_X)
  TESSERA_NCCL_OPTIONAL_FUNCTIONS(TESSERA_X)
#undef TESSERA_X
};

}  // namespace tessera::worker::cuda
