// The scopes that collect a thread's diagnostics and set its strictness, and the functions by which
// the tracer and the ops read them.
#include "client/sharding.h"

#include <utility>

#include "base/log.h"
#include "client/trace/array_state.h"
#include "client/trace/trace.h"

namespace tessera {
namespace {
thread_local collect_diagnostics* collector = nullptr;
thread_local bool strict_writes = false;
thread_local bool casts_to_varying = true;
}  // namespace

collect_diagnostics::collect_diagnostics() : outer_(std::exchange(collector, this)) {}
collect_diagnostics::~collect_diagnostics() { collector = outer_; }

void AddDiagnostic(std::string message, const Site& site) {
  if (collector) {
    collector->list_.push_back({std::move(message), site});
  } else {
    TESSERA_LOG(WARNING) << message << " (" << site.ToString() << ")";
  }
}

strict_sharding::strict_sharding(bool strict) : saved_(std::exchange(strict_writes, strict)) {}
strict_sharding::~strict_sharding() { strict_writes = saved_; }
bool is_strict_sharding() { return strict_writes; }

auto_pcast::auto_pcast(bool enabled) : saved_(std::exchange(casts_to_varying, enabled)) {}
auto_pcast::~auto_pcast() { casts_to_varying = saved_; }
bool is_auto_pcast() { return casts_to_varying; }

namespace internal {

bool CollectsDiagnostics() { return collector != nullptr; }

void CheckVaryAlike(std::string_view op, const std::vector<Array>& operands, const Site& site) {
  if (is_auto_pcast() || !CurrentFrame() || !CurrentScope().check_vma) return;
  for (const Array& a : operands) {
    ThrowIfNoValue(a, site);
    if (a.type().varying == operands[0].type().varying) continue;
    ThrowError(ErrorKind::kValueError, site, "Primitive ", ToAbsl(op),
               " requires varying manual axes to match, but got [",
               ir::TypesToString(TypesOf(operands)),
               "]; apply pcast(..., to='varying') to the operands that vary over fewer axes, "
               "because auto_pcast(false) is set");
  }
}

}  // namespace internal

}  // namespace tessera
