// A rank's end of a fake communicator, and the operations that it runs on a stream.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/fakes/memory.h"
#include "tests/fakes/nccl_segment.h"
#include "worker/cuda/nccl_api.h"

namespace tessera::fakes {

// NOLINTNEXTLINE(google-build-using-namespace): the fakes speak NCCL's names throughout.
using namespace worker::cuda;

enum class OpKind : uint32_t { kAllReduce, kAllGather, kReduceScatter, kReduce, kPeer };

inline constexpr const char* kOpNames[] = {"ncclAllReduce", "ncclAllGather", "ncclReduceScatter",
                                           "ncclReduce", "ncclSend/ncclRecv"};

inline const char* NameOf(OpKind kind) { return kOpNames[static_cast<int>(kind)]; }

struct Op {
  OpKind kind = OpKind::kAllReduce;
  ncclDataType_t type = ncclUint8;
  ncclRedOp_t reduction = ncclSum;
  size_t count = 0;  // number of elements, as the call gives it
  size_t bytes = 0;  // size of `count` elements
  int peer = -1;     // of a kPeer; of a kReduce, the root
  bool is_send = false;
  Place in, out;
};

enum class State { kInit, kReady, kFinalizing, kRevoked, kAborted };

}  // namespace tessera::fakes

namespace tessera::worker::cuda {

struct ncclComm {
  int rank = 0;
  int num_ranks = 0;
  int device = 0;
  std::shared_ptr<fakes::Segment> segment;

  std::atomic<bool> abort{false};
  std::atomic<bool> running{false};
  // thread that is in a call, or that has a group open on the communicator
  std::atomic<std::thread::id> user{std::thread::id()};
  // held by enqueued work, and by graphs that contain such work
  std::shared_ptr<int> in_use = std::make_shared<int>(0);

  std::mutex mutex;  // guards the members below
  fakes::State state = fakes::State::kInit;
  bool destroyed = false;
  bool init_done = false;
  ncclResult_t error = ncclSuccess;
  std::string error_text;
  int64_t polls_left = 0;
  // launches that were answered with ncclInProgress; Poll makes them when polls_left is used up
  std::vector<std::function<ncclResult_t()>> deferred;
  uint64_t num_collectives = 0;
  std::map<int, uint64_t> num_sent, num_received;  // by peer
};

}  // namespace tessera::worker::cuda

namespace tessera::fakes {

// Records why the communicator has failed, unless it has failed before. Thread-safe.
void Fail(ncclComm_t comm, ncclResult_t error, const std::string& text);

// Runs the operations of one launch on the thread of the stream. Returns when they have ended or
// the communicator is aborted.
void Run(ncclComm_t comm, const std::vector<Op>& ops);

}  // namespace tessera::fakes
