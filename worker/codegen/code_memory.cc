// The memory manager of the JIT linker in loader.cc. The linker asks it for memory for each object,
// fills the segments while they are writable, and finalizes them, which makes code executable and
// constants read-only.
#include "worker/codegen/code_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/log.h"
#include "llvm/ADT/BitmaskEnum.h"
#include "llvm/ExecutionEngine/JITLink/JITLink.h"
#include "llvm/ExecutionEngine/JITLink/JITLinkMemoryManager.h"
#include "llvm/Support/Memory.h"
#include "worker/codegen/page_runs.h"

namespace tessera::worker::codegen {
namespace {

namespace jitlink = llvm::jitlink;
namespace orc = llvm::orc;
using llvm::BitmaskEnumDetail::operator&;

void* Pointer(uintptr_t address) { return reinterpret_cast<void*>(address); }

llvm::Error MemoryError(const std::string& text, std::errc code) {
  return llvm::make_error<llvm::StringError>("memory for code: " + text,
                                             std::make_error_code(code));
}

// Returns the error of a system call on `bytes` bytes, from errno.
llvm::Error SystemError(const std::string& call, uintptr_t bytes) {
  const int error = errno;
  return MemoryError(
      absl::StrCat(call, " of ", bytes, " bytes: ", std::strerror(error),
                   error == ENOMEM ? "; memory, address space or vm.max_map_count is used up" : ""),
      std::errc(error));
}

llvm::Error Protect(PageRun run, int protection) {
  if (mprotect(Pointer(run.begin), run.bytes(), protection) == 0) return llvm::Error::success();
  return SystemError("mprotect", run.bytes());
}

// A span of address space. All of its pages have the same protection once they are in use.
class Area {
 public:
  Area(PageRun span, int protection) : span_(span), protection_(protection), free_(span) {}

  // Takes pages, which are zeroed and stay writable until they are protected. Returns nullopt if
  // the area is full.
  llvm::Expected<std::optional<PageRun>> Take(uintptr_t bytes) {
    absl::MutexLock lock(&mu_);
    const std::optional<PageRun> run = free_.Take(bytes);
    if (!run) return std::nullopt;
    if (llvm::Error error = Protect(*run, PROT_READ | PROT_WRITE)) {
      GiveLocked(*run);
      return error;
    }
    // The pages are written under the lock, so that a page is first touched after the page before
    // it. Only then does the operating system let the page share the anon_vma (the record of who
    // shares anonymous memory) of the page before it. Mappings with different anon_vmas never
    // merge.
    std::memset(Pointer(run->begin), 0, run->bytes());
    return run;
  }

  void Give(PageRun run) {
    // If this fails, as for locked memory, the pages merely stay in memory.
    madvise(Pointer(run.begin), run.bytes(), MADV_DONTNEED);
    absl::MutexLock lock(&mu_);
    GiveLocked(run);
  }

 private:
  void GiveLocked(PageRun run) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const PageRun whole = free_.Give(run);
    // If this fails, the pages keep a harmless protection, in a mapping of their own.
    llvm::consumeError(whole.end == span_.end ? Protect(whole, PROT_NONE)
                                              : Protect(run, protection_));
  }

  const PageRun span_;
  const int protection_;
  absl::Mutex mu_;
  PageRuns free_ ABSL_GUARDED_BY(mu_);
};

// Owns pages of an area, and gives them back in its destructor.
class Pages {
 public:
  Pages(Area* area, PageRun run) : area_(area), run_(run) {}
  Pages(Pages&& other) noexcept : area_(std::exchange(other.area_, nullptr)), run_(other.run_) {}
  Pages& operator=(Pages&&) = delete;
  ~Pages() {
    if (area_ != nullptr) area_->Give(run_);
  }

  PageRun run() const { return run_; }

 private:
  Area* area_;
  const PageRun run_;
};

// A segment of an object: blocks with one protection and one lifetime.
struct Segment {
  Pages pages;
  int protection;
  bool finalize_only;  // whether it is needed only until the object is finalized
};

// One reservation of address space. The sizes of its areas suit most objects, which need a page or
// two of code, a page of constants, and no variables.
class Region {
 public:
  static llvm::Expected<std::unique_ptr<Region>> Reserve(uintptr_t bytes) {
    void* const memory =
        mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return SystemError("mmap", bytes);
    const auto begin = reinterpret_cast<uintptr_t>(memory);
    return std::make_unique<Region>(PageRun{begin, begin + bytes});
  }

  explicit Region(PageRun span)
      : span_(span),
        code_(Eighths(0, 4), PROT_READ | PROT_EXEC),
        constants_(Eighths(4, 7), PROT_READ),
        variables_(Eighths(7, 8), PROT_READ | PROT_WRITE) {}
  ~Region() { munmap(Pointer(span_.begin), span_.bytes()); }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  Area& AreaOf(int protection) {
    if ((protection & PROT_EXEC) != 0) return code_;
    return (protection & PROT_WRITE) != 0 ? variables_ : constants_;
  }

 private:
  PageRun Eighths(uintptr_t begin, uintptr_t end) const {
    const uintptr_t eighth = span_.bytes() / 8;
    return {span_.begin + begin * eighth, span_.begin + end * eighth};
  }

  const PageRun span_;
  Area code_, constants_, variables_;
};

int ProtectionOf(orc::MemProt prot) {
  const auto has = [prot](orc::MemProt bit) { return (prot & bit) != orc::MemProt::None; };
  return (has(orc::MemProt::Read) ? PROT_READ : 0) | (has(orc::MemProt::Write) ? PROT_WRITE : 0) |
         (has(orc::MemProt::Exec) ? PROT_EXEC : 0);
}

// The memory that one object needs for a segment.
struct SegmentNeed {
  jitlink::BasicLayout::Segment* segment;
  uintptr_t bytes;
  int protection;
  bool finalize_only;
};

// The record to which a FinalizedAlloc points.
struct FinalizedSegments {
  std::vector<Segment> segments;
  std::vector<orc::shared::WrapperFunctionCall> dealloc_actions;
};

class InFlightSegments : public jitlink::JITLinkMemoryManager::InFlightAlloc {
 public:
  InFlightSegments(jitlink::LinkGraph* graph, std::vector<Segment> segments)
      : graph_(graph), segments_(std::move(segments)) {}

  void finalize(OnFinalizedFunction done) override { done(Finalize()); }
  void abandon(OnAbandonedFunction done) override {
    segments_.clear();
    done(llvm::Error::success());
  }

 private:
  llvm::Expected<jitlink::JITLinkMemoryManager::FinalizedAlloc> Finalize() {
    // Segments that are not moved to `finalized` are given back when this function returns.
    auto finalized = std::make_unique<FinalizedSegments>();
    std::vector<Segment> segments = std::move(segments_);
    for (const Segment& segment : segments) {
      const PageRun run = segment.pages.run();
      if (llvm::Error error = Protect(run, segment.protection)) return error;
      if ((segment.protection & PROT_EXEC) != 0)
        llvm::sys::Memory::InvalidateInstructionCache(Pointer(run.begin), run.bytes());
    }
    auto dealloc_actions = orc::shared::runFinalizeActions(graph_->allocActions());
    if (!dealloc_actions) return dealloc_actions.takeError();
    finalized->dealloc_actions = std::move(*dealloc_actions);
    for (Segment& segment : segments)
      if (!segment.finalize_only) finalized->segments.push_back(std::move(segment));
    return jitlink::JITLinkMemoryManager::FinalizedAlloc(
        orc::ExecutorAddr::fromPtr(finalized.release()));
  }

  jitlink::LinkGraph* const graph_;
  std::vector<Segment> segments_;
};

class CodeMemory : public jitlink::JITLinkMemoryManager {
 public:
  explicit CodeMemory(int64_t region_bytes)
      : page_bytes_(static_cast<uintptr_t>(sysconf(_SC_PAGESIZE))),
        region_bytes_(static_cast<uintptr_t>(region_bytes)) {
    TESSERA_CHECK(region_bytes_ > 0 && region_bytes_ % (8 * page_bytes_) == 0);
  }

  using jitlink::JITLinkMemoryManager::allocate;
  using jitlink::JITLinkMemoryManager::deallocate;

  void allocate(const jitlink::JITLinkDylib*, jitlink::LinkGraph& graph,
                OnAllocatedFunction done) override {
    done(Allocate(graph));
  }

  void deallocate(std::vector<FinalizedAlloc> allocs, OnDeallocatedFunction done) override {
    llvm::Error errors = llvm::Error::success();
    for (auto alloc = allocs.rbegin(); alloc != allocs.rend(); ++alloc) {
      const std::unique_ptr<FinalizedSegments> finalized(
          alloc->release().toPtr<FinalizedSegments*>());
      errors = llvm::joinErrors(std::move(errors),
                                orc::shared::runDeallocActions(finalized->dealloc_actions));
    }
    done(std::move(errors));
  }

 private:
  llvm::Expected<std::unique_ptr<InFlightAlloc>> Allocate(jitlink::LinkGraph& graph) {
    jitlink::BasicLayout layout(graph);
    llvm::Expected<std::vector<SegmentNeed>> needs = NeedsOf(layout);
    if (!needs) return needs.takeError();
    llvm::Expected<std::vector<Segment>> segments = Place(*needs);
    if (!segments) return segments.takeError();
    for (size_t i = 0; i < needs->size(); ++i) {
      const uintptr_t begin = (*segments)[i].pages.run().begin;
      (*needs)[i].segment->Addr = orc::ExecutorAddr(begin);
      (*needs)[i].segment->WorkingMem = static_cast<char*>(Pointer(begin));
    }
    if (llvm::Error error = layout.apply()) return error;
    return std::make_unique<InFlightSegments>(&graph, std::move(*segments));
  }

  llvm::Expected<std::vector<SegmentNeed>> NeedsOf(jitlink::BasicLayout& layout) const {
    std::vector<SegmentNeed> needs;
    for (auto& [group, segment] : layout.segments()) {
      const int protection = ProtectionOf(group.getMemProt());
      if ((protection & PROT_WRITE) != 0 && (protection & PROT_EXEC) != 0)
        return MemoryError("a segment is writable and executable; it must be one of them",
                           std::errc::permission_denied);
      if (segment.Alignment.value() > page_bytes_)
        return MemoryError(absl::StrCat("a segment is aligned to ", segment.Alignment.value(),
                                        " bytes; a page has ", page_bytes_),
                           std::errc::invalid_argument);
      // Each term is bounded by itself, so that neither the sum nor the rounding wraps around.
      if (segment.ContentSize > region_bytes_ || segment.ZeroFillSize > region_bytes_)
        return TooLarge();
      const uintptr_t bytes = segment.ContentSize + segment.ZeroFillSize;
      needs.push_back({&segment, std::max(llvm::alignTo(bytes, page_bytes_), page_bytes_),
                       protection, group.getMemLifetime() == orc::MemLifetime::Finalize});
    }
    return needs;
  }

  llvm::Expected<std::vector<Segment>> Place(const std::vector<SegmentNeed>& needs)
      ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    for (const std::unique_ptr<Region>& region : regions_) {
      auto segments = PlaceIn(*region, needs);
      if (!segments) return segments.takeError();
      if (*segments) return std::move(**segments);
    }
    llvm::Expected<std::unique_ptr<Region>> region = Region::Reserve(region_bytes_);
    if (!region) return region.takeError();
    auto segments = PlaceIn(**region, needs);
    if (!segments) return segments.takeError();
    if (!*segments) return TooLarge();
    regions_.push_back(std::move(*region));
    return std::move(**segments);
  }

  // Returns nullopt if an area is full.
  static llvm::Expected<std::optional<std::vector<Segment>>> PlaceIn(
      Region& region, const std::vector<SegmentNeed>& needs) {
    std::vector<Segment> segments;
    for (const SegmentNeed& need : needs) {
      Area& area = region.AreaOf(need.protection);
      llvm::Expected<std::optional<PageRun>> run = area.Take(need.bytes);
      if (!run) return run.takeError();
      if (!*run) return std::nullopt;
      segments.push_back({Pages(&area, **run), need.protection, need.finalize_only});
    }
    return segments;
  }

  llvm::Error TooLarge() const {
    return MemoryError(absl::StrCat("an object is larger than a region of ", region_bytes_,
                                    " bytes, half of which is for code"),
                       std::errc::not_enough_memory);
  }

  const uintptr_t page_bytes_;
  const uintptr_t region_bytes_;
  absl::Mutex mu_;
  std::vector<std::unique_ptr<Region>> regions_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

std::unique_ptr<jitlink::JITLinkMemoryManager> NewCodeMemory(int64_t region_bytes) {
  return std::make_unique<CodeMemory>(region_bytes);
}

}  // namespace tessera::worker::codegen
