// Errors as the PJRT C API has them: an object of the plugin's that the framework asks for its code
// and message, and gives back.
//
// Stateless; thread-safe. The framework owns what it is given.
#pragma once
#include <string>
#include <type_traits>

#include "absl/status/status.h"
#include "client/pjrt/functions.h"

namespace tessera::pjrt {

// Its first word must be a table of functions: parts of the framework call them without a look.
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

// Null for an OK status.
Error* ErrorOf(const absl::Status& status);

// What `f` returns, or what it throws: no exception leaves the plugin.
absl::Status StatusOf(absl::Status (*f)(void*), void* context);
template <class F>
absl::Status Caught(F&& f) {
  return StatusOf(
      [](void* g) -> absl::Status { return (*static_cast<std::remove_reference_t<F>*>(g))(); },
      const_cast<void*>(static_cast<const void*>(&f)));
}
template <class F>
Error* Guarded(F&& f) {
  return ErrorOf(Caught(f));
}

}  // namespace tessera::pjrt
