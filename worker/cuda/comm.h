// Communicators by NCCL, which is opened by the first call that needs it.
//
// TESSERA_CUDA_NCCL names another library than libnccl.so.2, for tests.
//
// Communicators are non-blocking. A call that NCCL has not finished returns TESSERA_NOT_READY, and
// nothing else may be enqueued on the stream or the communicator before CheckReady returns
// TESSERA_OK.
// After the first failure, every call of a communicator returns that failure. Abort frees NCCL's
// resources.
//
// Reductions have NCCL's own order, which is the same on every rank. NCCL has no max and min that
// keep a NaN, and no bitwise operations. Max and min of floats, and bitwise reductions of integers,
// return TESSERA_UNSUPPORTED; the caller should gather and reduce instead. Bools are bytes of 0 and
// 1. The "and" of bools is computed as a min, and the "or" and the sum as a max.
//
// Thread-compatible, except that any thread may call CheckError and Abort at any time. The
// collectives of one device's communicators must be enqueued on one stream, or ordered by events,
// in the same way on every rank.
#pragma once
#include <functional>
#include <mutex>
#include <string>

#include "worker/cuda/nccl_api.h"
#include "worker/cuda/stream.h"
#include "worker/device/device_api.h"

namespace tessera::worker::cuda {

struct Nccl {
  NcclApi api;
  int version = 0;
};

// Returns TESSERA_UNSUPPORTED, with the reason, if there is no NCCL or it is too old.
int OpenNccl(const Nccl** nccl);

// Opens NCCL. Returns "NCCL 2.28.9" for example or, if there is none, why and what it means.
std::string DescribeNccl();

}  // namespace tessera::worker::cuda

struct tessera_comm {
 public:
  static int MakeId(tessera_comm_id* id);
  static int Create(tessera_context* context, const tessera_comm_id& id, int32_t num_ranks,
                    int32_t rank, tessera_comm** comm);
  ~tessera_comm();

  // Returns TESSERA_OK if the communicator is ready for a collective, TESSERA_NOT_READY while a
  // call is in progress, and otherwise the code of the failure.
  int CheckReady();
  // Returns TESSERA_OK unless the communicator has failed. Does not wait for another call.
  int CheckError();
  int Abort();

  // Enqueues one collective, if the communicator is ready for it.
  int Enqueue(tessera_stream* stream, const tessera_collective& collective);

 private:
  using ncclResult_t = tessera::worker::cuda::ncclResult_t;
  tessera_comm(tessera_context* context, const tessera::worker::cuda::Nccl& nccl, int32_t num_ranks,
               int32_t rank)
      : context_(context), nccl_(nccl), num_ranks_(num_ranks), rank_(rank) {}

  // Makes the NCCL calls of `collective`, with blocks of `count` elements of `type`.
  ncclResult_t CallNccl(tessera::worker::cuda::CUstream stream,
                        const tessera_collective& collective, int64_t count, int64_t block_bytes,
                        tessera::worker::cuda::ncclDataType_t type,
                        tessera::worker::cuda::ncclRedOp_t op);
  // Returns the code for NCCL's result of `call`. Records a failure, or that the call is in
  // progress.
  int RecordResult(ncclResult_t result, const char* call);
  // Records the failure that all later calls return.
  int FailCommunicator(int code, ncclResult_t result, const char* call);
  int CheckReadyLocked();
  // Makes the NCCL calls in `calls` as one NCCL group.
  ncclResult_t CallAsGroup(const std::function<ncclResult_t()>& calls);

  tessera_context* const context_;
  const tessera::worker::cuda::Nccl& nccl_;
  const int32_t num_ranks_;
  const int32_t rank_;

  // Guards the members that follow. No call that is made under it blocks.
  std::mutex mutex_;
  tessera::worker::cuda::ncclComm_t comm_ = nullptr;
  const char* pending_call_ = nullptr;  // the name of the call in progress, or null
  int failure_code_ = TESSERA_OK;       // the code of the first failure
  std::string failure_text_;
};
