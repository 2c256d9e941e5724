// Links compiled objects into this process. host_code.cc calls Load for each object that it has
// compiled or read from its cache. Every object gets a library of its own, so that it can be
// unloaded alone and sees only the symbols of host_runtime.h.
#include "worker/codegen/loader.h"

#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "llvm/ExecutionEngine/JITLink/JITLinkMemoryManager.h"
#include "llvm/ExecutionEngine/Orc/Core.h"
#include "llvm/ExecutionEngine/Orc/ExecutorProcessControl.h"
#include "llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h"
#include "llvm/Support/MemoryBuffer.h"
#include "worker/codegen/code_memory.h"
#include "worker/codegen/host_runtime.h"

namespace tessera::worker::codegen {
namespace {

namespace orc = llvm::orc;

absl::Status LoadError(const std::string& cause) {
  return MakeError(ErrorKind::kInternal, absl::StrCat("codegen: an object does not load: ", cause));
}

// The first error that the session reported during this thread's current load. The error of a
// failed look-up only names the missing symbols. The session reports the cause, on the same thread,
// while it links.
std::string& ReportedCause() {
  thread_local std::string cause;
  return cause;
}
void Report(llvm::Error error) {
  std::string text = llvm::toString(std::move(error));
  if (ReportedCause().empty()) ReportedCause() = std::move(text);
}

class OrcLoader : public HostLoader {
 public:
  explicit OrcLoader(std::unique_ptr<orc::ExecutorProcessControl> control)
      : session_(std::make_unique<orc::ExecutionSession>(std::move(control))),
        layer_(*session_, session_->getExecutorProcessControl().getMemMgr()),
        runtime_(session_->createBareJITDylib("runtime")) {
    session_->setErrorReporter(Report);
    orc::SymbolMap symbols;
    for (const HostSymbol& symbol : HostSymbols()) {
      symbols[session_->intern(symbol.name)] = {orc::ExecutorAddr::fromPtr(symbol.address),
                                                llvm::JITSymbolFlags::Exported};
    }
    llvm::cantFail(runtime_.define(orc::absoluteSymbols(std::move(symbols))));
  }
  ~OrcLoader() override { llvm::consumeError(session_->endSession()); }

  absl::StatusOr<std::shared_ptr<const void>> Load(const std::string& object,
                                                   const std::string& name) override {
    orc::JITDylib& library = session_->createBareJITDylib(absl::StrCat("kernel", next_++));
    const auto self = std::static_pointer_cast<OrcLoader>(shared_from_this());
    const std::shared_ptr<const void> mapped(&library, [self, &library](const void*) {
      llvm::consumeError(self->session_->removeJITDylib(library));
    });
    library.addToLinkOrder(runtime_);
    ReportedCause().clear();
    if (llvm::Error error =
            layer_.add(library, llvm::MemoryBuffer::getMemBufferCopy(object, "kernel"))) {
      return LoadError(llvm::toString(std::move(error)));
    }
    llvm::Expected<orc::ExecutorSymbolDef> found =
        session_->lookup({&library}, session_->intern(name));
    if (!found) {
      const std::string lookup_error = llvm::toString(found.takeError());
      return LoadError(ReportedCause().empty() ? lookup_error : ReportedCause());
    }
    return std::shared_ptr<const void>(mapped, found->getAddress().toPtr<const void*>());
  }

 private:
  const std::unique_ptr<orc::ExecutionSession> session_;
  orc::ObjectLinkingLayer layer_;
  orc::JITDylib& runtime_;
  std::atomic<int64_t> next_{0};
};

}  // namespace

absl::StatusOr<std::shared_ptr<HostLoader>> HostLoader::Create() {
  // Links on the calling thread, so that ReportedCause belongs to the right load.
  auto control = orc::SelfExecutorProcessControl::Create(
      nullptr, std::make_unique<orc::InPlaceTaskDispatcher>(), NewCodeMemory());
  if (!control) return LoadError(llvm::toString(control.takeError()));
  return std::make_shared<OrcLoader>(std::move(*control));
}

}  // namespace tessera::worker::codegen
