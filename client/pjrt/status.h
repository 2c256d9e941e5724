// Errors in the form of the PJRT C API: an error is an object of the plugin. The framework (such as
// JAX) asks the error for its code and message, and gives it back to be destroyed.
//
// Stateless; thread-safe. The framework owns every error that it is given.
#pragma once
#include <string>
#include <type_traits>

#include "absl/status/status.h"
#include "client/pjrt/functions.h"

namespace tessera::pjrt {

// The table of functions that the first word of every Error points to. Parts of the framework call
// these functions without a check.
struct ErrorFunctions {
  size_t struct_size;
  size_t instance_size;
  void* extension_start;
  Error* (*destroy)(Error_Destroy_Args*);
  Error* (*message)(Error_Message_Args*);
  Error* (*get_code)(Error_GetCode_Args*);
  Error* (*for_each_payload)(Error_ForEachPayload_Args*);
};

struct Error {
  const ErrorFunctions* functions;
  absl::Status status;
  std::string message;  // "VALUE_ERROR: ...": the reason, which tells tools what to do
};

// Returns the message of a status behind its reason: "VALUE_ERROR: ...".
std::string MessageOf(const absl::Status& status);

// Returns an error with the status, or null if the status is OK.
Error* ErrorOf(const absl::Status& status);

// Calls `f(context)`. Returns the status that it returns or, if it throws, the exception as a
// status. No exception may leave the plugin.
absl::Status CatchExceptions(absl::Status (*f)(void*), void* context);
template <class F>
absl::Status CatchExceptions(F&& f) {
  return CatchExceptions(
      [](void* g) -> absl::Status { return (*static_cast<std::remove_reference_t<F>*>(g))(); },
      const_cast<void*>(static_cast<const void*>(&f)));
}
// Calls `f` and returns its status or its exception as an error for the framework.
template <class F>
Error* Guarded(F&& f) {
  return ErrorOf(CatchExceptions(f));
}

}  // namespace tessera::pjrt
