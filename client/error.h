// The exception of the SDK. It has a status, the kind of error, and the call site in the user's
// source.
//
// All public functions of client/ throw it. `what()` is the message, which ends with the call site
// if that is known. A value; thread-safe.
#pragma once
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/site.h"
#include "base/status.h"
#include "base/status_exception.h"

namespace tessera {

class Error : public std::runtime_error {
 public:
  // `status` must not be ok.
  Error(absl::Status status, Site site);
  const absl::Status& status() const { return status_; }
  ErrorKind kind() const { return KindOf(status_); }
  std::string_view reason() const { return ReasonOf(status_); }  // such as VALUE_ERROR
  const Site& site() const { return site_; }                     // site of the user's call

 private:
  absl::Status status_;
  Site site_;
};

namespace internal {

[[noreturn]] void ThrowError(const absl::Status& status, const Site& site);
// Throws an error whose message is the concatenation of `parts`, as by absl::StrCat.
template <class... Parts>
[[noreturn]] void ThrowError(ErrorKind kind, const Site& site, const Parts&... parts) {
  ThrowError(MakeError(kind, absl::StrCat(parts...)), site);
}
inline void ThrowIfError(const absl::Status& status, const Site& site) {
  if (!status.ok()) ThrowError(status, site);
}
template <class T>
T OrThrow(absl::StatusOr<T> value, const Site& site) {
  if (!value.ok()) ThrowError(value.status(), site);
  return *std::move(value);
}
// Calls `f`, and rethrows a StatusException of ir/ as Error.
template <class F>
auto ConvertExceptions(const Site& site, F&& f) {
  try {
    return std::forward<F>(f)();
  } catch (const StatusException& e) {
    ThrowError(e.status(), site);
  }
}

}  // namespace internal
}  // namespace tessera
