// Members of Array that tell what an array is, read its contents or delete it. Reading a concrete
// array asks the session's api::Service. Members that emit ops, such as reshape, are in
// client/numpy/array_functions.cc.
#include "client/array.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "client/session.h"
#include "client/trace/trace.h"

template class std::vector<tessera::Array>;

namespace tessera {
namespace {

using internal::AsConcrete;
using internal::ConcreteState;
using internal::RequireConcrete;
using internal::ThrowError;

// Calls `get` again and again until the operation has ended, because the server bounds the wait of
// one call.
template <class Get>
ir::Array Await(const Get& get, const Site& site) {
  const absl::Time end = SteadyNow() + internal::BoundedResultWait(absl::InfiniteDuration());
  for (;;) {
    const absl::Time start = SteadyNow();
    const absl::Duration wait =
        std::clamp(end - start, absl::ZeroDuration(), internal::kMaxWaitPerCall);
    absl::StatusOr<ir::Array> value = get(wait);
    // If the call lasted for the whole wait, DEADLINE_EXCEEDED means that the array is not ready
    // yet. If the call returned earlier, it is the error of the run.
    const bool not_yet = value.status().code() == absl::StatusCode::kDeadlineExceeded &&
                         SteadyNow() - start >= wait && SteadyNow() < end;
    if (!not_yet) return internal::OrThrow(std::move(value), site);
  }
}

}  // namespace

Array::Array(const Array&) = default;
Array& Array::operator=(const Array&) = default;
Array& Array::operator=(Array&&) noexcept = default;
Array::~Array() = default;

void internal::ThrowIfNoValue(const Array& a, const Site& site) {
  if (a.valid()) return;
  ThrowError(ErrorKind::kTypeError, site,
             "an Array without a value (default-constructed) was used as an operand");
}

Arg::Arg(const Array& a, Site s) : array(a), site(s) { internal::ThrowIfNoValue(a, s); }
Arg::Arg(const Arg&) = default;
Arg::Arg(Arg&&) noexcept = default;
Arg& Arg::operator=(const Arg&) = default;
Arg& Arg::operator=(Arg&&) noexcept = default;
Arg::~Arg() = default;

const Type& Array::type() const {
  if (!state_) {
    ThrowError(ErrorKind::kTypeError, Site{},
               "an Array without a value (default-constructed) was used");
  }
  return state_->type;
}

int64_t Array::dim(int d) const {
  const int r = rank();
  if (d < -r || d >= r) {
    ThrowError(ErrorKind::kValueError, Site{}, "dim ", d, " is out of bounds for ",
               type().ToString());
  }
  return shape()[d < 0 ? d + r : d];
}

bool Array::is_concrete() const { return AsConcrete(*this) != nullptr; }
bool Array::is_traced() const { return internal::AsTraced(*this) != nullptr; }

ir::Array Array::value(Site site) const {
  const ConcreteState& c = RequireConcrete("value", *this, site);
  return Await([&](absl::Duration wait) { return c.session->service().Get(c.id, wait); }, site);
}

ir::Array Array::shard(int index, Site site) const {
  const ConcreteState& c = RequireConcrete("shard", *this, site);
  return Await(
      [&](absl::Duration wait) { return c.session->service().GetShard(c.id, index, wait); }, site);
}

void Array::CheckOneElement(const Site& site) const {
  if (size() != 1) {
    ThrowError(ErrorKind::kTypeError, site, "item: an array of one element is expected, not ",
               type().ToString());
  }
}

bool Array::is_ready(Site site) const {
  const ConcreteState& c = RequireConcrete("is_ready", *this, site);
  if (!c.may_be_pending()) return true;
  absl::StatusOr<api::Operation> op = c.session->service().GetOperation(c.operation);
  // the operation ended so long ago that its record is gone
  if (KindOf(op.status()) == ErrorKind::kOperationNotFound) return true;
  return internal::HasEnded(internal::OrThrow(std::move(op), site));
}

// An array that is known to be ready needs no wait, but it may have been lost with its session.
const Array& Array::wait(absl::Duration timeout, Site site) const {
  const ConcreteState& c = RequireConcrete("wait", *this, site);
  api::Service& service = c.session->service();
  if (!c.may_be_pending()) {
    internal::ThrowIfError(service.CheckHeld(c.id), site);
    return *this;
  }
  const absl::Duration limit = internal::BoundedResultWait(timeout);
  const absl::StatusOr<api::Operation> op = internal::WaitForOperation(service, c.operation, limit);
  if (KindOf(op.status()) == ErrorKind::kOperationNotFound) {
    // The operation ended so long ago that its record is gone. If the operation failed, reading its
    // array still returns the error.
    internal::ThrowIfError(service.GetShard(c.id, 0, internal::kMaxWaitPerCall).status(), site);
  } else {
    internal::ThrowIfError(op.status(), site);
    if (!internal::HasEnded(*op)) {
      ThrowError(ErrorKind::kDeadlineExceeded, site, c.name, ": not ready after ",
                 absl::FormatDuration(limit),
                 op->pending_reason.empty() ? "" : "; it waits because ", op->pending_reason,
                 ". Wait longer, or cancel it");
    }
    internal::ThrowIfError(op->error, site);
  }
  c.ready.store(true);
  return *this;
}

void Array::cancel(Site site) const {
  const ConcreteState& c = RequireConcrete("cancel", *this, site);
  if (!c.may_be_pending()) return;
  const absl::Status status = c.session->service().Cancel(c.operation);
  // An operation without a record ended long ago. To cancel an ended operation is no error.
  if (KindOf(status) != ErrorKind::kOperationNotFound) internal::ThrowIfError(status, site);
}

const api::Placement& Array::placement(Site site) const {
  const ConcreteState* c = AsConcrete(*this);
  if (!c) internal::ThrowNotReadable("placement", *this, site);
  return *c->placement;
}
std::vector<int64_t> Array::devices(Site site) const { return placement(site).devices; }
PartitionSpec Array::sharding(Site site) const { return placement(site).spec; }

void Array::Delete() {
  const ConcreteState* c = AsConcrete(*this);
  if (c && !c->deleted.exchange(true)) c->ReleaseInSession();
}

std::string Array::to_string() const {
  if (!state_) return "Array()";
  const ConcreteState* c = AsConcrete(*this);
  if (!c) return absl::StrCat(is_traced() ? "Traced" : "Abstract", "<", type().ToString(), ">");
  std::string out = absl::StrCat("Array<", type().ToString(), ">");
  if (!c->placement->mesh.empty()) {
    absl::StrAppend(&out, " ", c->placement->spec.ToString(), " on ",
                    c->placement->mesh.ToString());
  }
  if (c->deleted.load()) return absl::StrCat(out, " (deleted)");
  if (c->donated.load()) return absl::StrCat(out, " (donated)");
  if (internal::CurrentFrame()) return out;  // While tracing, nothing is fetched.
  auto value =
      c->session->service().Get(c->id, internal::BoundedResultWait(absl::InfiniteDuration()));
  if (!value.ok()) return absl::StrCat(out, " failed: ", std::string(value.status().message()));
  return absl::StrCat(out, " ", value->ToString());
}

Array abstract(Dims shape, DType dtype) {
  return abstract_of(ir::MakeType(dtype, std::move(shape)));
}
Array abstract_of(const Type& type) {
  return Array(std::make_shared<internal::AbstractState>(type));
}

}  // namespace tessera
