// Collectives of groups that span executors, over mailboxes and TCP. HostCollectives
// (host_collectives.cc) calls Run on the thread of each rank when a member of the call's group is
// not local. The choice between the ways to send is by size: see exchange.h.
#include "worker/collectives/exchange.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "worker/collectives/receive.h"

namespace tessera::worker {
namespace {

// A part of a buffer, in bytes. ChunkOf returns chunk i of n, which holds whole elements.
struct Range {
  size_t begin = 0;
  size_t size = 0;
};
Range ChunkOf(size_t bytes, size_t width, size_t i, size_t n) {
  const size_t elements = bytes / width;
  const size_t begin = elements * i / n * width;
  return {begin, elements * (i + 1) / n * width - begin};
}

// Describes a peer that is not connected yet. `reason` says why the last attempt failed, and is
// empty before the first attempt.
std::string NotConnected(const std::string& reason) {
  return reason.empty() ? "not connected" : absl::StrCat("not connected (", reason, ")");
}

}  // namespace

struct InterProcExchange::Transfer {
  int rank = 0;  // the other rank
  bool sends = false;
  bool receives = false;
  absl::Span<const std::byte> out;
  absl::Span<std::byte> in;
  size_t bytes_sent = 0;
  size_t bytes_received = 0;
  // The flags tell an empty message before its only frame from an empty message after it.
  bool began_sending = false;    // whether a frame has been sent
  bool began_receiving = false;  // whether a frame has arrived

  bool sending() const { return sends && !(began_sending && bytes_sent == out.size()); }
  bool receiving() const { return receives && !(began_receiving && bytes_received == in.size()); }
};

// A call ends at its deadline. The timeout starts anew when a peer says that it has not received
// the call's launch, because the members may then be late only because the coordinator or its link
// stood still. The questions begin after half of the timeout, so that answers are there at the
// deadline.
class InterProcExchange::Wait {
 public:
  Wait(const CommunicatorConfig& config, const Call& call, const Deadline& deadline)
      : timeout_(BoundOf(config.timeout, call)),
        first_(deadline),
        limit_(deadline + config.launch_patience),
        deadline_(deadline),
        next_question_(call.awaits_launch && config.launch_patience > absl::ZeroDuration()
                           ? deadline + -timeout_ / 2
                           : Deadline(absl::InfiniteDuration())) {}

  const Deadline& deadline() const { return deadline_; }
  // The time of the next question, or the deadline if that is earlier.
  Deadline next() const { return std::min(deadline_, next_question_); }
  // Returns whether to ask now. The next question is then due later.
  bool TakeQuestion() {
    if (!next_question_.Passed()) return false;
    next_question_ = Deadline(timeout_ / 4);
    return true;
  }
  // Call when a peer has said that it has not received the launch.
  void Prolong() { deadline_ = std::max(deadline_, std::min(limit_, Deadline(timeout_))); }
  // How long the call waits in all, from its beginning to its deadline.
  absl::Duration length() const { return timeout_ + (deadline_ - first_); }

 private:
  const absl::Duration timeout_;
  const Deadline first_, limit_;
  Deadline deadline_, next_question_;
};

InterProcExchange::InterProcExchange(const CommunicatorConfig* config, const FailureLatch* failure,
                                     std::vector<Mailbox*> mailboxes, TcpLinks* links,
                                     LocalRendezvous* rendezvous)
    : config_(config),
      failure_(failure),
      mailboxes_(std::move(mailboxes)),
      links_(links),
      rendezvous_(rendezvous),
      scratch_(mailboxes_.size()) {
  std::map<std::string, int> numbers;
  for (const RankInfo& info : config->ranks) {
    executor_of_.push_back(numbers.emplace(info.executor, numbers.size()).first->second);
  }
}

absl::Status InterProcExchange::Run(const CheckedCall& call, const Deadline& deadline) {
  Wait wait(*config_, call, deadline);
  const bool small = call.in.size() < kSmallBytes;
  if (small && !call.layout.in_each && call.layout.sources.empty()) {
    return RunThroughLeaders(call, &wait);
  }
  return call.kind == ir::CollectiveKind::kAllReduce ? AllReduceInChunks(call, &wait)
                                                     : RunDirect(call, &wait);
}

// The remaining work of a rank for a call whose blocks are sent once per executor.
struct InterProcExchange::PendingBlocks {
  int local_leader = 0;             // the leader of this rank's own executor
  std::vector<int> remote_leaders;  // the leaders of the other executors
  std::vector<int> unsent;          // leaders to which this rank has not sent its block yet
  std::vector<int> awaited;         // positions whose blocks have not arrived, if this rank leads
};

InterProcExchange::PendingBlocks InterProcExchange::PendingOf(const CheckedCall& call) const {
  PendingBlocks pending;
  std::vector<bool> seen(executor_of_.size());
  for (const int rank : call.group) {
    if (seen[executor_of_[rank]]) continue;
    seen[executor_of_[rank]] = true;
    if (IsLocal(rank)) {
      pending.local_leader = rank;
    } else {
      pending.remote_leaders.push_back(rank);
    }
  }
  pending.unsent = pending.remote_leaders;
  for (size_t i = 0; pending.local_leader == call.rank && i < call.group.size(); ++i) {
    if (!IsLocal(call.group[i])) pending.awaited.push_back(static_cast<int>(i));
  }
  return pending;
}

absl::Status InterProcExchange::RunThroughLeaders(const CheckedCall& call, Wait* wait) {
  LocalRendezvous::MeetingRef meeting;
  TESSERA_RETURN_IF_ERROR(rendezvous_->Arrive(call, &meeting));
  const absl::Status status = AwaitBlocks(call, *meeting, wait);
  if (!status.ok() && rendezvous_->Leave(*meeting)) return status;
  rendezvous_->Work(*meeting);
  return absl::OkStatus();
}

// Sends this rank's block to the remote leaders and, if this rank leads, receives the blocks of the
// remote members, until the meeting is ready. Only the rank's own thread reads its mailbox, so the
// thread sends and receives by turns and blocks only when neither made progress. The rank that
// finishes last wakes the other local ranks, which wait on their mailboxes and not on the meeting.
absl::Status InterProcExchange::AwaitBlocks(const CheckedCall& call,
                                            LocalRendezvous::Meeting& meeting, Wait* wait) {
  Mailbox& mailbox = *mailboxes_[call.rank];
  PendingBlocks pending = PendingOf(call);
  bool finished = false;
  while (true) {
    // The counter is read before the meeting and the latch, so that AwaitChange notices a change
    // that comes after it.
    const uint64_t seen = mailbox.change_count();
    if (LocalRendezvous::IsReady(meeting)) return absl::OkStatus();
    TESSERA_RETURN_IF_ERROR(failure_->status(call.key.launch));
    bool progress = false;
    TESSERA_RETURN_IF_ERROR(
        SendAndReceiveBlocks(call, meeting, wait->deadline(), &pending, &progress));
    if (!finished && pending.unsent.empty() && pending.awaited.empty()) {
      finished = true;
      if (!rendezvous_->Finish(meeting, call.position)) continue;
      for (const int rank : call.group) {
        if (IsLocal(rank) && rank != call.rank) mailboxes_[rank]->Wake();
      }
    } else if (!progress) {
      if (wait->deadline().Passed() || AnyIsDown(pending.remote_leaders)) {
        TESSERA_RETURN_IF_ERROR(MissingError(call, meeting, pending, *wait));
      }
      AwaitChange(call, pending.remote_leaders, seen, wait);
    }
  }
}

void InterProcExchange::AwaitChange(const CheckedCall& call, absl::Span<const int> missing,
                                    uint64_t seen, Wait* wait) {
  Mailbox& mailbox = *mailboxes_[call.rank];
  if (mailbox.TakeNotReceived(call.key.launch)) wait->Prolong();
  if (wait->TakeQuestion()) {
    for (const int rank : missing) {
      if (!IsLocal(rank))
        links_->SendIfRoom(
            LaunchQueryFrame(*config_, LaunchQuery::kAsk, call.key.launch, call.rank, rank));
    }
  }
  mailbox.AwaitChange(seen, wait->next());
}

// Sends and receives as many blocks as possible without waiting. Each block is one frame, because
// kSmallBytes is less than kMaxPayloadBytes.
absl::Status InterProcExchange::SendAndReceiveBlocks(const CheckedCall& call,
                                                     LocalRendezvous::Meeting& meeting,
                                                     const Deadline& deadline,
                                                     PendingBlocks* pending, bool* progress) {
  std::erase_if(pending->unsent, [&](int leader) {
    Transfer t;
    t.rank = leader;
    t.out = call.in;
    const bool sent = TrySend(call, /*phase=*/0, t, deadline);
    *progress = *progress || sent;
    return sent;
  });
  absl::Status mismatch;
  std::erase_if(pending->awaited, [&](int position) {
    const int from = call.group[position];
    std::optional<Frame> frame = TakeFrame(call, from, deadline, progress);
    if (!frame.has_value()) return false;
    const FrameHeader& header = frame->header;
    if (BelongsTo(call, /*phase=*/0, header) && header.payload_length == call.in.size()) {
      rendezvous_->DeliverRemoteBlock(meeting, position, std::move(frame->payload));
    } else {
      mismatch = Mismatch(call, from, *frame);
    }
    return true;
  });
  return mismatch;
}

bool InterProcExchange::AnyIsDown(absl::Span<const int> ranks) const {
  std::string reason;
  return std::any_of(ranks.begin(), ranks.end(),
                     [&](int rank) { return links_->StateOf(rank, &reason) == LinkState::kDown; });
}

// Finds out which members are missing, and why. The caller uses it at the deadline or when a leader
// is down. A member counts as missing only if neither the meeting nor the mailbox of the leader has
// its block. A failure that a peer has reported takes precedence over the lost connection, and
// calls that differ are reported as a mismatch rather than as a timeout. Returns OK if the deadline
// has not passed and no peer is lost.
absl::Status InterProcExchange::MissingError(const CheckedCall& call,
                                             const LocalRendezvous::Meeting& meeting,
                                             const PendingBlocks& pending, const Wait& wait) const {
  const bool timed_out = wait.deadline().Passed();
  Mailbox& mailbox = *mailboxes_[pending.local_leader];
  std::string reason;
  const auto lost_error = [&](int rank) -> absl::Status {
    // If the peer has reported a failure, that failure is the cause. It was stored before the
    // connection went down.
    TESSERA_RETURN_IF_ERROR(failure_->status(call.key.launch));
    return PeerLostError(*config_, call, rank, reason);
  };
  std::vector<MissingRank> missing;
  for (MissingRank& m : rendezvous_->Missing(meeting)) {
    if (!IsLocal(m.rank)) {
      // The state is read before the mailbox, because frames that were sent before the connection
      // went down still count.
      const LinkState state = links_->StateOf(m.rank, &reason);
      const std::optional<uint64_t> launch = mailbox.NextLaunch(m.rank);
      if (launch == call.key.launch) continue;  // the block is in the leader's mailbox
      if (state == LinkState::kDown) return lost_error(m.rank);
      if (timed_out && launch.has_value() && !failure_->failed(*launch)) {
        return Mismatch(call, m.rank, *mailbox.Take(m.rank));
      }
      if (state == LinkState::kConnecting) m.phase = NotConnected(reason);
    }
    missing.push_back(std::move(m));
  }
  for (const int leader : pending.unsent) {
    const LinkState state = links_->StateOf(leader, &reason);
    if (state == LinkState::kDown) return lost_error(leader);
    const auto is_leader = [&](const MissingRank& m) { return m.rank == leader; };
    if (std::any_of(missing.begin(), missing.end(), is_leader)) continue;
    missing.push_back(
        {leader, state == LinkState::kConnecting
                     ? NotConnected(reason)
                     : absl::StrCat("not receiving: 0 of ", call.in.size(), " bytes sent")});
  }
  if (!timed_out || missing.empty()) return absl::OkStatus();
  return TimeoutError(*config_, call, missing, wait.length());
}

absl::Span<std::byte> InterProcExchange::ScratchOf(const Call& call, size_t bytes) {
  Scratch& scratch = scratch_[call.rank];
  if (scratch.capacity() > kScratchKeptBytes && bytes <= kScratchKeptBytes) scratch = Scratch();
  if (scratch.size() < bytes) scratch.resize(bytes);
  return absl::MakeSpan(scratch).first(bytes);
}

// Exchanges blocks with every other member directly, by one transfer for each of them.
// For a reduction all inputs are received into scratch memory before any is combined, because the
// result must be combined in group order, whatever the order of arrival. The block that a rank
// keeps for itself is copied without a transfer.
absl::Status InterProcExchange::RunDirect(const CheckedCall& call, Wait* wait) {
  const Layout& layout = call.layout;
  const size_t block_bytes = layout.block_bytes;
  const int n = static_cast<int>(call.group.size()), me = call.position;
  const bool combines = call.reducer != nullptr;
  const absl::Span<std::byte> scratch = ScratchOf(call, combines ? n * block_bytes : 0);
  std::vector<Transfer> transfers;
  std::vector<const std::byte*> inputs;
  for (int i = 0; i < n; ++i) {
    if (combines)
      inputs.push_back(i == me ? call.in.data() + layout.InOffset(me)
                               : scratch.data() + i * block_bytes);
    if (i == me) continue;
    Transfer t;
    t.rank = call.group[i];
    t.sends = layout.Sends(me, i);
    t.receives = layout.Sends(i, me);
    if (t.sends) t.out = call.in.subspan(layout.InOffset(i), block_bytes);
    if (t.receives)
      t.in = combines ? scratch.subspan(i * block_bytes, block_bytes)
                      : call.out.subspan(layout.OutOffset(i), block_bytes);
    if (t.sends || t.receives) transfers.push_back(t);
  }
  TESSERA_RETURN_IF_ERROR(RunTransfers(call, /*phase=*/0, std::move(transfers), wait));
  if (block_bytes == 0) return absl::OkStatus();
  if (combines) {
    std::byte* const outputs[] = {call.out.data()};
    call.reducer(inputs, absl::MakeConstSpan(outputs), static_cast<int64_t>(block_bytes));
  } else if (layout.ReceivesNothing(me)) {
    std::memset(call.out.data(), 0, block_bytes);
  } else if (layout.Sends(me, me)) {
    std::memcpy(call.out.data() + layout.OutOffset(me), call.in.data() + layout.InOffset(me),
                block_bytes);
  }
  return absl::OkStatus();
}

// Runs a large all-reduce in two phases: a reduce-scatter, in which each rank combines one chunk,
// and an all-gather of the results. So each rank sends, and receives, about twice the size of its
// input, however many members there are. If each rank sent all of its input to all n members, that
// would be n - 1 times the size. The inputs are combined in group order, so the bits of the result
// do not depend on the transport.
absl::Status InterProcExchange::AllReduceInChunks(const CheckedCall& call, Wait* wait) {
  const size_t n = call.group.size();
  const size_t width = ir::ByteWidth(call.dtype);
  const auto chunk = [&](size_t i) { return ChunkOf(call.in.size(), width, i, n); };
  const Range mine = chunk(call.position);
  const absl::Span<std::byte> scratch = ScratchOf(call, n * mine.size);
  std::vector<Transfer> scatter, gather;
  std::vector<const std::byte*> inputs;
  for (size_t i = 0; i < n; ++i) {
    if (static_cast<int>(i) == call.position) {
      inputs.push_back(call.in.data() + mine.begin);
      continue;
    }
    const Range theirs = chunk(i);
    const auto from_them = scratch.subspan(i * mine.size, mine.size);
    inputs.push_back(from_them.data());
    Transfer& s = scatter.emplace_back();
    Transfer& g = gather.emplace_back();
    s.rank = g.rank = call.group[i];
    s.sends = s.receives = g.sends = g.receives = true;
    s.out = call.in.subspan(theirs.begin, theirs.size);
    s.in = from_them;
    g.out = call.out.subspan(mine.begin, mine.size);
    g.in = call.out.subspan(theirs.begin, theirs.size);
  }
  TESSERA_RETURN_IF_ERROR(RunTransfers(call, /*phase=*/0, std::move(scatter), wait));
  std::byte* const outputs[] = {call.out.data() + mine.begin};
  call.reducer(inputs, absl::MakeConstSpan(outputs), static_cast<int64_t>(mine.size));
  return RunTransfers(call, /*phase=*/1, std::move(gather), wait);
}

// Runs all transfers of one phase at once, sending and receiving by turns, until every one has
// ended. The rank's thread alone moves the data. It blocks only when no transfer made progress, and
// then on its mailbox, where frames, returned credit, failures and lost connections all count as
// changes.
absl::Status InterProcExchange::RunTransfers(const CheckedCall& call, int phase,
                                             std::vector<Transfer> transfers, Wait* wait) {
  Mailbox& mailbox = *mailboxes_[call.rank];
  // Each rank starts with the position after its own, so that the ranks do not all send to the same
  // one.
  const auto next = std::find_if(transfers.begin(), transfers.end(), [&](const Transfer& t) {
    const auto at = std::find(call.group.begin(), call.group.end(), t.rank);
    return at - call.group.begin() > call.position;
  });
  std::rotate(transfers.begin(), next, transfers.end());
  while (true) {
    // The counter is read before the latch, so that AwaitChange notices a change that comes after
    // it.
    const uint64_t seen = mailbox.change_count();
    TESSERA_RETURN_IF_ERROR(failure_->status(call.key.launch));
    bool progress = false;
    bool finished = true;
    for (Transfer& transfer : transfers) {
      if (transfer.sending())
        progress = TrySend(call, phase, transfer, wait->deadline()) || progress;
      TESSERA_RETURN_IF_ERROR(TryReceive(call, phase, transfer, wait->deadline(), &progress));
      finished = finished && !transfer.sending() && !transfer.receiving();
    }
    if (finished) return absl::OkStatus();
    if (wait->deadline().Passed()) return ErrorAtDeadline(call, transfers, *wait);
    if (progress) continue;
    absl::InlinedVector<int, 8> missing;
    for (const Transfer& t : transfers)
      if (t.sending() || t.receiving()) missing.push_back(t.rank);
    AwaitChange(call, missing, seen, wait);
  }
}

// Sends at most one frame, so that sending and receiving take turns. Returns false if nothing was
// sent.
bool InterProcExchange::TrySend(const CheckedCall& call, int phase, Transfer& t,
                                const Deadline& deadline) {
  std::string reason;
  if (!IsLocal(t.rank) && links_->StateOf(t.rank, &reason) != LinkState::kUp) return false;
  const absl::Span<const std::byte> part = t.out.subspan(t.bytes_sent, kMaxPayloadBytes);
  const int64_t cost = static_cast<int64_t>(part.size()) + kFrameCostBytes;
  if (!mailboxes_[call.rank]->TakeCredit(t.rank, cost)) return false;

  Frame frame;
  const CallSummary summary = Summarize(call);
  if (!t.began_sending) frame.label = summary.op.substr(0, kMaxLabelBytes);
  FrameHeader& header = frame.header;
  header.call_kind = summary.kind;
  header.call_reduce = summary.reduce;
  header.call_dtype = summary.dtype;
  header.generation = config_->generation;
  header.launch = summary.launch;
  header.call_fingerprint = call.fingerprint;
  header.call_bytes = summary.bytes;
  header.byte_count = t.out.size();
  header.offset = t.bytes_sent;
  header.op_sequence = summary.op_sequence;
  header.from = static_cast<uint32_t>(call.rank);
  header.to = static_cast<uint32_t>(t.rank);
  header.payload_length = static_cast<uint32_t>(part.size());
  header.label_length = static_cast<uint16_t>(frame.label.size());
  header.phase = static_cast<uint16_t>(phase);
  header.call_group_size = summary.group_size;

  if (IsLocal(t.rank)) {
    frame.payload.reset(new std::byte[part.size()]);
    if (!part.empty()) std::memcpy(frame.payload.get(), part.data(), part.size());
    mailboxes_[t.rank]->Deliver(call.rank, std::move(frame));
  } else if (!links_->Send(header, frame.label, part, deadline)) {
    // The connection's reader reports the error, the deadline passes, or the launch has failed. In
    // the last two cases the connection serves other launches.
    mailboxes_[call.rank]->UndoTakeCredit(t.rank, cost);
    return false;
  }
  t.began_sending = true;
  t.bytes_sent += part.size();
  return true;
}

absl::Status InterProcExchange::TryReceive(const CheckedCall& call, int phase, Transfer& t,
                                           const Deadline& deadline, bool* progress) {
  // The state is read before the mailbox, because frames that were sent before the connection went
  // down still count.
  std::string reason;
  const bool lost = !IsLocal(t.rank) && (t.receiving() || t.sending()) &&
                    links_->StateOf(t.rank, &reason) == LinkState::kDown;
  while (t.receiving()) {
    const std::optional<Frame> frame = TakeFrame(call, t.rank, deadline, progress);
    if (!frame.has_value()) break;
    TESSERA_RETURN_IF_ERROR(AppendFrame(call, phase, t, *frame));
  }
  // If the peer has reported a failure, that failure is the cause. It was stored before the
  // connection went down.
  if (lost) TESSERA_RETURN_IF_ERROR(failure_->status(call.key.launch));
  if (lost && (t.receiving() || t.sending())) return PeerLostError(*config_, call, t.rank, reason);
  return absl::OkStatus();
}

std::optional<Frame> InterProcExchange::TakeFrame(const CheckedCall& call, int from,
                                                  const Deadline& deadline, bool* progress) {
  Mailbox& mailbox = *mailboxes_[call.rank];
  while (const std::optional<uint64_t> launch = mailbox.NextLaunch(from)) {
    // Frames of failed launches are dropped. A frame of another launch may mean that a failure is
    // still on its way to this executor; if none arrives, ErrorAtDeadline reports the mismatch.
    const bool left_over = *launch != call.key.launch;
    if (left_over && !failure_->failed(*launch)) break;
    std::optional<Frame> frame = mailbox.Take(from);
    ReturnCredit(call, from, deadline);
    *progress = true;
    if (!left_over) return frame;
  }
  // Credit is still due if an earlier call could not return it.
  ReturnCredit(call, from, deadline);
  return std::nullopt;
}

bool InterProcExchange::BelongsTo(const CheckedCall& call, int phase, const FrameHeader& header) {
  return header.launch == call.key.launch && header.op_sequence == call.key.op_sequence &&
         header.call_fingerprint == call.fingerprint && header.phase == phase;
}

absl::Status InterProcExchange::Mismatch(const Call& call, int rank, const Frame& frame) const {
  const FrameHeader& header = frame.header;
  CallSummary other;
  other.kind = header.call_kind;
  other.reduce = header.call_reduce;
  other.dtype = header.call_dtype;
  other.group_size = header.call_group_size;
  other.bytes = header.call_bytes;
  other.launch = header.launch;
  other.op_sequence = header.op_sequence;
  other.op = frame.label;
  return MismatchError(*config_, call, rank, other);
}

absl::Status InterProcExchange::AppendFrame(const CheckedCall& call, int phase, Transfer& t,
                                            const Frame& frame) const {
  const FrameHeader& header = frame.header;
  if (!BelongsTo(call, phase, header) || header.byte_count != t.in.size() ||
      header.offset != t.bytes_received || header.payload_length > t.in.size() - t.bytes_received)
    return Mismatch(call, t.rank, frame);
  if (header.payload_length > 0) {
    std::memcpy(t.in.data() + t.bytes_received, frame.payload.get(), header.payload_length);
  }
  t.bytes_received += header.payload_length;
  t.began_receiving = true;
  return absl::OkStatus();
}

void InterProcExchange::ReturnCredit(const Call& call, int to, const Deadline& deadline) {
  const int64_t credit = mailboxes_[call.rank]->TakeDueCredit(to);
  if (credit == 0) return;
  if (IsLocal(to)) {
    const bool owed = mailboxes_[to]->ReturnCredit(call.rank, credit);
    TESSERA_CHECK(owed) << "to=" << to << " credit=" << credit;
    return;
  }
  FrameHeader header;
  header.type = FrameType::kCredit;
  header.generation = config_->generation;
  header.from = static_cast<uint32_t>(call.rank);
  header.to = static_cast<uint32_t>(to);
  header.byte_count = static_cast<uint64_t>(credit);
  if (!links_->Send(header, "", {}, deadline)) {
    mailboxes_[call.rank]->UndoTakeDueCredit(to, credit);
  }
}

absl::Status InterProcExchange::ErrorAtDeadline(const Call& call,
                                                absl::Span<const Transfer> transfers,
                                                const Wait& wait) const {
  std::vector<MissingRank> missing;
  for (const Transfer& t : transfers) {
    if (!t.sending() && !t.receiving()) continue;
    Mailbox& mailbox = *mailboxes_[call.rank];
    const uint64_t launch = mailbox.NextLaunch(t.rank).value_or(call.key.launch);
    if (t.receiving() && launch != call.key.launch && !failure_->failed(launch))
      return Mismatch(call, t.rank, *mailbox.Take(t.rank));
    std::string reason;
    if (!IsLocal(t.rank) && links_->StateOf(t.rank, &reason) == LinkState::kConnecting) {
      missing.push_back({t.rank, "not connected"});
    } else if (t.receiving() && !t.began_receiving) {
      missing.push_back({t.rank, "not entered"});
    } else if (t.receiving()) {
      missing.push_back({t.rank, absl::StrCat("stalled: ", t.bytes_received, " of ", t.in.size(),
                                              " bytes received")});
    } else {
      missing.push_back({t.rank, absl::StrCat("not receiving: ", t.bytes_sent, " of ", t.out.size(),
                                              " bytes sent")});
    }
  }
  return TimeoutError(*config_, call, missing, wait.length());
}

}  // namespace tessera::worker
