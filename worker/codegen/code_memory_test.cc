// Tests of the memory of loaded code: how many mappings it takes, which protections its pages have,
// and that free memory is used again. The first half loads real objects through HostLoader, the
// second half allocates segments through LLVM's interface. Both read /proc/self/maps.
#include "worker/codegen/code_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "llvm/ADT/BitmaskEnum.h"
#include "llvm/ExecutionEngine/JITLink/JITLink.h"
#include "llvm/ExecutionEngine/JITLink/JITLinkMemoryManager.h"
#include "worker/codegen/compile.h"
#include "worker/codegen/host_code.h"
#include "worker/codegen/host_runtime.h"
#include "worker/codegen/loader.h"
#include "worker/codegen/testing/kernel_cases.h"

namespace tessera::worker::codegen {
namespace {

namespace jitlink = llvm::jitlink;
namespace orc = llvm::orc;
using llvm::BitmaskEnumDetail::operator|;
using ::testing::HasSubstr;
using ::testing::Not;

// ---- The mappings of this process. -------------------------------------------------------------

struct Mapping {
  uintptr_t begin = 0, end = 0;
  std::string protection;  // for example "r-xp"
};
std::vector<Mapping> Mappings() {
  std::ifstream maps("/proc/self/maps");
  std::vector<Mapping> out;
  for (std::string line; std::getline(maps, line);) {
    Mapping mapping;
    char dash = 0;
    std::istringstream(line) >> std::hex >> mapping.begin >> dash >> mapping.end >>
        mapping.protection;
    out.push_back(mapping);
  }
  return out;
}
int NumMappings() { return static_cast<int>(Mappings().size()); }
std::string ProtectionAt(uintptr_t address) {
  for (const Mapping& mapping : Mappings())
    if (mapping.begin <= address && address < mapping.end) return mapping.protection;
  return "none";
}
int NumWritableAndExecutable() {
  int count = 0;
  for (const Mapping& mapping : Mappings())
    count += mapping.protection[1] == 'w' && mapping.protection[2] == 'x' ? 1 : 0;
  return count;
}

// The bound on the growth of the number of mappings, including those of the heap. It is a small
// fraction of the number of loads.
constexpr int kMappingsGrowthMax = 100;

const uintptr_t kPage = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
uintptr_t Address(const std::shared_ptr<const void>& function) {
  return reinterpret_cast<uintptr_t>(function.get());
}

// ---- Kernels. ----------------------------------------------------------------------------------

// Returns an object that computes p1[i] = p0[i] + addend.
std::string AdderObject(int addend) {
  const absl::StatusOr<Kernel> kernel =
      ParseKernel(absl::StrCat("kernel [100] reduced 0\nin s32 100\nout s32 100\n%0 = load p0 [0: "
                               "1] : s32\n%1 = Constant ",
                               addend, " : s32\n%2 = Add %0, %1 : s32\nstore %2 p1 [0: 1]\n"));
  TESSERA_CHECK_OK(kernel);
  const absl::StatusOr<HostTarget> target = FindHostTarget("host");
  TESSERA_CHECK_OK(target);
  absl::StatusOr<std::string> object = HostCodegen(*target).Compile(*kernel);
  TESSERA_CHECK_OK(object);
  return *std::move(object);
}

int AddedTo5(const std::shared_ptr<const void>& function) {
  std::vector<int32_t> in(100, 5), out(100, -1);
  void* const buffers[] = {in.data(), out.data()};
  HostCode({function}, 1).function(0)(buffers, 0, 100);
  return out[99];
}

class LoadedCode : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int addend = 0; addend < kAdders; ++addend) objects_.push_back(AdderObject(addend));
    TESSERA_ASSERT_OK_AND_ASSIGN(loader_, HostLoader::Create());
  }
  std::shared_ptr<const void> Load(int addend) {
    auto function = loader_->Load(objects_[addend], kFunctionName);
    EXPECT_THAT(function, IsOk());
    return function.ok() ? *function : nullptr;
  }

  static constexpr int kAdders = 4;
  std::vector<std::string> objects_;
  std::shared_ptr<HostLoader> loader_;
};

TEST_F(LoadedCode, ThousandsOfObjectsTakeFewMappings) {
  constexpr int kLoads = 4000;
  const int before = NumMappings();
  std::vector<std::shared_ptr<const void>> functions;
  for (int i = 0; i < kLoads; ++i) {
    functions.push_back(Load(i % kAdders));
    ASSERT_NE(functions.back(), nullptr);
  }
  EXPECT_LT(NumMappings() - before, kMappingsGrowthMax);
  for (int i = 0; i < kLoads; ++i) ASSERT_EQ(AddedTo5(functions[i]), 5 + i % kAdders);

  // Every other object is unloaded, and the next objects are loaded into the freed pages.
  std::set<uintptr_t> freed;
  for (int i = 0; i < kLoads; i += 2) {
    freed.insert(Address(functions[i]) / kPage);
    functions[i] = nullptr;
  }
  EXPECT_LT(NumMappings() - before, kMappingsGrowthMax);
  for (int i = 1; i < kLoads; i += 2) ASSERT_EQ(AddedTo5(functions[i]), 5 + i % kAdders);
  for (int i = 0; i < kLoads; i += 2) {
    functions[i] = Load(i % kAdders);
    ASSERT_NE(functions[i], nullptr);
    EXPECT_EQ(freed.count(Address(functions[i]) / kPage), 1);
  }
  EXPECT_LT(NumMappings() - before, kMappingsGrowthMax);
  EXPECT_EQ(NumWritableAndExecutable(), 0);
  for (int i = 0; i < kLoads; ++i) ASSERT_EQ(AddedTo5(functions[i]), 5 + i % kAdders);
}

TEST_F(LoadedCode, IsReadOnlyAndExecutableUntilItIsUnloaded) {
  std::shared_ptr<const void> function = Load(1);
  const uintptr_t address = Address(function);
  EXPECT_EQ(ProtectionAt(address), "r-xp");
  function = nullptr;
  EXPECT_EQ(ProtectionAt(address), "---p");
}

TEST_F(LoadedCode, ThreadsLoadAndUnloadConcurrently) {
  constexpr int kThreads = 4, kLoads = 400;
  const int before = NumMappings();
  std::vector<std::vector<std::shared_ptr<const void>>> functions(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kLoads; ++i) {
        functions[t].push_back(Load(t));
        ASSERT_NE(functions[t].back(), nullptr);
        ASSERT_EQ(AddedTo5(functions[t].back()), 5 + t);
        if (i % 3 == 0) functions[t][i / 2] = nullptr;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int t = 0; t < kThreads; ++t) {
    for (const auto& function : functions[t]) {
      if (function == nullptr) continue;
      EXPECT_EQ(AddedTo5(function), 5 + t);
    }
  }
  EXPECT_LT(NumMappings() - before, kMappingsGrowthMax);
  EXPECT_EQ(NumWritableAndExecutable(), 0);
}

TEST_F(LoadedCode, AnObjectThatDoesNotLinkSaysWhy) {
  // The kernel calls a function of host_runtime.h, by a name that does not exist.
  const Kernel kernel = KernelOfPrim(ir::ScalarPrim::kPow, ir::DType::kF64, ir::DType::kF64, 100);
  TESSERA_ASSERT_OK_AND_ASSIGN(const HostTarget target, FindHostTarget("host"));
  TESSERA_ASSERT_OK_AND_ASSIGN(std::string object, HostCodegen(target).Compile(kernel));
  std::string missing;
  for (const HostSymbol& symbol : HostSymbols()) {
    const size_t at = object.find('\0' + symbol.name + '\0');
    if (at == std::string::npos) continue;
    missing = symbol.name;
    missing.back() = '!';
    object.replace(at + 1, missing.size(), missing);
  }
  ASSERT_NE(missing, "");
  EXPECT_THAT(loader_->Load(object, kFunctionName), ReasonIs("INTERNAL", HasSubstr(missing)));
  // The error of the next failure tells its own cause, and not the cause of this one.
  EXPECT_THAT(
      loader_->Load(objects_[0], "no_such_name"),
      ReasonIs("INTERNAL", ::testing::AllOf(HasSubstr("no_such_name"), Not(HasSubstr(missing)))));
  EXPECT_EQ(AddedTo5(Load(2)), 7);
}

// ---- Segments. ---------------------------------------------------------------------------------

constexpr orc::MemProt kRead = orc::MemProt::Read;
constexpr orc::MemProt kReadWrite = orc::MemProt::Read | orc::MemProt::Write;
constexpr orc::MemProt kReadExec = orc::MemProt::Read | orc::MemProt::Exec;

using Segments = jitlink::SimpleSegmentAlloc::SegmentMap;
using Finalized = jitlink::JITLinkMemoryManager::FinalizedAlloc;

class CodeMemoryTest : public ::testing::Test {
 protected:
  void UseRegionsOf(uintptr_t pages) { memory_ = NewCodeMemory(pages * kPage); }

  jitlink::SimpleSegmentAlloc Allocate(Segments segments) {
    return llvm::cantFail(
        jitlink::SimpleSegmentAlloc::Create(*memory_, nullptr, std::move(segments)));
  }
  // Returns "" if the segments can be allocated.
  std::string ErrorOf(Segments segments) {
    auto allocated = jitlink::SimpleSegmentAlloc::Create(*memory_, nullptr, std::move(segments));
    if (!allocated) return llvm::toString(allocated.takeError());
    llvm::cantFail(memory_->deallocate(llvm::cantFail(allocated->finalize())));
    return "";
  }
  // Allocates code of `pages` pages, and remembers it.
  uintptr_t AllocateCode(uintptr_t pages) {
    auto allocated = Allocate({{kReadExec, {pages * kPage, llvm::Align(16)}}});
    const auto info = allocated.getSegInfo(kReadExec);
    std::memset(info.WorkingMem.data(), 0xcc, info.WorkingMem.size());
    code_.push_back(llvm::cantFail(allocated.finalize()));
    return info.Addr.getValue();
  }
  void TearDown() override { llvm::cantFail(memory_->deallocate(std::move(code_))); }

  std::unique_ptr<jitlink::JITLinkMemoryManager> memory_ = NewCodeMemory();
  std::vector<Finalized> code_;
};

TEST_F(CodeMemoryTest, SegmentsHaveTheirProtectionsAndContents) {
  auto allocated = Allocate({{kRead, {100, llvm::Align(8)}},
                             {kReadWrite, {kPage + 1, llvm::Align(64)}},
                             {kReadExec, {3, llvm::Align(16)}}});
  std::vector<uintptr_t> at;
  for (const orc::MemProt prot : {kRead, kReadWrite, kReadExec}) {
    const auto info = allocated.getSegInfo(prot);
    at.push_back(info.Addr.getValue());
    std::memset(info.WorkingMem.data(), static_cast<int>(prot), info.WorkingMem.size());
    EXPECT_EQ(ProtectionAt(at.back()), "rw-p");
  }
  Finalized finalized = llvm::cantFail(allocated.finalize());
  EXPECT_EQ(ProtectionAt(at[0]), "r--p");
  EXPECT_EQ(ProtectionAt(at[1]), "rw-p");
  EXPECT_EQ(ProtectionAt(at[1] + kPage), "rw-p");
  EXPECT_EQ(ProtectionAt(at[2]), "r-xp");
  EXPECT_EQ(*reinterpret_cast<const char*>(at[0] + 99), static_cast<char>(kRead));
  EXPECT_EQ(*reinterpret_cast<const char*>(at[1] + kPage), static_cast<char>(kReadWrite));
  EXPECT_EQ(*reinterpret_cast<const char*>(at[2] + 2), static_cast<char>(kReadExec));
  for (const uintptr_t a : at)
    for (const uintptr_t b : at)
      EXPECT_LT(static_cast<int64_t>(a) - static_cast<int64_t>(b), kCodeRegionBytes);
  llvm::cantFail(memory_->deallocate(std::move(finalized)));
  for (const uintptr_t a : at) EXPECT_EQ(ProtectionAt(a), "---p");
}

TEST_F(CodeMemoryTest, FinalizeOnlySegmentsAreFreedAtFinalization) {
  const orc::AllocGroup scratch(kRead, orc::MemLifetime::Finalize);
  auto allocated = Allocate({{kReadExec, {10, llvm::Align(16)}}, {scratch, {10, llvm::Align(16)}}});
  const uintptr_t at = allocated.getSegInfo(scratch).Addr.getValue();
  const uintptr_t code = allocated.getSegInfo(kReadExec).Addr.getValue();
  EXPECT_EQ(ProtectionAt(at), "rw-p");
  code_.push_back(llvm::cantFail(allocated.finalize()));
  EXPECT_EQ(ProtectionAt(at), "---p");
  EXPECT_EQ(ProtectionAt(code), "r-xp");
}

TEST_F(CodeMemoryTest, AbandonedMemoryIsFree) {
  jitlink::LinkGraph graph("test", llvm::Triple(), 8, llvm::endianness::native, nullptr);
  const std::string content = "content";
  jitlink::Section& section = graph.createSection("code", kReadExec);
  graph.createContentBlock(section, llvm::ArrayRef<char>(content.data(), content.size()),
                           orc::ExecutorAddr(0x1000), 8, 0);
  auto in_flight = llvm::cantFail(memory_->allocate(nullptr, graph));
  const uintptr_t at = (*section.blocks().begin())->getAddress().getValue();
  EXPECT_EQ(ProtectionAt(at), "rw-p");
  in_flight->abandon([](llvm::Error error) { llvm::cantFail(std::move(error)); });
  EXPECT_EQ(ProtectionAt(at), "---p");
  EXPECT_EQ(AllocateCode(1), at);
}

TEST_F(CodeMemoryTest, ZeroFillBlocksAreZeroInReusedMemory) {
  const uintptr_t used = AllocateCode(2);
  llvm::cantFail(memory_->deallocate(std::exchange(code_[0], Finalized())));
  code_.clear();
  jitlink::LinkGraph graph("test", llvm::Triple(), 8, llvm::endianness::native, nullptr);
  const int64_t size = static_cast<int64_t>(kPage) + 10;
  graph.createZeroFillBlock(graph.createSection("code", kReadExec), size, orc::ExecutorAddr(0x1000),
                            8, 0);
  code_.push_back(llvm::cantFail(llvm::cantFail(memory_->allocate(nullptr, graph))->finalize()));
  const auto* const bytes = reinterpret_cast<const uint8_t*>(used);
  EXPECT_EQ((*graph.findSectionByName("code")->blocks().begin())->getAddress().getValue(), used);
  EXPECT_EQ(std::count(bytes, bytes + size, 0), size);
}

TEST_F(CodeMemoryTest, ActionsRunAtFinalizationAndInReverseOrderWhenFreed) {
  static std::string* const log = new std::string;
  log->clear();
  const auto action = +[](const char* data, size_t size) {
    log->append(data, size);
    orc::shared::CWrapperFunctionResult result{};
    const bool fails = size > 0 && data[size - 1] == '!';
    if (fails) return orc::shared::WrapperFunctionResult::createOutOfBandError("no").release();
    // This is the serialised form of Error::success().
    result.Size = 1;
    return result;
  };
  const auto call = [&](const std::string& text) {
    return orc::shared::WrapperFunctionCall(
        orc::ExecutorAddr::fromPtr(action),
        orc::shared::WrapperFunctionCall::ArgDataBufferType(text.begin(), text.end()));
  };
  for (const bool fails : {false, true}) {
    jitlink::LinkGraph graph("test", llvm::Triple(), 8, llvm::endianness::native, nullptr);
    graph.createZeroFillBlock(graph.createSection("code", kReadExec), 10, orc::ExecutorAddr(0x1000),
                              8, 0);
    auto in_flight = llvm::cantFail(memory_->allocate(nullptr, graph));
    const uintptr_t at =
        (*graph.findSectionByName("code")->blocks().begin())->getAddress().getValue();
    graph.allocActions() = {{call("a"), call("b")}, {call(fails ? "c!" : "c"), call("d")}};
    auto finalized = in_flight->finalize();
    if (fails) {
      EXPECT_EQ(llvm::toString(finalized.takeError()), "no");
      EXPECT_EQ(*log, "ac!b");
    } else {
      EXPECT_EQ(*log, "ac");
      llvm::cantFail(memory_->deallocate(llvm::cantFail(std::move(finalized))));
      EXPECT_EQ(*log, "acdb");
    }
    EXPECT_EQ(ProtectionAt(at), "---p");
    log->clear();
  }
}

TEST_F(CodeMemoryTest, AFreePageBetweenPagesInUseKeepsItsProtectionAndReadsAsZero) {
  UseRegionsOf(16);
  const uintptr_t first = AllocateCode(1), second = AllocateCode(1), third = AllocateCode(1);
  EXPECT_EQ(second, first + kPage);
  EXPECT_EQ(third, second + kPage);
  llvm::cantFail(memory_->deallocate(std::exchange(code_[1], Finalized())));
  EXPECT_EQ(ProtectionAt(second), "r-xp");
  EXPECT_EQ(*reinterpret_cast<const uint8_t*>(second), 0);
  EXPECT_EQ(*reinterpret_cast<const uint8_t*>(first), 0xcc);
  EXPECT_EQ(*reinterpret_cast<const uint8_t*>(third), 0xcc);
  // The free second page and the third page, which was the last one in use, become part of the
  // inaccessible rest of the area.
  llvm::cantFail(memory_->deallocate(std::exchange(code_[2], Finalized())));
  EXPECT_EQ(ProtectionAt(second), "---p");
  EXPECT_EQ(ProtectionAt(third), "---p");
  EXPECT_EQ(ProtectionAt(first), "r-xp");
  code_.resize(1);
  EXPECT_EQ(AllocateCode(2), second);
}

TEST_F(CodeMemoryTest, AFullRegionIsFollowedByANewOne) {
  // A region of 8 pages has 4 pages for code.
  UseRegionsOf(8);
  const uintptr_t first = AllocateCode(3), second = AllocateCode(2), third = AllocateCode(1);
  EXPECT_NE(second, first + 3 * kPage);
  EXPECT_EQ(third, first + 3 * kPage);
  EXPECT_EQ(AllocateCode(2), second + 2 * kPage);
  // All parts of an object come from one region.
  auto allocated =
      Allocate({{kRead, {1, llvm::Align(1)}}, {kReadExec, {2 * kPage, llvm::Align(1)}}});
  const uintptr_t constants = allocated.getSegInfo(kRead).Addr.getValue();
  EXPECT_EQ(constants - allocated.getSegInfo(kReadExec).Addr.getValue(), 4 * kPage);
  code_.push_back(llvm::cantFail(allocated.finalize()));
}

TEST_F(CodeMemoryTest, ImpossibleAllocationsAreErrors) {
  EXPECT_THAT(ErrorOf({{kReadWrite | kReadExec, {1, llvm::Align(1)}}}),
              HasSubstr("writable and executable"));
  EXPECT_THAT(ErrorOf({{kRead, {1, llvm::Align(2 * kPage)}}}), HasSubstr("aligned to"));
  UseRegionsOf(8);
  EXPECT_THAT(ErrorOf({{kReadExec, {4 * kPage + 1, llvm::Align(1)}}}), HasSubstr("larger than"));
  EXPECT_THAT(ErrorOf({{kReadExec, {9 * kPage, llvm::Align(1)}}}), HasSubstr("larger than"));
  EXPECT_EQ(ErrorOf({{kReadExec, {4 * kPage, llvm::Align(1)}}}), "");
  // No address space has room for this region.
  memory_ = NewCodeMemory(int64_t{1} << 60);
  EXPECT_THAT(ErrorOf({{kReadExec, {1, llvm::Align(1)}}}),
              ::testing::AllOf(HasSubstr("mmap"), HasSubstr("Cannot allocate memory")));
}

}  // namespace
}  // namespace tessera::worker::codegen
