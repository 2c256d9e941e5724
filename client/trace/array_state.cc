// The kinds of arrays: which kind an array is, when a concrete one is deleted, and the errors of
// arrays that cannot be used. The tracer, sessions and the members of Array ask here.
#include "client/trace/array_state.h"

#include <type_traits>
#include <typeinfo>

#include "client/error.h"

namespace tessera::internal {

ConcreteState::~ConcreteState() {
  if (session && !deleted.load()) ReleaseInSession();
}

void ConcreteState::ReleaseInSession() const {
  if (donated.load()) {
    session->ReleaseDonated(id);
  } else {
    session->Release(id, type.num_bytes());
  }
}

bool QueryDeleted(const ConcreteState& c, const Site& site) {
  if (c.deleted.load()) return true;
  if (!c.donated.load()) return false;
  const absl::Status status = c.session->service().Describe(c.id).status();
  if (!status.ok() &&
      (KindOf(status) == ErrorKind::kArrayDeleted || KindOf(status) == ErrorKind::kArrayNotFound)) {
    return true;
  }
  ThrowIfError(status, site);
  c.donated.store(false);
  return false;
}

namespace {
// Returns the array's state if it has this class. A final class needs no dynamic_cast, which is
// slower.
template <class State>
const State* As(const Array& a) {
  static_assert(std::is_final_v<State>);
  const ArrayState* const state = a.state().get();
  return state != nullptr && typeid(*state) == typeid(State) ? static_cast<const State*>(state)
                                                             : nullptr;
}
}  // namespace

const ConcreteState* AsConcrete(const Array& a) { return As<ConcreteState>(a); }
const TracedState* AsTraced(const Array& a) { return As<TracedState>(a); }
const NumberState* AsNumber(const Array& a) { return As<NumberState>(a); }

const api::Placement* PlacementOf(const Array& a) {
  if (const ConcreteState* c = AsConcrete(a)) return c->placement.get();
  const auto* const abstract = As<AbstractState>(a);
  return abstract ? abstract->placement.get() : nullptr;
}

std::vector<Type> TypesOf(const std::vector<Array>& arrays) {
  std::vector<Type> out;
  for (const Array& a : arrays) out.push_back(a.type());
  return out;
}

std::shared_ptr<Session> SessionOf(const std::vector<Array>& arrays, const Site& site) {
  std::shared_ptr<Session> session;
  for (const Array& a : arrays) {
    const ConcreteState* c = AsConcrete(a);
    if (!c) continue;
    if (!session) session = c->session;
    if (session != c->session) {
      ThrowError(ErrorKind::kValueError, site,
                 "arrays of two sessions meet in one program. Copy one with put(a.value(), ...)");
    }
  }
  return session ? session : Session::Default(site);
}

void ThrowNotReadable(std::string_view what, const Array& a, const Site& site) {
  if (AsConcrete(a)) {
    ThrowError(ErrorKind::kTypeError, site, ToAbsl(what),
               ": reading the contents of an array while tracing would "
               "freeze them into the program; read it before, or pass it in");
  }
  ThrowError(ErrorKind::kTypeError, site, ToAbsl(what), ": the contents of a traced array of type ",
             a.valid() ? a.type().ToString() : "(none)",
             " are not known: Abstract tracer value encountered where concrete value "
             "is expected. Use where, select or scan in place of C++ control flow");
}

void ThrowDeleted(std::string_view what, const Array& a, const Site& site) {
  ThrowError(ErrorKind::kArrayDeleted, site, ToAbsl(what), what.empty() ? "" : ": ",
             "Array has been deleted or donated: ", a.type().ToString(),
             ". Do not delete or donate an array that is used again");
}

}  // namespace tessera::internal
