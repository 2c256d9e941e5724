// The emulator of a GPU: makes images and runs launches. Tests reach it through
// testing/simt_kernels.h, or through the fake driver (tests/fakes/simt.cc). It favours strictness
// over speed: shared memory starts with rubbish, threads run in changing order, and every global
// access can be checked.
#include "worker/codegen/testing/simt.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/log.h"
#include "base/status.h"
#include "llvm/AsmParser/Parser.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Target/TargetMachine.h"
#include "worker/codegen/analyses.h"
#include "worker/codegen/gpu_module.h"
#include "worker/codegen/gpu_thread.h"
#include "worker/codegen/host_machine.h"
#include "worker/codegen/host_target.h"
#include "worker/codegen/loader.h"
#include "worker/codegen/testing/simt_lower.h"
#include "worker/codegen/testing/simt_thread.h"

namespace tessera::worker::codegen {
namespace {

constexpr absl::string_view kMagic = "tessera-simt";
constexpr int64_t kThreadsMax = 1024;
constexpr uint32_t kSharedMax = 48 << 10;

// ---- Running a block. --------------------------------------------------------------------------

// Memory for the variables of a block's coroutines. It is given out piece by piece, and taken back
// all at once.
class Arena {
 public:
  void* Allocate(uint64_t bytes) {
    bytes = (bytes + kSimtFrameAlign - 1) / kSimtFrameAlign * kSimtFrameAlign;
    while (chunk_ < chunks_.size() && used_ + bytes > chunks_[chunk_].size) {
      ++chunk_;
      used_ = 0;
    }
    if (chunk_ == chunks_.size()) chunks_.emplace_back(std::max<uint64_t>(bytes, 64 << 10));
    void* const at = chunks_[chunk_].memory + used_;
    used_ += bytes;
    return at;
  }
  void Reset() { chunk_ = used_ = 0; }

 private:
  struct Chunk {
    explicit Chunk(uint64_t bytes)
        : size(bytes),
          memory(static_cast<char*>(::operator new(bytes, std::align_val_t(kSimtFrameAlign)))) {}
    Chunk(Chunk&& other) noexcept
        : size(other.size), memory(std::exchange(other.memory, nullptr)) {}
    ~Chunk() { ::operator delete(memory, std::align_val_t(kSimtFrameAlign)); }
    uint64_t size;
    char* memory;
  };
  std::vector<Chunk> chunks_;
  size_t chunk_ = 0;
  uint64_t used_ = 0;
};

class BlockRunner;
struct Thread : SimtThread {
  BlockRunner* owner;
  // The suspended coroutine of the thread; null once the thread has ended.
  void* coroutine;
};
void* AllocateFrame(SimtThread* self, uint64_t bytes);
void* CheckAccess(SimtThread* self, void* address, uint64_t bytes, uint64_t align_and_write);

// The frame of an LLVM coroutine begins with the address of the function that resumes it. The
// address is null once the coroutine is done.
using Resume = void (*)(void*);
Resume ResumeOf(void* coroutine) {
  Resume resume;
  std::memcpy(&resume, coroutine, sizeof resume);
  return resume;
}

class BlockRunner {
 public:
  BlockRunner(SimtEntry entry, const SimtLaunch& launch)
      : entry_(entry),
        launch_(launch),
        threads_(size_t{launch.block[0]} * launch.block[1] * launch.block[2]),
        shared_(launch.shared_bytes + kSimtFrameAlign) {}

  Arena& arena() { return arena_; }

  // Returns the address if the launch allows the access. If not, records the fault and returns an
  // address at which the access does no harm.
  void* CheckedAddress(const Thread& thread, void* address, uint64_t bytes, uint64_t align,
                       bool write) {
    if (!launch_.may_access) return address;
    const auto at = reinterpret_cast<uint64_t>(address);
    const bool aligned = at % align == 0;
    if (aligned && launch_.may_access(at, bytes, write, NumberOf(thread))) return address;
    if (fault_.ok())
      fault_ = Fault(absl::StrCat("thread (", absl::StrJoin(thread.thread, ","), ") ",
                                  write ? "writes " : "reads ", bytes, " bytes at ", absl::Hex(at),
                                  aligned ? ", which it may not" : ", which is not aligned"));
    return scratch_;
  }

  absl::Status Run(uint32_t x, uint32_t y, uint32_t z) {
    block_[0] = x, block_[1] = y, block_[2] = z;
    arena_.Reset();
    // The shared memory of a block does not start with zeros, so that a kernel that relies on zeros
    // fails.
    std::fill(shared_.begin(), shared_.end(), '\xEE');
    bool reversed = launch_.reversed;
    ForEachThread(reversed, [&](size_t t) { Start(t); });
    while (true) {
      TESSERA_RETURN_IF_ERROR(fault_);
      TESSERA_RETURN_IF_ERROR(RunShuffles());
      const size_t waiting = std::count_if(threads_.begin(), threads_.end(), IsWaiting);
      if (waiting == 0) return fault_;
      TESSERA_RETURN_IF_ERROR(CheckTogether(0, threads_.size(), "barrier"));
      reversed = !reversed;
      ForEachThread(reversed, [&](size_t t) { Continue(&threads_[t]); });
    }
  }

 private:
  // Returns the number of the thread among all threads of the launch, counted block by block.
  uint64_t NumberOf(const Thread& thread) const {
    uint64_t block = 0, in_block = 0;
    for (int d = 2; d >= 0; --d) {
      block = block * launch_.grid[d] + thread.block[d];
      in_block = in_block * launch_.block[d] + thread.thread[d];
    }
    return block * threads_.size() + in_block;
  }

  static bool IsWaiting(const Thread& thread) { return thread.coroutine != nullptr; }

  template <class F>
  void ForEachThread(bool reversed, F f) {
    for (size_t i = 0; i < threads_.size(); ++i) f(reversed ? threads_.size() - 1 - i : i);
  }

  void Start(size_t t) {
    Thread& thread = threads_[t];
    thread = {};
    thread.thread[0] = t % launch_.block[0];
    thread.thread[1] = t / launch_.block[0] % launch_.block[1];
    thread.thread[2] = t / launch_.block[0] / launch_.block[1];
    for (int d = 0; d < 3; ++d) {
      thread.block[d] = block_[d];
      thread.block_size[d] = launch_.block[d];
      thread.grid_size[d] = launch_.grid[d];
    }
    const auto base = reinterpret_cast<uintptr_t>(shared_.data());
    thread.shared = shared_.data() + (kSimtFrameAlign - base % kSimtFrameAlign) % kSimtFrameAlign;
    thread.allocate = AllocateFrame;
    thread.access = CheckAccess;
    thread.owner = this;
    thread.coroutine = entry_(&thread, launch_.args.data());
    NoteEnd(&thread);
  }
  void Continue(Thread* thread) {
    thread->wait = SimtThread::kRuns;
    ResumeOf(thread->coroutine)(thread->coroutine);
    NoteEnd(thread);
  }
  static void NoteEnd(Thread* thread) {
    if (thread->coroutine != nullptr && ResumeOf(thread->coroutine) == nullptr)
      thread->coroutine = nullptr;
  }

  // Runs each warp until none of its threads waits at a shuffle.
  absl::Status RunShuffles() {
    for (size_t begin = 0; begin < threads_.size(); begin += kWarpSize) {
      const size_t end = std::min(begin + kWarpSize, threads_.size());
      const auto shuffles = [&] {
        return std::any_of(threads_.begin() + begin, threads_.begin() + end, [](const Thread& t) {
          return IsWaiting(t) && t.wait == SimtThread::kShuffle;
        });
      };
      while (shuffles()) {
        if (end - begin != kWarpSize)
          return Fault(absl::StrCat("a shuffle in a warp of ", end - begin, " threads"));
        TESSERA_RETURN_IF_ERROR(CheckTogether(begin, end, "shuffle"));
        uint32_t words[kWarpSize];
        for (int lane = 0; lane < kWarpSize; ++lane) {
          const uint32_t from = lane ^ threads_[begin + lane].lane_mask;
          if (from >= kWarpSize)
            return Fault(absl::StrCat("thread ", begin + lane, " shuffles with lane ", from));
          words[lane] = threads_[begin + from].word;
        }
        for (int lane = 0; lane < kWarpSize; ++lane) {
          threads_[begin + lane].word = words[lane];
          Continue(&threads_[begin + lane]);
        }
      }
    }
    return absl::OkStatus();
  }

  // Checks that all threads from `begin` to `end` wait at one place.
  absl::Status CheckTogether(size_t begin, size_t end, absl::string_view what) {
    const auto place = [](const Thread& t) -> std::string {
      if (!IsWaiting(t)) return "has ended";
      return absl::StrCat("waits at ", t.wait == SimtThread::kShuffle ? "shuffle" : "barrier",
                          ", place ", t.site);
    };
    for (size_t t = begin; t < end; ++t) {
      const Thread &first = threads_[begin], &thread = threads_[t];
      if (IsWaiting(first) == IsWaiting(thread) && first.wait == thread.wait &&
          first.site == thread.site)
        continue;
      return Fault(absl::StrCat("not all threads reach a ", what, ": thread ", begin, " ",
                                place(first), ", thread ", t, " ", place(thread)));
    }
    return absl::OkStatus();
  }

  absl::Status Fault(absl::string_view what) {
    return MakeError(ErrorKind::kInternal, absl::StrCat("simt: ", launch_.entry, ", block (",
                                                        absl::StrJoin(block_, ","), "): ", what));
  }

  const SimtEntry entry_;
  const SimtLaunch& launch_;
  uint32_t block_[3];
  std::vector<Thread> threads_;
  std::vector<char> shared_;
  Arena arena_;
  absl::Status fault_;
  alignas(kSimtFrameAlign) char scratch_[kSimtFrameAlign] = {};
};

void* AllocateFrame(SimtThread* self, uint64_t bytes) {
  return static_cast<Thread*>(self)->owner->arena().Allocate(bytes);
}
void* CheckAccess(SimtThread* self, void* address, uint64_t bytes, uint64_t align_and_write) {
  const Thread& thread = *static_cast<Thread*>(self);
  return thread.owner->CheckedAddress(thread, address, bytes, align_and_write / 2,
                                      align_and_write % 2);
}

// ---- Images. -----------------------------------------------------------------------------------

struct EntryInfo {
  std::string name;
  int num_args;
};

// Returns the header: a line such as "tessera-simt 1 avx512 2\n", and then a line for each entry.
std::string HeaderText(const HostTarget& target, const std::vector<EntryInfo>& entries) {
  std::string out =
      absl::StrCat(kMagic, " ", kSimtVersion, " ", target.name, " ", entries.size(), "\n");
  for (const EntryInfo& entry : entries)
    absl::StrAppend(&out, entry.name, " ", entry.num_args, "\n");
  return out;
}

absl::Status BadImage(absl::string_view what) {
  return MakeError(ErrorKind::kValueError, absl::StrCat("simt: this is no image: ", what));
}

absl::StatusOr<std::string> MakeImage(const HostTarget& target, llvm::TargetMachine* machine,
                                      llvm::Module* module) {
  std::vector<EntryInfo> entries;
  for (const llvm::Function& function : *module)
    if (!function.isDeclaration())
      entries.push_back({function.getName().str(), static_cast<int>(function.arg_size())});
  TESSERA_RETURN_IF_ERROR(LowerForSimt(machine, module));
  return HeaderText(target, entries) +
         CodeGenerator(machine, llvm::CodeGenFileType::ObjectFile).Run(module);
}

// Parses the header and removes it from the image.
absl::StatusOr<std::vector<EntryInfo>> ParseHeader(absl::string_view* image) {
  const auto take_line = [image] {
    const size_t end = std::min(image->find('\n'), image->size());
    const absl::string_view line = image->substr(0, std::min<size_t>(end, 200));
    image->remove_prefix(std::min(end + 1, image->size()));
    return line;
  };
  const std::vector<std::string> words = absl::StrSplit(take_line(), ' ');
  int version = 0;
  size_t count = 0;
  if (words.size() != 4 || words[0] != kMagic || !absl::SimpleAtoi(words[1], &version) ||
      !absl::SimpleAtoi(words[3], &count))
    return BadImage("its first line is not \"tessera-simt VERSION TARGET ENTRIES\"");
  if (version != kSimtVersion)
    return BadImage(absl::StrCat("version ", version, ", expected ", kSimtVersion));
  TESSERA_ASSIGN_OR_RETURN(const HostTarget target, FindHostTarget(words[2]));
  if (!CpuRuns(target))
    return BadImage(absl::StrCat("it is for target ", target.name, ", which this CPU is not"));
  std::vector<EntryInfo> entries;
  while (entries.size() < count && !image->empty()) {
    const std::vector<std::string> parts = absl::StrSplit(take_line(), ' ');
    int num_args = 0;
    if (parts.size() != 2 || !absl::SimpleAtoi(parts[1], &num_args))
      return BadImage("a line is not \"ENTRY ARGS\"");
    entries.push_back({parts[0], num_args});
  }
  if (entries.size() != count) return BadImage("it ends before its entries do");
  return entries;
}

class LoadedModule : public SimtModule {
 public:
  LoadedModule(std::vector<EntryInfo> entries, std::shared_ptr<const void> table)
      : entries_(std::move(entries)), table_(std::move(table)) {}

  absl::Status Launch(const SimtLaunch& launch) const override {
    TESSERA_ASSIGN_OR_RETURN(const SimtEntry entry, CheckedEntry(launch));
    BlockRunner block(entry, launch);
    const int64_t blocks = int64_t{launch.grid[0]} * launch.grid[1] * launch.grid[2];
    for (int64_t i = 0; i < blocks; ++i) {
      const int64_t number = launch.reversed ? blocks - 1 - i : i;
      TESSERA_RETURN_IF_ERROR(
          block.Run(static_cast<uint32_t>(number % launch.grid[0]),
                    static_cast<uint32_t>(number / launch.grid[0] % launch.grid[1]),
                    static_cast<uint32_t>(number / launch.grid[0] / launch.grid[1])));
    }
    return absl::OkStatus();
  }

 private:
  // Checks what a driver checks: the entry, the number and the alignment of the arguments, and the
  // limits of the grid, the block and shared memory. The limits are those of every supported GPU,
  // so that a launch which passes here does not fail there.
  absl::StatusOr<SimtEntry> CheckedEntry(const SimtLaunch& launch) const {
    const auto bad = [&](const auto&... what) {
      return MakeError(ErrorKind::kValueError,
                       absl::StrCat("simt: launch of ", launch.entry, ": ", what...));
    };
    const auto entry = std::find_if(entries_.begin(), entries_.end(), [&](const EntryInfo& info) {
      return info.name == launch.entry;
    });
    if (entry == entries_.end()) return bad("the module has no such entry");
    if (static_cast<int>(launch.args.size()) != entry->num_args)
      return bad(launch.args.size(), " arguments; expected ", entry->num_args);
    // Any kernel may move 16 bytes at once, so all are checked alike.
    for (size_t i = 0; i < launch.args.size(); ++i)
      if (launch.args[i] % kBufferAlign != 0)
        return bad("argument ", i, " is not aligned to ", kBufferAlign, " bytes");
    int64_t threads = 1, blocks = 1;
    for (int d = 0; d < 3; ++d) {
      threads *= std::min<int64_t>(launch.block[d], kThreadsMax + 1);
      if (launch.grid[d] > (d == 0 ? 0x7fffffffu : 0xffffu))
        return bad("grid[", d, "] is ", launch.grid[d]);
      blocks *= launch.grid[d];
    }
    if (threads < 1 || threads > kThreadsMax || blocks < 1)
      return bad(threads, " threads a block, ", blocks, " blocks; expected 1 to ", kThreadsMax,
                 " and at least 1");
    if (launch.shared_bytes > kSharedMax)
      return bad(launch.shared_bytes, " bytes of shared memory; at most ", kSharedMax);
    const auto* const table = static_cast<const SimtEntry*>(table_.get());
    return table[entry - entries_.begin()];
  }

  const std::vector<EntryInfo> entries_;
  const std::shared_ptr<const void> table_;
};

}  // namespace

absl::StatusOr<std::string> CompileForSimt(absl::Span<const Kernel> kernels,
                                           absl::Span<const GpuPlan> plans) {
  TESSERA_ASSIGN_OR_RETURN(const HostTarget target, FindHostTarget("host"));
  const std::unique_ptr<llvm::TargetMachine> machine =
      MakeHostMachine(target, llvm::CodeGenOptLevel::Less);
  llvm::LLVMContext context;
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<llvm::Module> module,
                           MakeGpuModule(kernels, plans, machine.get(), &context));
  return MakeImage(target, machine.get(), module.get());
}

absl::StatusOr<std::string> CompileIrForSimt(const std::string& ir) {
  TESSERA_ASSIGN_OR_RETURN(const HostTarget target, FindHostTarget("host"));
  const std::unique_ptr<llvm::TargetMachine> machine =
      MakeHostMachine(target, llvm::CodeGenOptLevel::Less);
  llvm::LLVMContext context;
  llvm::SMDiagnostic fault;
  const std::unique_ptr<llvm::Module> module = llvm::parseAssemblyString(ir, fault, context);
  if (module == nullptr)
    return MakeError(ErrorKind::kValueError, absl::StrCat("simt: line ", fault.getLineNo(), ": ",
                                                          std::string(fault.getMessage())));
  module->setDataLayout(machine->createDataLayout());
  module->setTargetTriple(machine->getTargetTriple().str());
  return MakeImage(target, machine.get(), module.get());
}

absl::StatusOr<std::shared_ptr<const SimtModule>> SimtModule::Load(absl::string_view image) {
  TESSERA_ASSIGN_OR_RETURN(std::vector<EntryInfo> entries, ParseHeader(&image));
  TESSERA_ASSIGN_OR_RETURN(const std::shared_ptr<HostLoader> loader, HostLoader::Create());
  TESSERA_ASSIGN_OR_RETURN(std::shared_ptr<const void> table,
                           loader->Load(std::string(image), kSimtTable));
  return std::make_shared<const LoadedModule>(std::move(entries), std::move(table));
}

}  // namespace tessera::worker::codegen
