// Implements the functions of NCCL that the plugin calls, on the streams of the fake driver.
//
// Data moves between ranks that are threads or processes. Reductions combine in the order of the
// ranks, and give the bits of worker/collectives/reduce.h. An operation that cannot go on waits on
// its stream until the communicator is aborted, and ncclCommGetAsyncError gives the reason. NCCL
// does the same.
//
// Mistakes that NCCL leaves to its users are violations here: to use a communicator from two
// threads at once, before it is ready or after it has ended; to make calls that wait inside a
// group; to use operations that differ between ranks in kind, order, count, dtype or reduction,
// that wait for one another, or that run at the same time on one communicator; and to pass memory
// that is not the device's.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/fakes/extension.h"
#include "tests/fakes/keep.h"
#include "tests/fakes/nccl_comm.h"
#include "tests/fakes/nccl_segment.h"

namespace tessera::fakes {
namespace {

size_t WidthOf(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    default:
      return 8;
  }
}

Op MakeOp(OpKind kind, ncclDataType_t type, ncclRedOp_t reduction, size_t count) {
  Op op;
  op.kind = kind;
  op.type = type;
  op.reduction = reduction;
  op.count = count;
  return op;
}

struct GroupedOp {
  ncclComm_t comm;
  CUstream stream;
  Op op;
};
thread_local int group_depth = 0;
thread_local std::vector<GroupedOp> group;

// Marks the calling thread as the communicator's only user for its scope.
class SoleUser {
 public:
  SoleUser(ncclComm_t comm, const char* call) : comm_(comm) {
    std::thread::id nobody;
    const std::thread::id self = std::this_thread::get_id();
    owned_ = comm->user.compare_exchange_strong(nobody, self);
    ok_ = owned_ || nobody == self;
    if (!ok_) {
      ReportViolation("%s on rank %d's communicator while another thread uses it", call,
                      comm->rank);
    }
  }
  ~SoleUser() {
    if (owned_) comm_->user = std::thread::id();
  }
  SoleUser(const SoleUser&) = delete;
  SoleUser& operator=(const SoleUser&) = delete;
  bool ok() const { return ok_; }
  // The thread remains the user of the communicator until the group ends.
  void Keep() { owned_ = false; }

 private:
  const ncclComm_t comm_;
  bool owned_ = false;
  bool ok_ = false;
};

ncclResult_t EnqueueLaunch(ncclComm_t comm, CUstream stream, const std::vector<Op>& ops) {
  std::vector<Place> holds;
  for (const Op& op : ops) {
    if (op.in.data != nullptr) holds.push_back(op.in);
    if (op.out.data != nullptr) holds.push_back(op.out);
  }
  const CUresult result =
      EnqueueOn(stream, NameOf(ops[0].kind), std::move(holds), [comm, ops, use = comm->in_use] {
        Run(comm, ops);
        return CUDA_SUCCESS;
      });
  return result == CUDA_SUCCESS ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t Launch(ncclComm_t comm, CUstream stream, const std::vector<Op>& ops) {
  const int64_t polls = Get(Knob::nccl_in_progress_polls);
  if (polls == 0) return EnqueueLaunch(comm, stream, ops);
  ChangePromised(stream, 1);
  const std::lock_guard<std::mutex> lock(comm->mutex);
  comm->polls_left = polls;
  comm->deferred.push_back([=] {
    ChangePromised(stream, -1);
    return EnqueueLaunch(comm, stream, ops);
  });
  return ncclInProgress;
}

// Returns success if an operation may be put on the communicator now.
ncclResult_t CheckReady(ncclComm_t comm, const char* call) {
  const std::lock_guard<std::mutex> lock(comm->mutex);
  if (comm->destroyed) {
    ReportViolation("%s on a communicator that was destroyed or aborted", call);
    return ncclInvalidArgument;
  }
  if (comm->error != ncclSuccess) return comm->error;
  if (comm->state != State::kReady || comm->polls_left > 0) {
    ReportViolation("%s on rank %d's communicator, which is not ready", call, comm->rank);
    return ncclInvalidUsage;
  }
  return ncclSuccess;
}

bool FindBuffer(ncclComm_t comm, const char* call, const char* what, const void* address,
                size_t bytes, Place* place) {
  if (bytes == 0) return true;
  *place = FindDevice(comm->device, reinterpret_cast<uint64_t>(address), bytes);
  if (place->data != nullptr) return true;
  ReportViolation("%s: %s: %zu bytes at %p are not inside one live allocation of device %d", call,
                  what, bytes, address, comm->device);
  return false;
}

// Checks an operation and launches it, or adds it to the open group. The buffers hold `in_parts`
// and `out_parts` times op.bytes.
ncclResult_t Submit(ncclComm_t comm, CUstream stream, Op op, const void* in, size_t in_parts,
                    const void* out, size_t out_parts) {
  const char* const call = NameOf(op.kind);
  SoleUser user(comm, call);
  if (!user.ok()) return ncclInvalidUsage;
  if (const ncclResult_t result = CheckReady(comm, call)) return result;
  if (op.type > ncclBfloat16 || op.reduction > ncclMin) return ncclInvalidArgument;
  if ((op.kind == OpKind::kPeer || op.kind == OpKind::kReduce) &&
      (op.peer < 0 || op.peer >= comm->num_ranks)) {
    return ncclInvalidArgument;
  }
  if (stream == nullptr || DeviceOf(stream) != comm->device || CurrentDevice() != comm->device) {
    ReportViolation("%s: the communicator is of device %d, the stream or the thread of another",
                    call, comm->device);
    return ncclInvalidUsage;
  }
  op.bytes = op.count * WidthOf(op.type);
  if (!FindBuffer(comm, call, "in", in, op.bytes * in_parts, &op.in) ||
      !FindBuffer(comm, call, "out", out, op.bytes * out_parts, &op.out)) {
    return ncclInvalidArgument;
  }
  if (op.bytes == 0 && op.kind != OpKind::kPeer) return ncclSuccess;
  if (group_depth == 0) return Launch(comm, stream, {op});
  user.Keep();
  group.push_back({comm, stream, std::move(op)});
  return ncclSuccess;
}

// Waits for the other ranks to join. Runs on a thread of its own.
void WaitForRanks(ncclComm_t comm, bool fails) {
  Segment& segment = *comm->segment;
  while (!comm->abort) {
    const uint32_t seen = segment.changes();
    {
      const Segment::Lock lock(&segment);
      if (segment.NumRanksAtLeast(RankState::kJoined) == comm->num_ranks) break;
    }
    segment.WaitForChange(seen);
  }
  std::string duplicate;
  {
    const Segment::Lock lock(&segment);
    segment.Unlink();
    for (int rank = 0; rank < comm->num_ranks; ++rank) {
      if (rank != comm->rank && segment.member(rank).device == comm->device) {
        duplicate = "Duplicate GPU detected: rank " + std::to_string(comm->rank) + " and rank " +
                    std::to_string(rank) + " both on device " + std::to_string(comm->device);
      }
    }
  }
  if (fails) Fail(comm, ncclSystemError, "as the knob nccl_init_error_at says");
  if (!comm->abort && !duplicate.empty()) Fail(comm, ncclInvalidUsage, duplicate);
  const std::lock_guard<std::mutex> lock(comm->mutex);
  comm->init_done = true;
}

ncclResult_t Join(ncclComm_t comm) {
  Segment& segment = *comm->segment;
  {
    const Segment::Lock lock(&segment);
    if (segment.num_ranks() == 0) segment.num_ranks() = comm->num_ranks;
    Member& member = segment.member(comm->rank);
    if (segment.num_ranks() != comm->num_ranks || member.state != RankState::kAbsent) {
      ReportViolation("ncclCommInitRank: rank %d of %d joins a communicator of %d ranks%s",
                      comm->rank, comm->num_ranks, segment.num_ranks(),
                      member.state != RankState::kAbsent ? ", where it is already" : "");
      return ncclInvalidUsage;
    }
    member = {RankState::kJoined, getpid(), comm->device};
  }
  segment.NotifyChange();
  return ncclSuccess;
}

void SetMember(ncclComm_t comm, RankState state) {
  {
    const Segment::Lock lock(comm->segment.get());
    comm->segment->member(comm->rank).state = state;
  }
  comm->segment->NotifyChange();
}

bool AllFinalized(ncclComm_t comm) {
  const Segment::Lock lock(comm->segment.get());
  return comm->segment->NumRanksAtLeast(RankState::kFinalized) == comm->num_ranks;
}

// Returns the state of the communicator as its user sees it, and counts this as a poll. Must be
// called under comm->mutex.
ncclResult_t Poll(ncclComm_t comm) {
  if (comm->error != ncclSuccess && comm->state != State::kRevoked) return comm->error;
  switch (comm->state) {
    case State::kInit:
      if (!comm->init_done || comm->polls_left-- > 0) return ncclInProgress;
      comm->polls_left = 0;
      comm->state = State::kReady;
      return comm->error;
    case State::kReady:
      if (comm->polls_left > 0 && --comm->polls_left > 0) return ncclInProgress;
      for (const auto& enqueue : std::exchange(comm->deferred, {})) {
        const ncclResult_t result = enqueue();
        if (result != ncclSuccess) return result;
      }
      return ncclSuccess;
    case State::kFinalizing:
      return comm->in_use.use_count() == 1 && AllFinalized(comm) ? ncclSuccess : ncclInProgress;
    case State::kRevoked:
      return comm->running ? ncclInProgress : ncclSuccess;
    case State::kAborted:
      break;
  }
  return ncclInvalidUsage;
}

// Ends the operations that are in progress, which then release their buffers.
void StopOperations(ncclComm_t comm) {
  comm->abort = true;
  comm->segment->NotifyChange();
}

}  // namespace
}  // namespace tessera::fakes

using namespace tessera::fakes;         // NOLINT(google-build-using-namespace): C names are global.
using namespace tessera::worker::cuda;  // NOLINT(google-build-using-namespace): as above.

extern "C" {

// Declares every function with the type that the plugin uses.
#define TESSERA_X(result, name, params) TESSERA_FAKE_EXPORT result name params;
TESSERA_NCCL_FUNCTIONS(TESSERA_X)
TESSERA_NCCL_OPTIONAL_FUNCTIONS(TESSERA_X)
#undef TESSERA_X

ncclResult_t ncclGetVersion(int* version) {
  *version = static_cast<int>(Get(Knob::nccl_version));
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  memset(id, 0, sizeof *id);
  snprintf(id->internal, sizeof id->internal, "%s", Segment::Create().c_str());
  return ncclSuccess;
}

// Joins a communicator and returns at once; a thread waits for the other ranks. Only a
// configuration that does not block is accepted, because the plugin polls its communicators.
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int num_ranks, ncclUniqueId id, int rank,
                                    NcclConfig* config) {
  if (num_ranks < 1 || num_ranks > kRanksMax || rank < 0 || rank >= num_ranks) {
    return ncclInvalidArgument;
  }
  if (config == nullptr || config->magic != NcclConfig().magic || config->blocking != 0) {
    ReportViolation("ncclCommInitRankConfig: the configuration is none, or blocks");
    return ncclInvalidArgument;
  }
  if (CurrentDevice() < 0) return ncclUnhandledCudaError;
  *comm = nullptr;
  id.internal[sizeof id.internal - 1] = '\0';
  auto* const created = KeepNew<ncclComm>();
  created->rank = rank;
  created->num_ranks = num_ranks;
  created->device = CurrentDevice();
  created->polls_left = Get(Knob::nccl_init_polls);
  Increment(Knob::nccl_comms);
  created->segment = Segment::Open(id.internal);
  if (created->segment == nullptr) {
    ReportViolation("ncclCommInitRank: no communicator has this id, or all its ranks have joined");
    return ncclInvalidArgument;
  }
  if (const ncclResult_t result = Join(created)) return result;
  *comm = created;
  std::thread(WaitForRanks, created, CountDown(Knob::nccl_init_error_at)).detach();
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  const SoleUser user(comm, "ncclCommGetAsyncError");
  if (!user.ok()) return ncclInvalidUsage;
  const std::lock_guard<std::mutex> lock(comm->mutex);
  if (comm->destroyed) {
    ReportViolation("ncclCommGetAsyncError of a communicator that was destroyed or aborted");
    return ncclInvalidArgument;
  }
  *error = Poll(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const SoleUser user(comm, "ncclCommFinalize");
  if (!user.ok()) return ncclInvalidUsage;
  if (const ncclResult_t result = CheckReady(comm, "ncclCommFinalize")) return result;
  SetMember(comm, RankState::kFinalized);
  const std::lock_guard<std::mutex> lock(comm->mutex);
  comm->state = State::kFinalizing;
  return ncclInProgress;
}

ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags) {
  const SoleUser user(comm, "ncclCommRevoke");
  if (!user.ok()) return ncclInvalidUsage;
  if (flags != 0) return ncclInvalidArgument;
  StopOperations(comm);
  SetMember(comm, RankState::kAborted);
  const std::lock_guard<std::mutex> lock(comm->mutex);
  comm->state = State::kRevoked;
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const SoleUser user(comm, "ncclCommDestroy");
  if (!user.ok()) return ncclInvalidUsage;
  const std::lock_guard<std::mutex> lock(comm->mutex);
  if (comm->destroyed) {
    ReportViolation("ncclCommDestroy of a communicator that was destroyed or aborted");
    return ncclInvalidArgument;
  }
  const bool quiescent = comm->state == State::kRevoked
                             ? !comm->running
                             : comm->state == State::kFinalizing && comm->in_use.use_count() == 1;
  if (!quiescent) {
    ReportViolation(
        "ncclCommDestroy of rank %d's communicator, which would wait: finalize it first",
        comm->rank);
    return ncclInvalidUsage;
  }
  comm->destroyed = true;
  return ncclSuccess;
}

// Ends the communicator and waits for its running operations. The communicator is marked as
// destroyed first, so that every later call on it is a violation. While the knob nccl_abort_hangs
// is 1 the call does not return.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const SoleUser user(comm, "ncclCommAbort");
  if (!user.ok()) return ncclInvalidUsage;
  {
    const std::lock_guard<std::mutex> lock(comm->mutex);
    if (comm->destroyed) {
      ReportViolation("ncclCommAbort of a communicator that was destroyed or aborted");
      return ncclInvalidArgument;
    }
    comm->destroyed = true;
    comm->state = State::kAborted;
  }
  const std::chrono::hours forever(1);
  Await(forever, [] { return Get(Knob::nccl_abort_hangs) == 0; });
  StopOperations(comm);
  Await(forever, [comm] { return !comm->running; });
  SetMember(comm, RankState::kAborted);
  std::vector<std::function<ncclResult_t()>> deferred;
  {
    const std::lock_guard<std::mutex> lock(comm->mutex);
    deferred = std::exchange(comm->deferred, {});
  }
  // Makes the launches that were promised to the streams. The operations do nothing, because the
  // communicator is aborted.
  for (const auto& enqueue : deferred) enqueue();
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  constexpr const char* kTexts[] = {"no error",
                                    "unhandled cuda error",
                                    "unhandled system error",
                                    "internal error",
                                    "invalid argument",
                                    "invalid usage",
                                    "remote process exited or there was a network error",
                                    "NCCL operation in progress"};
  return result < std::size(kTexts) ? kTexts[result] : "unknown result code";
}

const char* ncclGetLastError(ncclComm_t comm) {
  thread_local std::string text;
  if (comm == nullptr) return "";
  const std::lock_guard<std::mutex> lock(comm->mutex);
  text = comm->error_text;
  return text.c_str();
}

ncclResult_t ncclGroupStart() {
  if (++group_depth == 1) SetInGroup(true);
  return ncclSuccess;
}

// Ends a group. Only the end of the outermost group launches the operations, because NCCL treats
// all operations of a group as one. If a launch fails, the others are launched all the same, and
// the first error is returned.
ncclResult_t ncclGroupEnd() {
  if (group_depth == 0) {
    ReportViolation("ncclGroupEnd without ncclGroupStart");
    return ncclInvalidUsage;
  }
  if (--group_depth > 0) return ncclSuccess;
  SetInGroup(false);
  // Makes one launch for each communicator and stream, in the order of their first operations.
  std::vector<GroupedOp> ops = std::exchange(group, {});
  ncclResult_t result = ncclSuccess;
  while (!ops.empty()) {
    const ncclComm_t comm = ops.front().comm;
    const CUstream stream = ops.front().stream;
    std::vector<Op> launch;
    std::vector<GroupedOp> rest;
    for (GroupedOp& grouped : ops) {
      if (grouped.comm == comm && grouped.stream == stream) {
        launch.push_back(std::move(grouped.op));
      } else {
        rest.push_back(std::move(grouped));
      }
    }
    ops = std::move(rest);
    comm->user = std::thread::id();
    const ncclResult_t launched = Launch(comm, stream, launch);
    if (launched != ncclSuccess && (result == ncclSuccess || result == ncclInProgress)) {
      result = launched;
    }
  }
  return result;
}

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, CUstream stream) {
  return Submit(comm, stream, MakeOp(OpKind::kAllReduce, type, op, count), in, 1, out, 1);
}

ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclComm_t comm, CUstream stream) {
  return Submit(comm, stream, MakeOp(OpKind::kAllGather, type, ncclSum, count), in, 1, out,
                comm->num_ranks);
}

ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, CUstream stream) {
  return Submit(comm, stream, MakeOp(OpKind::kReduceScatter, type, op, count), in, comm->num_ranks,
                out, 1);
}

ncclResult_t ncclReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, CUstream stream) {
  Op reduce = MakeOp(OpKind::kReduce, type, op, count);
  reduce.peer = root;
  return Submit(comm, stream, std::move(reduce), in, 1, out, root == comm->rank ? 1 : 0);
}

ncclResult_t ncclSend(const void* in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      CUstream stream) {
  Op op = MakeOp(OpKind::kPeer, type, ncclSum, count);
  op.peer = peer;
  op.is_send = true;
  return Submit(comm, stream, std::move(op), in, 1, nullptr, 0);
}

ncclResult_t ncclRecv(void* out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      CUstream stream) {
  Op op = MakeOp(OpKind::kPeer, type, ncclSum, count);
  op.peer = peer;
  return Submit(comm, stream, std::move(op), nullptr, 0, out, 1);
}

}  // extern "C"
