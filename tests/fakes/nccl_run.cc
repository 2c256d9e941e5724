// Runs the operations of a fake communicator on the thread of a stream. nccl.cc enqueues Run there.
// Run first applies the faults that the knobs ask for. Then it turns each operation into messages,
// exchanges them, and combines the parts of reductions in the order of the ranks.
#include <signal.h>

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "ir/dtype.h"
#include "tests/fakes/control.h"
#include "tests/fakes/nccl_comm.h"
#include "tests/fakes/nccl_exchange.h"
#include "worker/collectives/reduce.h"

namespace tessera::fakes {
namespace {

ir::DType DTypeOf(ncclDataType_t type) {
  constexpr ir::DType kTypes[] = {
      ir::DType::kS8,  ir::DType::kU8,  ir::DType::kS32, ir::DType::kU32, ir::DType::kS64,
      ir::DType::kU64, ir::DType::kF16, ir::DType::kF32, ir::DType::kF64, ir::DType::kBF16};
  return kTypes[type];
}

ir::ReduceKind ReduceOf(ncclRedOp_t op) {
  constexpr ir::ReduceKind kKinds[] = {ir::ReduceKind::kSum, ir::ReduceKind::kProd,
                                       ir::ReduceKind::kMax, ir::ReduceKind::kMin};
  return kKinds[op];
}

std::string Describe(const Label& label) {
  char text[160];
  snprintf(text, sizeof text, "%s %llu of %llu elements of type %u, reduction %u",
           NameOf(static_cast<OpKind>(label.kind)), static_cast<unsigned long long>(label.number),
           static_cast<unsigned long long>(label.count), label.type, label.reduction);
  return text;
}

// The contributions of all ranks to a reduction, by rank.
using Parts = std::vector<std::vector<std::byte>>;

// This rank's messages of a launch.
struct LaunchMessages {
  std::vector<Message> sends, receives;
  // parts of the reduction, by operation; empty if the operation does not reduce
  std::vector<Parts> parts;
};

void AddCollectiveMessages(ncclComm_t comm, const Op& op, Parts* parts, LaunchMessages* messages) {
  Label label = {static_cast<uint32_t>(op.kind), op.type, op.reduction, op.count, 0};
  {
    const std::lock_guard<std::mutex> lock(comm->mutex);
    label.number = comm->num_collectives++;
  }
  const bool to_one = op.kind == OpKind::kReduce;
  const bool receives = !to_one || op.peer == comm->rank;
  const bool reduces = op.kind != OpKind::kAllGather;
  if (reduces && receives) parts->assign(comm->num_ranks, std::vector<std::byte>(op.bytes));
  for (int peer = 0; peer < comm->num_ranks; ++peer) {
    const size_t in_offset = op.kind == OpKind::kReduceScatter ? peer * op.bytes : 0;
    if (!to_one || op.peer == peer)
      messages->sends.push_back({peer, label, op.in.data + in_offset, op.bytes});
    if (!receives) continue;
    std::byte* const to = reduces ? (*parts)[peer].data() : op.out.data + peer * op.bytes;
    messages->receives.push_back({peer, label, to, op.bytes});
  }
}

void AddPeerMessage(ncclComm_t comm, const Op& op, LaunchMessages* messages) {
  Label label = {static_cast<uint32_t>(op.kind), op.type, 0, op.count, 0};
  const std::lock_guard<std::mutex> lock(comm->mutex);
  label.number = op.is_send ? comm->num_sent[op.peer]++ : comm->num_received[op.peer]++;
  if (op.is_send) {
    messages->sends.push_back({op.peer, label, op.in.data, op.bytes});
  } else {
    messages->receives.push_back({op.peer, label, op.out.data, op.bytes});
  }
}

void Reduce(const Op& op, const Parts& parts) {
  const auto reducer = worker::FindReducer(ReduceOf(op.reduction), DTypeOf(op.type));
  std::vector<const std::byte*> inputs;
  for (const std::vector<std::byte>& part : parts) inputs.push_back(part.data());
  std::byte* const out = op.out.data;
  (*reducer)(inputs, absl::MakeConstSpan(&out, 1), static_cast<int64_t>(op.bytes));
}

void WaitForAbort(ncclComm_t comm) {
  while (!comm->abort) {
    const uint32_t seen = comm->segment->changes();
    if (comm->abort) return;
    comm->segment->WaitForChange(seen);
  }
}

// Applies the faults that the knobs ask for. Returns false if the operation ends with one.
bool ApplyFaults(ncclComm_t comm) {
  const int64_t rank = Get(Knob::nccl_fault_rank);
  if (rank != -1 && rank != comm->rank) return true;
  if (CountDown(Knob::nccl_die_at)) raise(SIGKILL);
  if (CountDown(Knob::nccl_stall_at)) {
    WaitForAbort(comm);
    return false;
  }
  if (CountDown(Knob::nccl_error_at)) {
    Fail(comm, static_cast<ncclResult_t>(Get(Knob::nccl_error)), "as the knob nccl_error_at says");
    WaitForAbort(comm);
    return false;
  }
  return true;
}

ExchangeEvents EventsOf(ncclComm_t comm) {
  ExchangeEvents events;
  events.aborted = [comm] { return comm->abort.load(); };
  events.lost = [comm](int peer, const char* how) {
    if (Get(Knob::nccl_dead_peer_hangs) != 0) return;
    Fail(comm, ncclRemoteError, "rank " + std::to_string(peer) + " " + how);
  };
  events.deadlocked = [comm](uint32_t ranks) {
    ReportViolation("rank %d waits for ever: the ranks (as bits) %#x wait for one another",
                    comm->rank, ranks);
    Fail(comm, ncclInternalError, "the ranks wait for one another");
  };
  events.mismatched = [comm](int peer, const Label& sent, const Label& expected) {
    ReportViolation("rank %d is at %s; rank %d is at %s", peer, Describe(sent).c_str(), comm->rank,
                    Describe(expected).c_str());
    Fail(comm, ncclInvalidUsage, "the ranks' operations differ");
  };
  return events;
}

}  // namespace

void Fail(ncclComm_t comm, ncclResult_t error, const std::string& text) {
  const std::lock_guard<std::mutex> lock(comm->mutex);
  if (comm->error != ncclSuccess) return;
  comm->error = error;
  comm->error_text = text;
}

void Run(ncclComm_t comm, const std::vector<Op>& ops) {
  if (comm->abort) return;
  if (comm->running.exchange(true)) {
    ReportViolation(
        "two operations of rank %d's communicator run at the same time: order their streams",
        comm->rank);
    return;
  }
  if (ApplyFaults(comm)) {
    LaunchMessages messages;
    messages.parts.resize(ops.size());
    for (size_t i = 0; i < ops.size(); ++i) {
      ops[i].kind == OpKind::kPeer
          ? AddPeerMessage(comm, ops[i], &messages)
          : AddCollectiveMessages(comm, ops[i], &messages.parts[i], &messages);
    }
    const bool done = Exchange(comm->segment.get(), comm->rank, std::move(messages.sends),
                               std::move(messages.receives), EventsOf(comm));
    for (size_t i = 0; done && i < ops.size(); ++i) {
      if (!messages.parts[i].empty()) Reduce(ops[i], messages.parts[i]);
    }
  }
  comm->running = false;
  WakeWaiters();
}

}  // namespace tessera::fakes
