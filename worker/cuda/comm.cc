// Communicators and collectives of the plugin's table, by NCCL. plugin.cc enters them in the table.
// Communicators are non-blocking. worker/device/group_comms.cc polls them, so that a wait for a
// lost rank ends at a deadline.
#include "worker/cuda/comm.h"

#include <cinttypes>
#include <cstring>
#include <iterator>
#include <memory>
#include <utility>

#include "worker/cuda/error.h"
#include "worker/cuda/library.h"

namespace tessera::worker::cuda {
namespace {

// Opens NCCL and finds its functions. All problems end in TESSERA_UNSUPPORTED and never in a crash,
// because everything but collectives works without NCCL. A version that is too old is reported as
// such even if it lacks functions.
int Load(Nccl* nccl) {
  const Library library = Library::Open("TESSERA_CUDA_NCCL", {"libnccl.so.2"});
  if (!library.ok()) {
    return Fail(TESSERA_UNSUPPORTED,
                "no NCCL, so no collectives between GPUs: %s; install libnccl2, or put it on the "
                "library path",
                library.error().c_str());
  }
  const char* missing = nullptr;
#define TESSERA_X(result, function, params)                                  \
  nccl->api.function = library.Find<decltype(NcclApi::function)>(#function); \
  if (nccl->api.function == nullptr && missing == nullptr) missing = #function;
  TESSERA_NCCL_FUNCTIONS(TESSERA_X)
#undef TESSERA_X
#define TESSERA_X(result, function, params) \
  nccl->api.function = library.Find<decltype(NcclApi::function)>(#function);
  TESSERA_NCCL_OPTIONAL_FUNCTIONS(TESSERA_X)
#undef TESSERA_X
  if (missing == nullptr) {
    nccl->api.ncclGetVersion(&nccl->version);
    if (nccl->version < kNcclVersionRevoke) nccl->api.ncclCommRevoke = nullptr;
    if (nccl->version >= kNcclVersionMin) return TESSERA_OK;
  }
  const std::string what = missing != nullptr
                               ? std::string("it has no function ") + missing
                               : "it is version " + std::to_string(nccl->version / 10000) + "." +
                                     std::to_string(nccl->version % 10000 / 100);
  return Fail(TESSERA_UNSUPPORTED,
              "the NCCL in %s is too old: %s; install 2.18 or newer, without which there are no "
              "collectives between GPUs",
              library.name().c_str(), what.c_str());
}

LoadedOnce<Nccl, Load> the_nccl;

// An element of ours, seen as `width` elements of NCCL's `type`.
struct Element {
  ncclDataType_t type;
  int width, bytes;
};

bool IsFloating(tessera_dtype dtype) {
  return dtype == TESSERA_F16 || dtype == TESSERA_BF16 || dtype == TESSERA_F32 ||
         dtype == TESSERA_F64;
}

// The element of each dtype. If NCCL does not have the dtype, the type has the same size, so that
// data can be moved.
constexpr Element kElements[] = {
    /*bool*/ {ncclUint8, 1, 1},     /*s8*/ {ncclInt8, 1, 1},
    /*s16*/ {ncclUint8, 2, 2},
    /*s32*/ {ncclInt32, 1, 4},      /*s64*/ {ncclInt64, 1, 8},
    /*u8*/ {ncclUint8, 1, 1},
    /*u16*/ {ncclUint8, 2, 2},      /*u32*/ {ncclUint32, 1, 4},
    /*u64*/ {ncclUint64, 1, 8},
    /*f16*/ {ncclFloat16, 1, 2},    /*bf16*/ {ncclBfloat16, 1, 2},
    /*f32*/ {ncclFloat32, 1, 4},
    /*f64*/ {ncclFloat64, 1, 8},    /*c64*/ {ncclFloat32, 2, 8},
    /*c128*/ {ncclFloat64, 2, 16},
    /*f8e4m3fn*/ {ncclUint8, 1, 1}, /*f8e5m2*/ {ncclUint8, 1, 1},
};
static_assert(std::size(kElements) == TESSERA_F8E5M2 + 1);

int FindElement(const char* call, tessera_dtype dtype, Element* element) {
  if (dtype < TESSERA_BOOL || dtype > TESSERA_F8E5M2) {
    return Fail(TESSERA_INVALID, "%s: %d is not a dtype", call, dtype);
  }
  *element = kElements[dtype];
  return TESSERA_OK;
}

int Unsupported(const char* call, tessera_dtype dtype, tessera_reduce reduce, const char* why) {
  return Fail(TESSERA_UNSUPPORTED, "%s: reduction %d of dtype %d: %s; gather and reduce instead",
              call, reduce, dtype, why);
}

// Finds the element and the operation that reduce `dtype` by `reduce`.
int FindReduction(const char* call, tessera_dtype dtype, tessera_reduce reduce, Element* element,
                  ncclRedOp_t* op) {
  TESSERA_CUDA_TRY(FindElement(call, dtype, element));
  if (reduce < TESSERA_SUM || reduce > TESSERA_OR) {
    return Fail(TESSERA_INVALID, "%s: %d is not a reduction", call, reduce);
  }
  if (dtype == TESSERA_BOOL) {
    const bool is_and = reduce == TESSERA_AND || reduce == TESSERA_MIN || reduce == TESSERA_PROD;
    *op = is_and ? ncclMin : ncclMax;
    return TESSERA_OK;
  }
  const bool complex = element->width == 2 && (dtype == TESSERA_C64 || dtype == TESSERA_C128);
  const bool f8 = dtype == TESSERA_F8E4M3FN || dtype == TESSERA_F8E5M2;
  if (f8 || (element->width != 1 && !complex)) {
    return Unsupported(call, dtype, reduce, "NCCL does not compute with it");
  }
  switch (reduce) {
    case TESSERA_SUM:
      *op = ncclSum;
      return TESSERA_OK;
    case TESSERA_PROD:
      if (complex) return Unsupported(call, dtype, reduce, "NCCL has no complex product");
      *op = ncclProd;
      return TESSERA_OK;
    case TESSERA_MAX:
    case TESSERA_MIN:
      if (complex) return Unsupported(call, dtype, reduce, "complex numbers have no order");
      if (IsFloating(dtype)) return Unsupported(call, dtype, reduce, "NCCL's drops NaNs");
      *op = reduce == TESSERA_MAX ? ncclMax : ncclMin;
      return TESSERA_OK;
    default:
      break;
  }
  return Unsupported(call, dtype, reduce, "NCCL has no bitwise operations");
}

// Returns null for an unknown kind. The kinds of device_api.h have the order of the table.
const char* NameOf(tessera_collective_kind kind) {
  constexpr const char* kNames[] = {
#define TESSERA_COLLECTIVE_KIND(symbol, name, ...) name,
#include "base/collective_kinds.def"
#undef TESSERA_COLLECTIVE_KIND
  };
  return kind >= TESSERA_ALL_REDUCE && kind <= TESSERA_PERMUTE ? kNames[kind] : nullptr;
}

bool IsDoneOrInProgress(ncclResult_t result) {
  return result == ncclSuccess || result == ncclInProgress;
}

const void* In(uint64_t address) { return reinterpret_cast<const void*>(address); }
void* Out(uint64_t address) { return reinterpret_cast<void*>(address); }

}  // namespace

int OpenNccl(const Nccl** nccl) { return the_nccl.Get(nccl); }

std::string DescribeNccl() {
  const Nccl* nccl = nullptr;
  return OpenNccl(&nccl) == TESSERA_OK ? "NCCL " + VersionText(nccl->version) : ErrorText();
}

}  // namespace tessera::worker::cuda

// NOLINTNEXTLINE(google-build-using-namespace): the types of the C API are in no namespace.
using namespace tessera::worker::cuda;

int tessera_comm::MakeId(tessera_comm_id* id) {
  const Nccl* nccl = nullptr;
  TESSERA_CUDA_TRY(OpenNccl(&nccl));
  ncclUniqueId unique = {};
  const ncclResult_t result = nccl->api.ncclGetUniqueId(&unique);
  if (result != ncclSuccess) {
    return Fail(TESSERA_UNSUPPORTED,
                "comm_id: ncclGetUniqueId: %s; check the network interfaces "
                "(NCCL_SOCKET_IFNAME)",
                nccl->api.ncclGetErrorString(result));
  }
  static_assert(sizeof id->bytes == sizeof unique.internal);
  memcpy(id->bytes, unique.internal, sizeof id->bytes);
  return TESSERA_OK;
}

int tessera_comm::Create(tessera_context* context, const tessera_comm_id& id, int32_t num_ranks,
                         int32_t rank, tessera_comm** comm) {
  if (num_ranks < 1 || rank < 0 || rank >= num_ranks) {
    return Fail(TESSERA_INVALID, "comm_create: rank %d of %d; expected one from 0 to %d", rank,
                num_ranks, num_ranks - 1);
  }
  TESSERA_CUDA_TRY(context->MakeCurrent());
  context->Reap();
  const Nccl* nccl = nullptr;
  TESSERA_CUDA_TRY(OpenNccl(&nccl));
  std::unique_ptr<tessera_comm> created(new tessera_comm(context, *nccl, num_ranks, rank));
  NcclConfig config;
  config.blocking = 0;
  ncclUniqueId unique;
  memcpy(unique.internal, id.bytes, sizeof unique.internal);
  const ncclResult_t result =
      nccl->api.ncclCommInitRankConfig(&created->comm_, num_ranks, unique, rank, &config);
  const int code = created->RecordResult(result, "ncclCommInitRank");
  if (code != TESSERA_OK && code != TESSERA_NOT_READY) return code;
  *comm = created.release();
  return code;
}

tessera_comm::~tessera_comm() {
  if (comm_ == nullptr || context_->MakeCurrent() != TESSERA_OK) return;
  const NcclApi& nccl = nccl_.api;
  // A failed communicator is revoked, which stops it at once. An older NCCL cannot do that, so
  // there a failed communicator that was not aborted is left until the process ends. A communicator
  // without a failure ends when its work has ended and the other ranks end theirs. This destructor
  // waits for nothing.
  if (failure_code_ != TESSERA_OK && nccl.ncclCommRevoke == nullptr) return;
  const bool failed = failure_code_ != TESSERA_OK;
  context_->PollLater([&nccl, comm = comm_, failed, ending = false]() mutable {
    ncclResult_t state = ncclSuccess;
    if (nccl.ncclCommGetAsyncError(comm, &state) != ncclSuccess) return true;
    if (state == ncclInProgress) return false;
    // The communicator failed while it ended. Only an abort, which may block, would free it.
    if (ending && state != ncclSuccess) return true;
    if (!ending) {
      ending = true;
      const ncclResult_t result =
          failed ? nccl.ncclCommRevoke(comm, /*flags=*/0) : nccl.ncclCommFinalize(comm);
      if (result == ncclInProgress) return false;
    }
    nccl.ncclCommDestroy(comm);
    return true;
  });
}

int tessera_comm::FailCommunicator(int code, ncclResult_t result, const char* call) {
  const char* detail = nccl_.api.ncclGetLastError(comm_);
  failure_code_ =
      Fail(code, "%s, rank %d of %d: %s%s%s", call, rank_, num_ranks_,
           nccl_.api.ncclGetErrorString(result), detail != nullptr && *detail != '\0' ? ": " : "",
           detail != nullptr ? detail : "");
  failure_text_ = ErrorText();
  pending_call_ = nullptr;
  return failure_code_;
}

// Turns NCCL's result into a code, and records it. A call in progress is recorded by its name, for
// errors. A failure stays recorded, because NCCL's communicator is unusable after it. If the driver
// reports that the device's context is lost, that error wins, as it says more than NCCL's.
int tessera_comm::RecordResult(ncclResult_t result, const char* call) {
  switch (result) {
    case ncclSuccess:
      pending_call_ = nullptr;
      return TESSERA_OK;
    case ncclInProgress:
      pending_call_ = call;
      return TESSERA_NOT_READY;
    case ncclInvalidArgument:
    case ncclInvalidUsage:
      // NCCL's communicator cannot be used after these errors either.
      return FailCommunicator(TESSERA_INVALID, result, call);
    case ncclUnhandledCudaError: {
      // If the context is lost, the driver's error says more than NCCL's.
      const CUresult state = Cu().cuStreamQuery(nullptr);
      if (IsSticky(state)) {
        failure_code_ = context_->Check(state, call);
        failure_text_ = ErrorText();
        return failure_code_;
      }
      return FailCommunicator(TESSERA_PEER, result, call);
    }
    default:
      return FailCommunicator(TESSERA_PEER, result, call);
  }
}

int tessera_comm::CheckReady() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return CheckReadyLocked();
}

int tessera_comm::CheckError() {
  const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return TESSERA_OK;  // the other call will find the failure
  const int code = CheckReadyLocked();
  return code == TESSERA_NOT_READY ? TESSERA_OK : code;
}

int tessera_comm::CheckReadyLocked() {
  TESSERA_CUDA_TRY(context_->MakeCurrent());
  if (failure_code_ != TESSERA_OK) return Fail(failure_code_, "%s", failure_text_.c_str());
  ncclResult_t state = ncclSuccess;
  const ncclResult_t result = nccl_.api.ncclCommGetAsyncError(comm_, &state);
  if (result != ncclSuccess) return RecordResult(result, "ncclCommGetAsyncError");
  return RecordResult(state, pending_call_ != nullptr ? pending_call_ : "a collective under way");
}

int tessera_comm::Abort() {
  TESSERA_CUDA_TRY(context_->MakeCurrent());
  ncclComm_t aborted = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (comm_ == nullptr) return TESSERA_OK;
    aborted = std::exchange(comm_, nullptr);
    if (failure_code_ == TESSERA_OK) {
      failure_code_ = TESSERA_PEER;
      failure_text_ = "the communicator was aborted; make a new one";
    }
  }
  const ncclResult_t result = nccl_.api.ncclCommAbort(aborted);
  if (IsDoneOrInProgress(result)) return TESSERA_OK;
  return Fail(TESSERA_PEER, "ncclCommAbort, rank %d of %d: %s; end the process", rank_, num_ranks_,
              nccl_.api.ncclGetErrorString(result));
}

ncclResult_t tessera_comm::CallAsGroup(const std::function<ncclResult_t()>& calls) {
  const NcclApi& nccl = nccl_.api;
  const ncclResult_t start = nccl.ncclGroupStart();
  if (start != ncclSuccess) return start;
  const ncclResult_t inside = calls();
  const ncclResult_t end = nccl.ncclGroupEnd();
  return IsDoneOrInProgress(inside) ? end : inside;
}

// Checks a collective and enqueues it. Wrong arguments are refused before NCCL sees them, because
// an error of NCCL would end the communicator. A communicator whose last call is still in progress
// refuses the collective; the caller must poll CheckReady first.
int tessera_comm::Enqueue(tessera_stream* stream, const tessera_collective& collective) {
  const char* const name = NameOf(collective.kind);
  if (name == nullptr) return Fail(TESSERA_INVALID, "%d is not a collective", collective.kind);
  Element element = {};
  ncclRedOp_t op = ncclSum;
  if (collective.kind == TESSERA_ALL_REDUCE || collective.kind == TESSERA_REDUCE_SCATTER) {
    TESSERA_CUDA_TRY(FindReduction(name, collective.dtype, collective.reduce, &element, &op));
  } else {
    TESSERA_CUDA_TRY(FindElement(name, collective.dtype, &element));
  }
  for (const int32_t peer : {collective.target, collective.source}) {
    if (collective.kind != TESSERA_PERMUTE || (peer >= -1 && peer < num_ranks_)) continue;
    return Fail(TESSERA_INVALID, "%s: peer %d; expected -1 or a rank below %d", name, peer,
                num_ranks_);
  }
  if (collective.elements < 0) {
    return Fail(TESSERA_INVALID, "%s: %" PRId64 " elements; expected at least 0", name,
                collective.elements);
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  const char* const pending_call = pending_call_;
  const int ready = CheckReadyLocked();
  if (ready == TESSERA_NOT_READY) {
    return Fail(TESSERA_INVALID, "%s: %s is still under way; ask comm_ready first", name,
                pending_call != nullptr ? pending_call : "a call");
  }
  TESSERA_CUDA_TRY(ready);
  return RecordResult(CallNccl(stream->get(), collective, collective.elements * element.width,
                               collective.elements * element.bytes, element.type, op),
                      name);
}

// Makes the NCCL calls of a collective. NCCL has no all-to-all, no permute, and no blocks in
// another order than that of its ranks. These are groups of sends, receives and reductions to one
// rank, which NCCL runs at the same time. Without a group, ranks that all send first would wait for
// each other for ever.
ncclResult_t tessera_comm::CallNccl(CUstream stream, const tessera_collective& collective,
                                    int64_t count, int64_t block_bytes, ncclDataType_t type,
                                    ncclRedOp_t op) {
  const NcclApi& nccl = nccl_.api;
  const auto send = [&](uint64_t from, int peer) {
    return nccl.ncclSend(In(from), count, type, peer, comm_, stream);
  };
  const auto receive = [&](uint64_t to, int peer) {
    return nccl.ncclRecv(Out(to), count, type, peer, comm_, stream);
  };
  const auto rank_at = [&](int position) {
    return collective.order == nullptr ? position : collective.order[position];
  };
  // Makes a group of the calls for all positions.
  const auto for_all = [&](const std::function<ncclResult_t(int position)>& call) {
    return CallAsGroup([&] {
      ncclResult_t result = ncclSuccess;
      for (int p = 0; p < num_ranks_ && IsDoneOrInProgress(result); ++p) result = call(p);
      return result;
    });
  };
  switch (collective.kind) {
    case TESSERA_ALL_REDUCE:
      return nccl.ncclAllReduce(In(collective.in), Out(collective.out), count, type, op, comm_,
                                stream);
    case TESSERA_ALL_GATHER:
      if (collective.order == nullptr)
        return nccl.ncclAllGather(In(collective.in), Out(collective.out), count, type, comm_,
                                  stream);
      return for_all([&](int position) {
        const ncclResult_t result = send(collective.in, rank_at(position));
        return IsDoneOrInProgress(result)
                   ? receive(collective.out + position * block_bytes, rank_at(position))
                   : result;
      });
    case TESSERA_REDUCE_SCATTER:
      if (collective.order == nullptr)
        return nccl.ncclReduceScatter(In(collective.in), Out(collective.out), count, type, op,
                                      comm_, stream);
      return for_all([&](int position) {
        const int root = rank_at(position);
        return nccl.ncclReduce(In(collective.in + position * block_bytes),
                               root == rank_ ? Out(collective.out) : nullptr, count, type, op, root,
                               comm_, stream);
      });
    case TESSERA_ALL_TO_ALL:
      return for_all([&](int position) {
        const ncclResult_t result = send(collective.in + position * block_bytes, rank_at(position));
        return IsDoneOrInProgress(result)
                   ? receive(collective.out + position * block_bytes, rank_at(position))
                   : result;
      });
    default:  // the kind is TESSERA_PERMUTE
      return CallAsGroup([&] {
        ncclResult_t result =
            collective.target == -1 ? ncclSuccess : send(collective.in, rank_at(collective.target));
        if (collective.source != -1 && IsDoneOrInProgress(result))
          result = receive(collective.out, rank_at(collective.source));
        return result;
      });
  }
}
