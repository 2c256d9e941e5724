// The only exception that carries a status. The rules of ops throw it.
//
// A rule is the code for one op and one purpose, such as its derivative. Rules read as formulas
// over values (`d[0] * z`). Returning absl::StatusOr from every step would bury the formulas, so
// rules throw instead. Each function of ir/ that applies the rules of a program's ops, one op after
// the other, catches the exception in one place. A StatusException never leaves ir's API.
// Reference: docs/decisions/0001-rules-throw-inside-ir.md.
#pragma once
#include <exception>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"

namespace tessera {

class StatusException : public std::exception {
 public:
  // `status` must not be ok.
  explicit StatusException(absl::Status status)
      : status_(std::move(status)), what_(status_.ToString()) {}

  const absl::Status& status() const { return status_; }
  const char* what() const noexcept override { return what_.c_str(); }

 private:
  absl::Status status_;
  std::string what_;
};

[[noreturn]] ABSL_ATTRIBUTE_COLD inline void Throw(absl::Status status) {
  throw StatusException(std::move(status));
}

[[noreturn]] ABSL_ATTRIBUTE_COLD inline void Throw(ErrorKind kind, std::string message) {
  Throw(MakeError(kind, std::move(message)));
}

// Returns the value, or throws the status if there is no value.
template <typename T>
T ValueOrThrow(absl::StatusOr<T> value) {
  if (!value.ok()) Throw(std::move(value).status());
  return *std::move(value);
}
inline void ThrowIfError(absl::Status status) {
  if (!status.ok()) Throw(std::move(status));
}

// Runs `f`, which returns void or absl::Status and may throw StatusException. Returns the status
// that `f` returned or threw. Other exceptions pass through.
template <typename F>
absl::Status CatchStatus(F&& f) {
  try {
    if constexpr (std::is_void_v<std::invoke_result_t<F>>) {
      std::forward<F>(f)();
      return absl::OkStatus();
    } else {
      return std::forward<F>(f)();
    }
  } catch (const StatusException& e) {
    return e.status();
  }
}

// Like CatchStatus, but for an `f` that returns a value.
template <typename F, typename T = std::invoke_result_t<F>>
absl::StatusOr<T> CatchStatusOr(F&& f) {
  try {
    return std::forward<F>(f)();
  } catch (const StatusException& e) {
    return e.status();
  }
}

}  // namespace tessera
