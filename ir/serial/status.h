// Converts absl::Status to google.rpc.Status and back: code, message, and the reason as an
// ErrorInfo. Durations and times are converted, too. Stateless; thread-safe.
#pragma once
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/timestamp.pb.h"
#include "google/rpc/status.pb.h"

namespace tessera::ir::serial {

inline constexpr char kErrorDomain[] = "tessera.dev";

google::rpc::Status ToProto(const absl::Status& status);
// An unknown code becomes kUnknown. Messages are truncated at 64 KiB.
absl::Status FromProto(const google::rpc::Status& proto);

google::protobuf::Duration ToProto(absl::Duration duration);
absl::Duration FromProto(const google::protobuf::Duration& proto);
google::protobuf::Timestamp ToProto(absl::Time time);
absl::Time FromProto(const google::protobuf::Timestamp& proto);

}  // namespace tessera::ir::serial
