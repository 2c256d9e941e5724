// The two ends of a compilation in a child process. host_code.cc and device_code.cc call
// CompileChild in the executor, and RunCompileChild runs in the child. Kernels are sent as text.
// The child parses and verifies the text, so that it does not have to trust its input.
#include "worker/codegen/compile_child.h"

#include <algorithm>
#include <map>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "worker/codegen/compile.h"

namespace tessera::worker::codegen {
namespace {

// A request is a line with the target, followed by the texts of the kernels, separated by
// kSeparator, or by the text of a loop of kernels. A reply is kObjectReply and the object, or
// kErrorReply and the message.
constexpr char kSeparator[] = "--\n";
constexpr char kObjectReply = 'o', kErrorReply = 'e';
constexpr char kCompileTitle[] = "tessera-compile";

absl::Status TimeoutError(const std::string& label) {
  return MakeError(ErrorKind::kCompileTimeout,
                   absl::StrCat("compile of ", label,
                                ": the program was not compiled within compile_timeout_ms, and "
                                "the compiler was stopped; retry, split the program, or raise "
                                "the limit"));
}

}  // namespace

absl::StatusOr<std::string> CompileChild::Compile(absl::Span<const Kernel> kernels,
                                                  const std::string& label, absl::Time deadline) {
  return CompileText(absl::StrJoin(kernels, kSeparator,
                                   [](std::string* out, const Kernel& kernel) {
                                     absl::StrAppend(out, kernel.ToString());
                                   }),
                     label, deadline);
}

absl::StatusOr<std::string> CompileChild::CompileText(const std::string& text,
                                                      const std::string& label,
                                                      absl::Time deadline) {
  absl::MutexLock lock(&mu_);
  if (deadline <= SteadyNow()) return TimeoutError(label);
  JailEnd end;
  const std::optional<std::string> reply =
      process_.Call(absl::StrCat(target_, "\n", text), deadline, &end);
  if (reply && !reply->empty()) {
    if ((*reply)[0] == kObjectReply) return reply->substr(1);
    return MakeError(ErrorKind::kInternal,
                     absl::StrCat("compile of ", label, ": ", absl::string_view(*reply).substr(1)));
  }
  if (end.cause == JailEnd::Cause::kWall) {
    TESSERA_LOG(WARNING) << "a program is not compiled in time" << Field("kernel", label);
    return TimeoutError(label);
  }
  const std::string how = absl::StrCat("the compiler ", reply ? "sent an empty reply" : end.how);
  TESSERA_LOG(ERROR) << "a kernel does not compile" << Field("kernel", label) << Field("how", how);
  return MakeError(ErrorKind::kInternal, absl::StrCat("compile of ", label, ": ", how,
                                                      "; please report it with the kernel"));
}

CompileChild::CompileChild(CompileChildOptions options)
    : target_(std::move(options.target)),
      process_({.binary = std::move(options.binary),
                .args = std::move(options.args),
                .title = kCompileTitle,
                .memory_bytes_max = options.memory_bytes_max}) {}

std::unique_ptr<CompileChild> CompileChildren::Take(const std::string& tenant) {
  {
    absl::MutexLock lock(&mu_);
    const auto at = std::find_if(idle_.begin(), idle_.end(),
                                 [&](const Idle& idle) { return idle.tenant == tenant; });
    if (at != idle_.end()) {
      std::unique_ptr<CompileChild> child = std::move(at->child);
      idle_.erase(at);
      return child;
    }
  }
  return std::make_unique<CompileChild>(options_);
}

void CompileChildren::Release(const std::string& tenant, std::unique_ptr<CompileChild> child) {
  // Keeps one child for each tenant, for the few tenants that compiled last. Any other child is
  // destroyed after the lock is released.
  constexpr size_t kIdleMax = 4;
  std::vector<Idle> evicted;
  absl::MutexLock lock(&mu_);
  const auto at = std::find_if(idle_.begin(), idle_.end(),
                               [&](const Idle& idle) { return idle.tenant == tenant; });
  const auto least = at != idle_.end() || idle_.size() < kIdleMax ? at : idle_.begin();
  if (least != idle_.end()) {
    evicted.push_back(std::move(*least));
    idle_.erase(least);
  }
  idle_.push_back({tenant, std::move(child)});
}

// ---- The child. --------------------------------------------------------------------------------
namespace {

class CompileServer {
 public:
  explicit CompileServer(CompileImageFn compile_image) : compile_image_(compile_image) {}

  std::string Serve(std::string_view request) {
    absl::StatusOr<std::string> object = Compile(request);
    if (object.ok()) return absl::StrCat(std::string(1, kObjectReply), *object);
    return absl::StrCat(std::string(1, kErrorReply), object.status().message());
  }

 private:
  absl::StatusOr<std::string> Compile(std::string_view request) {
    const size_t line_end = std::min(request.find('\n'), request.size() - 1);
    const std::string name(request.substr(0, line_end)), text(request.substr(line_end + 1));
    const absl::StatusOr<HostTarget> target = FindHostTarget(name);
    if (absl::StartsWith(text, "loop ")) {
      TESSERA_RETURN_IF_ERROR(target);
      TESSERA_ASSIGN_OR_RETURN(const KernelLoop loop, ParseKernelLoop(text));
      return CodegenOf(*target).Compile(loop);
    }
    std::vector<Kernel> kernels;
    for (const absl::string_view each : absl::StrSplit(text, kSeparator)) {
      TESSERA_ASSIGN_OR_RETURN(kernels.emplace_back(), ParseKernel(each));
    }
    if (!target.ok() && compile_image_ != nullptr) return compile_image_(name, kernels);
    TESSERA_RETURN_IF_ERROR(target);
    if (kernels.size() != 1)
      return MakeError(ErrorKind::kInternal,
                       "each kernel for the host is compiled to its own object");
    return CodegenOf(*target).Compile(kernels[0]);
  }

  HostCodegen& CodegenOf(const HostTarget& target) {
    std::unique_ptr<HostCodegen>& codegen = codegens_[target.name];
    if (codegen == nullptr) codegen = std::make_unique<HostCodegen>(target);
    return *codegen;
  }

  const CompileImageFn compile_image_;
  std::map<std::string, std::unique_ptr<HostCodegen>> codegens_;
};

}  // namespace

int RunCompileChild(CompileImageFn compile_image) {
  CompileServer server(compile_image);
  return ServeInJail(kCompileTitle,
                     [&server](std::string_view request) { return server.Serve(request); });
}

}  // namespace tessera::worker::codegen
