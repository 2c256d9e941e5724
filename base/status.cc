// Makes and reads Tessera's errors from the table base/error_kinds.def. All layers use it; the code
// at the gRPC boundary translates the reason into google.rpc.ErrorInfo and back.
#include "base/status.h"

#include <iterator>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

constexpr ErrorKindInfo kErrorKinds[] = {
#define TESSERA_ERROR_KIND(name, reason, code, retry, description) \
  {ErrorKind::k##name, #name, reason, absl::StatusCode::code, retry, description},
#include "base/error_kinds.def"
#undef TESSERA_ERROR_KIND
};

const ErrorKindInfo* FindErrorInfo(const absl::Status& status) {
  const auto payload = status.GetPayload(kReasonPayload);
  if (!payload.has_value()) return nullptr;
  for (const ErrorKindInfo& info : kErrorKinds) {
    if (*payload == ToAbsl(info.reason)) return &info;
  }
  return nullptr;
}

// Returns the kind of a status without a reason, for example one that comes from a library.
ErrorKind KindOfCode(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return ErrorKind::kValueError;
    case absl::StatusCode::kUnimplemented:
      return ErrorKind::kNotImplemented;
    case absl::StatusCode::kResourceExhausted:
      return ErrorKind::kLimitExceeded;
    case absl::StatusCode::kUnavailable:
      return ErrorKind::kWorkerLost;
    case absl::StatusCode::kAborted:
      return ErrorKind::kPeerFailed;
    case absl::StatusCode::kDeadlineExceeded:
      return ErrorKind::kDeadlineExceeded;
    case absl::StatusCode::kCancelled:
      return ErrorKind::kCancelled;
    default:
      return ErrorKind::kInternal;
  }
}

}  // namespace

const ErrorKindInfo* ErrorKindsBegin() { return std::begin(kErrorKinds); }
const ErrorKindInfo* ErrorKindsEnd() { return std::end(kErrorKinds); }
const ErrorKindInfo& InfoOf(ErrorKind kind) { return kErrorKinds[static_cast<int>(kind)]; }

absl::Status MakeError(ErrorKind kind, std::string message) {
  const ErrorKindInfo& info = InfoOf(kind);
  absl::Status status(info.code, message);
  status.SetPayload(kReasonPayload, absl::Cord(ToAbsl(info.reason)));
  return status;
}

std::string_view ReasonOf(const absl::Status& status) {
  const ErrorKindInfo* info = FindErrorInfo(status);
  return info == nullptr ? std::string_view() : info->reason;
}

ErrorKind KindOf(const absl::Status& status) {
  const ErrorKindInfo* info = FindErrorInfo(status);
  return info == nullptr ? KindOfCode(status.code()) : info->kind;
}

bool IsRetryable(const absl::Status& status) {
  if (status.ok()) return false;
  const ErrorKindInfo* info = FindErrorInfo(status);
  return info == nullptr ? absl::IsUnavailable(status) : info->retry;
}

absl::Status Annotate(const absl::Status& status, std::string_view context) {
  if (status.ok()) return status;
  absl::Status result(status.code(), absl::StrCat(ToAbsl(context), ": ", status.message()));
  status.ForEachPayload([&result](absl::string_view type, const absl::Cord& payload) {
    result.SetPayload(type, payload);
  });
  return result;
}

}  // namespace tessera
