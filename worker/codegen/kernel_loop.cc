// The text form of a loop of kernels:
//
//   loop 3 bases 1 loops
//   address 0
//   address 1 0 64         base 1, and 64 bytes further in each iteration of loop 0
//   for 0 1000             loop 0, a thousand times
//   run 0 0 1              kernel 0 on addresses 0 and 1
//   copy 1 0 64            64 bytes to address 1 from address 0
//   call 7
//   end
//
// The text of each kernel follows. The other ops are "while LOOP ADDRESS" and "branch ADDRESS",
// which have an "end" as well. Each list of a branch begins with "case". The text is the key of the
// code cache and the form in which loops of kernels are sent to the compiling process.
#include "worker/codegen/kernel_loop.h"

#include <set>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "base/status.h"

namespace tessera::worker::codegen {
namespace {

constexpr size_t kTextBytesMax = 4 << 20;
// The limit of the numbers of bases, addresses, kernels, loops and calls.
constexpr int64_t kNumberMax = 1 << 16;
constexpr size_t kDepthMax = 32;
constexpr absl::string_view kKernelBegin = "kernel [";

template <class... Parts>
absl::Status Fault(const Parts&... parts) {
  return MakeError(ErrorKind::kValueError, absl::StrCat("loop of kernels: ", parts...));
}

// ---- Printing. ---------------------------------------------------------------------------------

// Prints the ops of a list, and recursively the lists inside of each op. Every kind has one line,
// whose numbers ParseOp reads back in the same order.
void Print(const std::vector<LoopOp>& ops, std::string* out) {
  for (const LoopOp& op : ops) {
    const std::string addresses = absl::StrJoin(op.addresses, " ");
    switch (op.kind) {
      case LoopOp::Kind::kKernel:
        absl::StrAppend(out, "run ", op.number, " ", addresses, "\n");
        break;
      case LoopOp::Kind::kCopy:
        absl::StrAppend(out, "copy ", addresses, " ", op.count, "\n");
        break;
      case LoopOp::Kind::kCall:
        absl::StrAppend(out, "call ", op.number, "\n");
        break;
      case LoopOp::Kind::kFor:
        absl::StrAppend(out, "for ", op.number, " ", op.count, "\n");
        break;
      case LoopOp::Kind::kWhile:
        absl::StrAppend(out, "while ", op.number, " ", addresses, "\n");
        break;
      case LoopOp::Kind::kBranch:
        absl::StrAppend(out, "branch ", addresses, "\n");
        break;
    }
    for (const std::vector<LoopOp>& list : op.lists) {
      if (op.kind == LoopOp::Kind::kBranch) absl::StrAppend(out, "case\n");
      Print(list, out);
    }
    if (!op.lists.empty()) absl::StrAppend(out, "end\n");
  }
}

// ---- Parsing. ----------------------------------------------------------------------------------

// A line of the text: a word, and the numbers after it.
struct Line {
  absl::string_view word;
  std::vector<int64_t> numbers;
};

class Parser {
 public:
  absl::StatusOr<KernelLoop> Parse(absl::string_view text) {
    if (text.size() > kTextBytesMax)
      return Fault("the text has ", text.size(), " bytes; at most ", kTextBytesMax, " are read");
    const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
    size_t at = 0;
    for (; at < lines.size() && lines[at].substr(0, kKernelBegin.size()) != kKernelBegin; ++at) {
      if (lines[at].empty()) continue;
      if (!ParseLine(lines[at]))
        return Fault("line ", at + 1, " is not understood: \"",
                     absl::CHexEscape(lines[at].substr(0, 40)), "\"");
    }
    if (!open_.empty() || !started_) return Fault("the text ends too early");
    while (at < lines.size()) {
      size_t end = at + 1;
      while (end < lines.size() && lines[end].substr(0, kKernelBegin.size()) != kKernelBegin) ++end;
      TESSERA_ASSIGN_OR_RETURN(
          loop_.kernels.emplace_back(),
          ParseKernel(absl::StrJoin(lines.begin() + at, lines.begin() + end, "\n")));
      at = end;
    }
    TESSERA_RETURN_IF_ERROR(Verify(loop_));
    return std::move(loop_);
  }

 private:
  // An op whose lists are still being read, and its list to which ops are being added. Ops around
  // it are on the stack below it.
  struct OpenOp {
    LoopOp op;
    std::vector<LoopOp> list;
    bool in_list = true;
  };

  bool ParseLine(absl::string_view text) {
    Line line;
    for (const absl::string_view token : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
      if (line.word.empty()) {
        line.word = token;
        continue;
      }
      if (!started_ && (token == "bases" || token == "loops")) continue;
      if (!absl::SimpleAtoi(token, &line.numbers.emplace_back())) return false;
    }
    if (!started_) return ParseHeader(line);
    if (line.word == "address") return ParseAddress(line);
    return ParseOp(line);
  }

  bool ParseHeader(const Line& line) {
    started_ = true;
    if (line.word != "loop" || line.numbers.size() != 2 || !AreSmall(line.numbers)) return false;
    loop_.num_bases = static_cast<int>(line.numbers[0]);
    loop_.num_loops = static_cast<int>(line.numbers[1]);
    return true;
  }

  bool ParseAddress(const Line& line) {
    const std::vector<int64_t>& n = line.numbers;
    if (n.size() % 2 != 1 || !AreSmall({n[0]})) return false;
    LoopAddress address{static_cast<int>(n[0]), {}};
    for (size_t i = 1; i < n.size(); i += 2) {
      if (!AreSmall({n[i]})) return false;
      address.strides.emplace_back(static_cast<int>(n[i]), n[i + 1]);
    }
    loop_.addresses.push_back(std::move(address));
    return true;
  }

  // Parses the line of an op, or the "case" or "end" of an op that is open. An op with lists goes
  // on the stack `open_` until its "end", so that the depth is bounded by kDepthMax without
  // recursion. Returns false if the line is not understood, and the caller quotes the line in its
  // error.
  bool ParseOp(const Line& line) {
    const absl::Span<const int64_t> n = line.numbers;
    if (line.word == "end") return n.empty() && Close();
    if (line.word == "case") return n.empty() && OpenCase();
    if (!open_.empty() && !open_.back().in_list) return false;
    LoopOp op;
    if (line.word == "run" && !n.empty()) {
      op.kind = LoopOp::Kind::kKernel;
      return SetNumbers(n.subspan(0, 1), n.subspan(1), &op) && Append(std::move(op));
    }
    if (line.word == "copy" && n.size() == 3) {
      op.kind = LoopOp::Kind::kCopy;
      op.count = n[2];
      return SetNumbers({}, n.subspan(0, 2), &op) && Append(std::move(op));
    }
    if (line.word == "call" && n.size() == 1) {
      op.kind = LoopOp::Kind::kCall;
      return SetNumbers(n, {}, &op) && Append(std::move(op));
    }
    if (open_.size() >= kDepthMax) return false;
    if (line.word == "for" && n.size() == 2) {
      op.kind = LoopOp::Kind::kFor;
      op.count = n[1];
      if (!SetNumbers(n.subspan(0, 1), {}, &op)) return false;
    } else if (line.word == "while" && n.size() == 2) {
      op.kind = LoopOp::Kind::kWhile;
      if (!SetNumbers(n.subspan(0, 1), n.subspan(1), &op)) return false;
    } else if (line.word == "branch" && n.size() == 1) {
      op.kind = LoopOp::Kind::kBranch;
      if (!SetNumbers({}, n, &op)) return false;
    } else {
      return false;
    }
    const bool in_list = op.kind != LoopOp::Kind::kBranch;
    open_.push_back({std::move(op), {}, in_list});
    return true;
  }

  static bool SetNumbers(absl::Span<const int64_t> number, absl::Span<const int64_t> addresses,
                         LoopOp* op) {
    if (!AreSmall(number) || !AreSmall(addresses)) return false;
    if (!number.empty()) op->number = static_cast<int>(number[0]);
    op->addresses.assign(addresses.begin(), addresses.end());
    return true;
  }
  static bool AreSmall(absl::Span<const int64_t> numbers) {
    for (const int64_t n : numbers)
      if (n < 0 || n >= kNumberMax) return false;
    return true;
  }

  bool OpenCase() {
    if (open_.empty() || open_.back().op.kind != LoopOp::Kind::kBranch) return false;
    OpenOp& branch = open_.back();
    if (branch.in_list) branch.op.lists.push_back(std::move(branch.list));
    branch.list.clear();
    branch.in_list = true;
    return true;
  }
  bool Close() {
    if (open_.empty() || !open_.back().in_list) return false;
    OpenOp closed = std::move(open_.back());
    open_.pop_back();
    closed.op.lists.push_back(std::move(closed.list));
    return Append(std::move(closed.op));
  }
  bool Append(LoopOp op) {
    (open_.empty() ? loop_.ops : open_.back().list).push_back(std::move(op));
    return true;
  }

  bool started_ = false;
  std::vector<OpenOp> open_;
  KernelLoop loop_;
};

// ---- Rules. ------------------------------------------------------------------------------------

class Verifier {
 public:
  explicit Verifier(const KernelLoop& loop) : loop_(loop) {}

  absl::Status Run() {
    for (const Kernel& kernel : loop_.kernels) TESSERA_RETURN_IF_ERROR(Verify(kernel));
    for (const LoopAddress& address : loop_.addresses) {
      if (address.base < 0 || address.base >= loop_.num_bases)
        return Fault("there is no base ", address.base);
    }
    TESSERA_RETURN_IF_ERROR(CheckOps(loop_.ops));
    if (static_cast<int>(seen_loops_.size()) != loop_.num_loops)
      return Fault("it has ", seen_loops_.size(), " loops; expected ", loop_.num_loops);
    return absl::OkStatus();
  }

 private:
  absl::Status CheckOps(const std::vector<LoopOp>& ops) {
    for (const LoopOp& op : ops) TESSERA_RETURN_IF_ERROR(CheckOp(op));
    return absl::OkStatus();
  }

  absl::Status CheckOp(const LoopOp& op) {
    for (const int a : op.addresses) TESSERA_RETURN_IF_ERROR(CheckAddress(a));
    const bool is_loop = op.kind == LoopOp::Kind::kFor || op.kind == LoopOp::Kind::kWhile;
    const bool is_branch = op.kind == LoopOp::Kind::kBranch;
    if (is_branch ? op.lists.empty() : op.lists.size() != (is_loop ? 1U : 0U))
      return Fault("an op with ", op.lists.size(), " lists");
    if (op.kind == LoopOp::Kind::kKernel) return CheckKernel(op);
    if (op.kind == LoopOp::Kind::kCopy && (op.addresses.size() != 2 || op.count < 0))
      return Fault("a copy of ", op.count, " bytes between ", op.addresses.size(), " addresses");
    const size_t reads = op.kind == LoopOp::Kind::kWhile || is_branch ? 1 : 0;
    if (op.kind != LoopOp::Kind::kCopy && op.addresses.size() != reads)
      return Fault("an op with ", op.addresses.size(), " addresses; expected ", reads);
    if (is_loop) {
      if (op.number < 0 || op.number >= loop_.num_loops || !seen_loops_.insert(op.number).second)
        return Fault("loop ", op.number, " does not exist or occurs twice; there are ",
                     loop_.num_loops, " loops");
      if (op.count < 0) return Fault("a loop of ", op.count, " iterations");
      surrounding_loops_.insert(op.number);
    }
    for (const std::vector<LoopOp>& list : op.lists) TESSERA_RETURN_IF_ERROR(CheckOps(list));
    if (is_loop) surrounding_loops_.erase(op.number);
    return absl::OkStatus();
  }

  absl::Status CheckKernel(const LoopOp& op) const {
    if (op.number < 0 || static_cast<size_t>(op.number) >= loop_.kernels.size())
      return Fault("there is no kernel ", op.number);
    if (op.addresses.size() != loop_.kernels[op.number].params.size())
      return Fault("kernel ", op.number, " on ", op.addresses.size(), " addresses");
    return absl::OkStatus();
  }

  absl::Status CheckAddress(int a) const {
    if (a < 0 || static_cast<size_t>(a) >= loop_.addresses.size())
      return Fault("there is no address ", a);
    for (const auto& [loop, stride] : loop_.addresses[a].strides)
      if (surrounding_loops_.count(loop) == 0)
        return Fault("address ", a, " moves with loop ", loop, ", which does not run here");
    return absl::OkStatus();
  }

  const KernelLoop& loop_;
  // The numbers of all loops seen so far, and of the loops around the current op.
  std::set<int> seen_loops_, surrounding_loops_;
};

}  // namespace

std::string KernelLoop::ToString() const {
  std::string out = absl::StrCat("loop ", num_bases, " bases ", num_loops, " loops\n");
  for (const LoopAddress& address : addresses) {
    absl::StrAppend(&out, "address ", address.base);
    for (const auto& [loop, stride] : address.strides)
      absl::StrAppend(&out, " ", loop, " ", stride);
    absl::StrAppend(&out, "\n");
  }
  Print(ops, &out);
  for (const Kernel& kernel : kernels) absl::StrAppend(&out, kernel.ToString());
  return out;
}

absl::StatusOr<KernelLoop> ParseKernelLoop(absl::string_view text) { return Parser().Parse(text); }

absl::Status Verify(const KernelLoop& loop) { return Verifier(loop).Run(); }

}  // namespace tessera::worker::codegen
