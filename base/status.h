// Makes and reads errors: an absl::Status that carries a machine-readable reason.
//
// An error has three readers. The canonical code tells a program what to do, the message tells a
// person (where, what was wrong, what was expected, what to do), and the reason, kept as a payload,
// tells a tool which kind of error it is. The kinds are rows of base/error_kinds.def.
//
// Stateless; thread-safe.
#pragma once
#include <string>
#include <string_view>
#include <utility>

#include "absl/base/attributes.h"
#include "absl/base/optimization.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera {

enum class ErrorKind {
#define TESSERA_ERROR_KIND(name, reason, code, retry, description) k##name,
#include "base/error_kinds.def"
#undef TESSERA_ERROR_KIND
};

// The key of the payload that holds the reason of a status.
inline constexpr char kReasonPayload[] = "type.tessera.dev/reason";

// The row of an error kind.
struct ErrorKindInfo {
  ErrorKind kind;
  std::string_view name;    // ValueError
  std::string_view reason;  // VALUE_ERROR
  absl::StatusCode code;
  bool retry;                    // whether the same call may succeed later
  std::string_view description;  // what happened and what to do
};

// The table, in the order of the file, which is the order of the enum.
const ErrorKindInfo* ErrorKindsBegin();
const ErrorKindInfo* ErrorKindsEnd();
const ErrorKindInfo& InfoOf(ErrorKind kind);

// Returns a status with the code and the reason of the kind. The attribute "cold" makes compilers
// place code that makes errors away from the code that runs each time, which then takes fewer lines
// of the instruction cache.
ABSL_ATTRIBUTE_COLD absl::Status MakeError(ErrorKind kind, std::string message);

// Returns the reason of a status. Returns "" if the status is OK, carries no reason, or carries a
// reason that this build does not know, for example from a newer peer. The result is never freed:
// it points into the table of error kinds.
std::string_view ReasonOf(const absl::Status& status);

// Returns the kind of an error, which must not be OK. An error without a known reason gets the most
// general kind of its code, or kInternal if its code has no kind.
ErrorKind KindOf(const absl::Status& status);

// Returns true if the same call, unchanged, may succeed later.
bool IsRetryable(const absl::Status& status);

// Returns the status with "context: " before its message. The code and the payloads stay the same.
// An OK status is returned unchanged.
ABSL_ATTRIBUTE_COLD absl::Status Annotate(const absl::Status& status, std::string_view context);

// Convert between the two types of string views without a copy. In some packages of Abseil,
// absl::string_view is not std::string_view.
inline absl::string_view ToAbsl(std::string_view s) {
  return absl::string_view(s.data(), s.size());
}
inline std::string_view ToStd(absl::string_view s) { return std::string_view(s.data(), s.size()); }

namespace internal {
inline const absl::Status& AsStatus(const absl::Status& status) { return status; }
inline absl::Status AsStatus(absl::Status&& status) { return std::move(status); }
template <typename T>
const absl::Status& AsStatus(const absl::StatusOr<T>& status_or) {
  return status_or.status();
}
}  // namespace internal

}  // namespace tessera

#define TESSERA_CONCAT_INNER_(a, b) a##b
#define TESSERA_CONCAT_(a, b) TESSERA_CONCAT_INNER_(a, b)

// Evaluates `expr` (a Status or StatusOr). If it is an error, returns that error from the function.
#define TESSERA_RETURN_IF_ERROR(expr)                                       \
  do {                                                                      \
    if (absl::Status tessera_status_ = ::tessera::internal::AsStatus(expr); \
        ABSL_PREDICT_FALSE(!tessera_status_.ok())) {                        \
      return tessera_status_;                                               \
    }                                                                       \
  } while (false)

// TESSERA_ASSIGN_OR_RETURN(auto x, MakeX()) assigns the value of a StatusOr, or returns its error
// from the function. The left side may declare a variable or name an existing one. If it contains
// commas, put it in parentheses.
#define TESSERA_ASSIGN_OR_RETURN(lhs, ...) \
  TESSERA_ASSIGN_OR_RETURN_(TESSERA_CONCAT_(tessera_status_or_, __COUNTER__), lhs, (__VA_ARGS__))
#define TESSERA_ASSIGN_OR_RETURN_(tmp, lhs, expr)                    \
  auto tmp = expr;                                                   \
  if (ABSL_PREDICT_FALSE(!tmp.ok())) return std::move(tmp).status(); \
  TESSERA_UNPARENTHESIZE_(lhs) = *std::move(tmp)

// Removes the parentheses of `(const auto& [a, b])`. Other arguments stay unchanged.
#define TESSERA_UNPARENTHESIZE_(x) TESSERA_STRIP_(TESSERA_ESCAPE_ x)
#define TESSERA_ESCAPE_(...) TESSERA_ESCAPE_ __VA_ARGS__
#define TESSERA_STRIP_(...) TESSERA_STRIP_INNER_(__VA_ARGS__)
#define TESSERA_STRIP_INNER_(...) TESSERA_VANISH_##__VA_ARGS__
#define TESSERA_VANISH_TESSERA_ESCAPE_
