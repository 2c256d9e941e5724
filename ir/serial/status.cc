// Statuses, durations and times as messages. Errors to clients, reports of workers and stored
// operations all have this form.
#include "ir/serial/status.h"

#include "base/status.h"
#include "base/utf8.h"
#include "google/rpc/error_details.pb.h"

namespace tessera::ir::serial {

google::rpc::Status ToProto(const absl::Status& status) {
  google::rpc::Status out;
  out.set_code(status.raw_code());
  if (status.ok()) return out;
  out.set_message(AsUtf8(ToStd(status.message())));
  google::rpc::ErrorInfo info;
  info.set_reason(std::string(InfoOf(KindOf(status)).reason));
  info.set_domain(kErrorDomain);
  out.add_details()->PackFrom(info);
  if (IsRetryable(status)) {
    google::rpc::RetryInfo retry;
    *retry.mutable_retry_delay() = ToProto(absl::Milliseconds(200));
    out.add_details()->PackFrom(retry);
  }
  return out;
}

absl::Status FromProto(const google::rpc::Status& proto) {
  if (proto.code() == 0) return absl::OkStatus();
  constexpr int kLastCode = static_cast<int>(absl::StatusCode::kUnauthenticated);
  const auto code = proto.code() > 0 && proto.code() <= kLastCode
                        ? static_cast<absl::StatusCode>(proto.code())
                        : absl::StatusCode::kUnknown;
  absl::Status status(code, absl::string_view(proto.message()).substr(0, 64 << 10));
  for (const google::protobuf::Any& detail : proto.details()) {
    google::rpc::ErrorInfo info;
    if (!detail.UnpackTo(&info) || info.domain() != kErrorDomain) continue;
    status.SetPayload(kReasonPayload, absl::Cord(absl::string_view(info.reason()).substr(0, 64)));
    break;
  }
  return status;
}

google::protobuf::Duration ToProto(absl::Duration duration) {
  google::protobuf::Duration out;
  // The range of google.protobuf.Duration is about 10,000 years.
  constexpr absl::Duration kMax = absl::Seconds(315'576'000'000);
  if (duration > kMax) duration = kMax;
  if (duration < -kMax) duration = -kMax;
  out.set_seconds(absl::IDivDuration(duration, absl::Seconds(1), &duration));
  out.set_nanos(static_cast<int>(absl::IDivDuration(duration, absl::Nanoseconds(1), &duration)));
  return out;
}

absl::Duration FromProto(const google::protobuf::Duration& proto) {
  return absl::Seconds(proto.seconds()) + absl::Nanoseconds(proto.nanos());
}

google::protobuf::Timestamp ToProto(absl::Time time) {
  google::protobuf::Timestamp out;
  const int64_t seconds = absl::ToUnixSeconds(time);
  out.set_seconds(seconds);
  out.set_nanos(static_cast<int>((time - absl::FromUnixSeconds(seconds)) / absl::Nanoseconds(1)));
  return out;
}

absl::Time FromProto(const google::protobuf::Timestamp& proto) {
  return absl::FromUnixSeconds(proto.seconds()) + absl::Nanoseconds(proto.nanos());
}

}  // namespace tessera::ir::serial
