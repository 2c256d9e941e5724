// Errors as values: absl::Status with a reason that tools read.
//
// An error has three readers. The canonical code tells a program what to do, the message tells a
// person (where, what was wrong, what was expected, what to do), and the reason, kept as a payload,
// tells a tool which kind it is. The kinds are rows of base/error_kinds.def.
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

// The payload's key under which the reason travels with a status.
inline constexpr char kReasonPayload[] = "type.tessera.dev/reason";

// The row of an error kind.
struct ErrorKindInfo {
  ErrorKind kind;
  std::string_view name;    // ValueError
  std::string_view reason;  // VALUE_ERROR
  absl::StatusCode code;
  bool retry;                    // The same call may succeed later.
  std::string_view description;  // what happened and what to do
};

// The table, in the order of the file, which is the order of the enum.
const ErrorKindInfo* ErrorKindsBegin();
const ErrorKindInfo* ErrorKindsEnd();
const ErrorKindInfo& InfoOf(ErrorKind kind);

// A status of the kind's code that carries its reason. Code that makes errors is cold: compilers
// lay it away from what runs each time, which then takes fewer lines of the instruction cache.
ABSL_ATTRIBUTE_COLD absl::Status MakeError(ErrorKind kind, std::string message);

// The reason of a status: "" when it is ok or carries none. Borrows from the table for known
// reasons; an unknown one (from a newer peer) reads as "".
std::string_view ReasonOf(const absl::Status& status);

// The kind of an error. One without a known reason gets the most general kind of its code, or
// kInternal if its code has no kind. The status must not be ok.
ErrorKind KindOf(const absl::Status& status);

// True when the same call may succeed later, unchanged.
bool IsRetryable(const absl::Status& status);

// Prepends "context: " to the message; code and payloads stay. Ok stays ok.
ABSL_ATTRIBUTE_COLD absl::Status Annotate(const absl::Status& status, std::string_view context);

// Abseil's string_view is not std::string_view in every packaging; these convert without a copy.
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

// Returns from the caller with the error of `expr` (a Status or StatusOr), if it is one.
#define TESSERA_RETURN_IF_ERROR(expr)                                       \
  do {                                                                      \
    if (absl::Status tessera_status_ = ::tessera::internal::AsStatus(expr); \
        ABSL_PREDICT_FALSE(!tessera_status_.ok())) {                        \
      return tessera_status_;                                               \
    }                                                                       \
  } while (false)

// TESSERA_ASSIGN_OR_RETURN(auto x, MakeX()); the left side may declare or name a variable; put one
// with commas into parentheses.
#define TESSERA_ASSIGN_OR_RETURN(lhs, ...) \
  TESSERA_ASSIGN_OR_RETURN_(TESSERA_CONCAT_(tessera_status_or_, __COUNTER__), lhs, (__VA_ARGS__))
#define TESSERA_ASSIGN_OR_RETURN_(tmp, lhs, expr)                    \
  auto tmp = expr;                                                   \
  if (ABSL_PREDICT_FALSE(!tmp.ok())) return std::move(tmp).status(); \
  TESSERA_UNPARENTHESIZE_(lhs) = *std::move(tmp)

// Drops the parentheses of `(const auto& [a, b])`; leaves anything else as it is.
#define TESSERA_UNPARENTHESIZE_(x) TESSERA_STRIP_(TESSERA_ESCAPE_ x)
#define TESSERA_ESCAPE_(...) TESSERA_ESCAPE_ __VA_ARGS__
#define TESSERA_STRIP_(...) TESSERA_STRIP_INNER_(__VA_ARGS__)
#define TESSERA_STRIP_INNER_(...) TESSERA_VANISH_##__VA_ARGS__
#define TESSERA_VANISH_TESSERA_ESCAPE_
