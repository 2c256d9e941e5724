// HostCompiler: the CPU backend gives it the kernels and native loops of a program, and gets
// functions back. Each kernel is looked for among the loaded code, then on disk, and is compiled in
// a child process if it is in neither. The key of a kernel includes the tenant, so that tenants
// share no code.
#include "worker/codegen/host_code.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <system_error>
#include <thread>
#include <utility>
#include <variant>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/host_limits.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/status.h"
#include "worker/codegen/compile.h"
#include "worker/codegen/compile_child.h"
#include "worker/codegen/loader.h"
#include "worker/codegen/object_cache.h"

namespace tessera::worker::codegen {
namespace {

// Compiles in this process. Keeps the idle HostCodegens, because they are slow to set up.
class CodegenPool {
 public:
  explicit CodegenPool(HostTarget target) : target_(std::move(target)) {}

  template <class Unit>
  absl::StatusOr<std::string> Compile(const Unit& unit) {
    std::unique_ptr<HostCodegen> codegen = Take();
    absl::StatusOr<std::string> object = codegen->Compile(unit);
    absl::MutexLock lock(&mu_);
    idle_.push_back(std::move(codegen));
    return object;
  }

 private:
  std::unique_ptr<HostCodegen> Take() {
    absl::MutexLock lock(&mu_);
    if (idle_.empty()) return std::make_unique<HostCodegen>(target_);
    std::unique_ptr<HostCodegen> codegen = std::move(idle_.back());
    idle_.pop_back();
    return codegen;
  }

  const HostTarget target_;
  absl::Mutex mu_;
  std::vector<std::unique_ptr<HostCodegen>> idle_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

class HostCompiler::Impl {
 public:
  explicit Impl(HostCompilerOptions options)
      : options_(std::move(options)),
        target_(FindHostTarget(options_.target)),
        loader_(HostLoader::Create()),
        cache_(options_.cache_dir, options_.cache_bytes_max),
        pool_(target_.value_or(HostTarget())),
        children_({options_.compile_binary, options_.compile_args,
                   target_.value_or(HostTarget()).name, options_.compile_memory_bytes_max}) {}

  absl::StatusOr<std::shared_ptr<const HostCode>> Compile(absl::Span<const Kernel> kernels,
                                                          absl::Span<const std::string> labels,
                                                          absl::Span<const KernelLoop> loops,
                                                          const std::string& tenant) {
    TESSERA_RETURN_IF_ERROR(target_.status());
    TESSERA_RETURN_IF_ERROR(loader_.status());
    TESSERA_CHECK(labels.empty() || labels.size() == kernels.size());
    const absl::Time deadline = SteadyNow() + options_.compile_deadline;
    std::vector<Unit> units;
    for (size_t i = 0; i < kernels.size(); ++i)
      units.push_back(UnitOf(Canonical(kernels[i]),
                             labels.empty() ? absl::StrCat("kernel ", i) : labels[i], tenant));
    for (size_t i = 0; i < loops.size(); ++i)
      units.push_back(UnitOf(&loops[i], absl::StrCat("loop ", i), tenant));
    CompileMissing(FindMissing(&units), tenant, deadline);
    for (const Unit& unit : units) TESSERA_RETURN_IF_ERROR(unit.status);
    std::vector<std::shared_ptr<const void>> mapped;
    for (Unit& unit : units) {
      // A unit that occurs twice was compiled once, so its function is loaded by now.
      if (unit.function == nullptr) unit.function = FindLoaded(unit.key);
      TESSERA_CHECK(unit.function != nullptr) << unit.label;
      mapped.push_back(std::move(unit.function));
    }
    return std::make_shared<const HostCode>(std::move(mapped), static_cast<int>(kernels.size()));
  }

  Counters counters() {
    absl::MutexLock lock(&mu_);
    return counters_;
  }

 private:
  using Function = std::shared_ptr<const void>;

  // A kernel in normal form, or a loop.
  struct Unit {
    std::variant<Kernel, const KernelLoop*> what;
    std::string text, label, key;
    Function function = nullptr;  // set once it is known
    absl::Status status = {};
  };
  static const Kernel& Dereferenced(const Kernel& kernel) { return kernel; }
  static const KernelLoop& Dereferenced(const KernelLoop* loop) { return *loop; }

  Unit UnitOf(std::variant<Kernel, const KernelLoop*> what, std::string label,
              const std::string& tenant) const {
    std::string text = std::visit([](const auto& x) { return Dereferenced(x).ToString(); }, what);
    std::string key = Sha256Hex(
        absl::StrCat("host ", target_->name, " ", kCodegenVersion, "\n", tenant, "\n", text));
    return {std::move(what), std::move(text), std::move(label), std::move(key)};
  }

  // Returns the units that are neither loaded nor cached, only the first of those with the same
  // key. Sets the functions of the units that are loaded or cached.
  std::vector<Unit*> FindMissing(std::vector<Unit>* units) {
    std::vector<Unit*> missing;
    std::set<absl::string_view> keys;
    for (Unit& unit : *units) {
      if (keys.count(unit.key) > 0) continue;
      unit.function = LoadedOrCached(unit);
      if (unit.function != nullptr) continue;
      missing.push_back(&unit);
      keys.insert(unit.key);
    }
    return missing;
  }

  // The part of a call of Compile that runs on one thread. It holds the deadline, and the compile
  // child once one was needed.
  struct CompileThread {
    CompileChildren* children;
    const std::string& tenant;
    const absl::Time deadline;
    std::unique_ptr<CompileChild> child;
    ~CompileThread() {
      if (child != nullptr) children->Release(tenant, std::move(child));
    }
  };

  // Compiles the units. If they are many, helper threads compile several at once. Units that take
  // long are begun first, so that none ends long after the others. After an error no further unit
  // is begun.
  void CompileMissing(std::vector<Unit*> units, const std::string& tenant, absl::Time deadline) {
    std::stable_sort(units.begin(), units.end(),
                     [](const Unit* a, const Unit* b) { return a->text.size() > b->text.size(); });
    std::atomic<size_t> next{0};
    std::atomic<bool> failed{false};
    const auto work = [&] {
      CompileThread thread{&children_, tenant, deadline, nullptr};
      while (!failed) {
        const size_t at = next++;
        if (at >= units.size()) return;
        absl::StatusOr<Function> function = CompileAndLoad(*units[at], thread);
        units[at]->status = function.status();
        if (function.ok()) units[at]->function = *std::move(function);
        if (!function.ok()) failed = true;
      }
    };
    // Starting a compiler in this process takes as long as compiling a few kernels, and starting a
    // child process takes as long as compiling many. A helper is worth its start only if it
    // compiles about units_per_helper units.
    const size_t units_per_helper = options_.compile_binary.empty() ? 2 : 8;
    std::vector<std::thread> helpers;
    while (helpers.size() + 1 < units.size() / units_per_helper && TryAddHelper()) {
      try {
        helpers.emplace_back([&] {
          work();
          RemoveHelper();
        });
        // This thread does the work that the helper would have done.
      } catch (const std::system_error& error) {
        RemoveHelper();
        TESSERA_LOG(WARNING) << "no thread to compile on" << Field("error", error.what());
        break;
      }
    }
    work();
    for (std::thread& helper : helpers) helper.join();
  }

  // If one more helper thread may be started, counts it and returns true. One caller and all
  // helpers together are at most as many threads as may compile at once.
  bool TryAddHelper() {
    const int threads_max = options_.compiled_at_once_max > 0
                                ? options_.compiled_at_once_max
                                : static_cast<int>(ProcessLimits().cores);
    absl::MutexLock lock(&mu_);
    if (helpers_ + 1 >= threads_max) return false;
    ++helpers_;
    return true;
  }
  void RemoveHelper() {
    absl::MutexLock lock(&mu_);
    --helpers_;
  }

  // Compiles the unit, unless another call of Compile has done so by now, and loads it.
  absl::StatusOr<Function> CompileAndLoad(const Unit& unit, CompileThread& thread) {
    TESSERA_ASSIGN_OR_RETURN(const ObjectCache::KeyLock key_lock,
                             cache_.LockKey(unit.key, thread.deadline, unit.label));
    if (Function function = LoadedOrCached(unit)) return function;
    TESSERA_ASSIGN_OR_RETURN(const std::string object, CompileObject(unit, thread));
    absl::StatusOr<Function> function = (*loader_)->Load(object, kFunctionName);
    if (!function.ok()) return Annotate(function.status(), unit.label);
    cache_.Put(unit.key, object);
    return Remember(unit.key, *std::move(function), &Counters::compiled);
  }

  // Returns the function if it is loaded in this process or cached on disk, else null.
  Function LoadedOrCached(const Unit& unit) {
    if (Function function = FindLoaded(unit.key)) return function;
    const std::optional<std::string> object = cache_.Get(unit.key);
    if (!object) return nullptr;
    absl::StatusOr<Function> function = (*loader_)->Load(*object, kFunctionName);
    if (function.ok()) return Remember(unit.key, *std::move(function), &Counters::from_disk);
    TESSERA_LOG(WARNING) << "a cached object does not load; compiling it anew"
                         << Field("kernel", unit.label) << Field("status", function.status());
    return nullptr;
  }

  absl::StatusOr<std::string> CompileObject(const Unit& unit, CompileThread& thread) {
    if (!options_.compile_binary.empty()) {
      if (thread.child == nullptr) thread.child = children_.Take(thread.tenant);
      return thread.child->CompileText(unit.text, unit.label, thread.deadline);
    }
    absl::StatusOr<std::string> object =
        std::visit([&](const auto& x) { return pool_.Compile(Dereferenced(x)); }, unit.what);
    if (!object.ok()) return Annotate(object.status(), unit.label);
    return object;
  }

  Function FindLoaded(const std::string& key) {
    absl::MutexLock lock(&mu_);
    const auto at = loaded_.find(key);
    if (at == loaded_.end()) return nullptr;
    Function function = at->second.lock();
    if (function != nullptr) ++counters_.shared;
    return function;
  }

  Function Remember(const std::string& key, Function function, int64_t Counters::*counter) {
    absl::MutexLock lock(&mu_);
    ++(counters_.*counter);
    // Drops the entries of unloaded code as soon as they may outnumber the entries of loaded code.
    if (loaded_.size() >= prune_at_) {
      for (auto at = loaded_.begin(); at != loaded_.end();)
        at = at->second.expired() ? loaded_.erase(at) : std::next(at);
      prune_at_ = 2 * loaded_.size() + kPruneMin;
    }
    loaded_[key] = function;
    return function;
  }

  static constexpr size_t kPruneMin = 256;

  const HostCompilerOptions options_;
  const absl::StatusOr<HostTarget> target_;
  const absl::StatusOr<std::shared_ptr<HostLoader>> loader_;
  ObjectCache cache_;
  CodegenPool pool_;
  CompileChildren children_;
  absl::Mutex mu_;
  std::map<std::string, std::weak_ptr<const void>> loaded_ ABSL_GUARDED_BY(mu_);
  // The number of helper threads of all calls of Compile together.
  int helpers_ ABSL_GUARDED_BY(mu_) = 0;
  size_t prune_at_ ABSL_GUARDED_BY(mu_) = kPruneMin;
  Counters counters_ ABSL_GUARDED_BY(mu_);
};

HostCompiler::HostCompiler(HostCompilerOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}
HostCompiler::~HostCompiler() = default;

absl::StatusOr<std::shared_ptr<const HostCode>> HostCompiler::Compile(
    absl::Span<const Kernel> kernels, absl::Span<const std::string> labels,
    absl::Span<const KernelLoop> loops, const std::string& tenant) {
  return impl_->Compile(kernels, labels, loops, tenant);
}

HostCompiler::Counters HostCompiler::counters() const { return impl_->counters(); }

HostCompilerOptions HostCompilerOptionsFrom(const Options& options, const EnvLookup& env) {
  HostCompilerOptions out;
  out.cache_bytes_max = options.cache_bytes_max;
  out.compile_memory_bytes_max = options.compile_memory_bytes_max;
  out.compile_deadline = absl::Milliseconds(options.compile_timeout_ms);
  if (options.cache_dir == "off") return out;
  if (!options.cache_dir.empty()) {
    out.cache_dir = options.cache_dir;
  } else if (const auto xdg = env("XDG_CACHE_HOME"); xdg && !xdg->empty()) {
    out.cache_dir = *xdg + "/tessera";
  } else if (const auto home = env("HOME"); home && !home->empty()) {
    out.cache_dir = *home + "/.cache/tessera";
  }
  return out;
}

}  // namespace tessera::worker::codegen
