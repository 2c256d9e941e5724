// The states that arrays refer to: one class for each kind of array. Array itself, which is public,
// holds a pointer to one of them.
//
// A state is immutable, except for the flags of a concrete array, which are atomic; thread-safe.
// Used by the SDK only.
#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/array.h"
#include "client/session.h"
#include "ir/builder.h"

namespace tessera::internal {

struct Frame;  // a function that is being recorded (trace.h)

// The state that the copies of an Array share. Each subclass is one kind of array.
struct ArrayState {
  explicit ArrayState(Type t) : type(std::move(t)) {}
  virtual ~ArrayState() = default;
  Type type;
};
// An array of a session, with shards on devices.
struct ConcreteState final : ArrayState {
  using ArrayState::ArrayState;
  ~ConcreteState() override;
  bool may_be_pending() const { return operation != 0 && !ready.load(); }
  // Deletes the array on the server, now or together with later deletions of its session.
  void ReleaseInSession() const;
  std::shared_ptr<Session> session;
  uint64_t id = 0;
  std::shared_ptr<const api::Placement> placement;  // never null; runs of one executable share it
  // id of the operation that computes the array; 0 if nothing remains to be computed
  uint64_t operation = 0;
  std::string name;  // name of the program that computes the array
  // whether the operation is known to have ended without error
  mutable std::atomic<bool> ready{false};
  mutable std::atomic<bool> deleted{false};  // whether the user deleted the array
  // Whether an accepted run took the array as a donation. The server has then deleted the array,
  // unless the run failed or was cancelled before it began.
  mutable std::atomic<bool> donated{false};
};
// A type and, perhaps, the placement that a real array would have.
struct AbstractState final : ArrayState {
  using ArrayState::ArrayState;
  // null if the placement is unknown; `devices` may be empty
  std::shared_ptr<const api::Placement> placement;
};
// A C++ number that is an argument of a program. Each run uploads it with the plan's placement.
struct NumberState final : ArrayState {
  using ArrayState::ArrayState;
  ir::Array value;
};
// A value of the function that `frame` records.
struct TracedState final : ArrayState {
  using ArrayState::ArrayState;
  std::shared_ptr<Frame> frame;
  ir::Value value;
};

// Each returns the state of `a` if `a` is an array of this kind, else null.
const ConcreteState* AsConcrete(const Array& a);
const TracedState* AsTraced(const Array& a);
const NumberState* AsNumber(const Array& a);
// Returns the placement of a concrete array, or the intended placement of an abstract one. Returns
// null if there is none.
const api::Placement* PlacementOf(const Array& a);
// Returns whether the array was deleted. Calls the server if the array was donated.
bool QueryDeleted(const ConcreteState& c, const Site& site);
// Throws the error of an operation `what` that needs the contents of `a`. Call it if `a` is not
// concrete, or if a function is being traced.
[[noreturn]] void ThrowNotReadable(std::string_view what, const Array& a, const Site& site);
// Throws ARRAY_DELETED for the operation `what`, whose name may be empty.
[[noreturn]] void ThrowDeleted(std::string_view what, const Array& a, const Site& site);
// Returns the types of the arrays. Throws TYPE_ERROR for an Array without a value.
std::vector<Type> TypesOf(const std::vector<Array>& arrays);
// Returns the common session of the arrays, or the default session if no array is concrete. Throws
// VALUE_ERROR if the sessions differ.
std::shared_ptr<Session> SessionOf(const std::vector<Array>& arrays, const Site& site);

}  // namespace tessera::internal
