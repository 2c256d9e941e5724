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
#include "worker/codegen/host_runtime.h"

namespace tessera::worker::codegen {
namespace {

namespace orc = llvm::orc;

absl::Status Failed(llvm::Error error) {
  return MakeError(ErrorKind::kInternal, absl::StrCat("codegen: an object does not load: ",
                                                      llvm::toString(std::move(error))));
}

class OrcLoader : public HostLoader {
 public:
  explicit OrcLoader(std::unique_ptr<orc::ExecutorProcessControl> control)
      : session_(std::make_unique<orc::ExecutionSession>(std::move(control))),
        layer_(*session_, session_->getExecutorProcessControl().getMemMgr()),
        runtime_(session_->createBareJITDylib("runtime")) {
    // A failed look-up is reported by its return value alone.
    session_->setErrorReporter([](llvm::Error error) { llvm::consumeError(std::move(error)); });
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
    if (llvm::Error error =
            layer_.add(library, llvm::MemoryBuffer::getMemBufferCopy(object, "kernel"))) {
      return Failed(std::move(error));
    }
    llvm::Expected<orc::ExecutorSymbolDef> found =
        session_->lookup({&library}, session_->intern(name));
    if (!found) return Failed(found.takeError());
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
  // Links on the calling thread.
  auto control = orc::SelfExecutorProcessControl::Create(
      nullptr, std::make_unique<orc::InPlaceTaskDispatcher>());
  if (!control) return Failed(control.takeError());
  return std::make_shared<OrcLoader>(std::move(*control));
}

}  // namespace tessera::worker::codegen
