// Messages of ir/api/worker_link.h to the envelopes that carry them and back.  Stateless;
// thread-safe.
#pragma once
#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "ir/api/worker_link.h"
#include "ir/verify.h"
#include "tessera/v1/worker.pb.h"

namespace tessera::ir::serial {

// The sender fills in the epoch.
v1::Envelope ToEnvelope(int32_t executor, uint64_t incarnation, const api::Command& command);
v1::Envelope ToEnvelope(const api::Report& report);
v1::Envelope ToEnvelope(const api::Registration& registration);
v1::Envelope ToEnvelope(const api::Welcome& welcome);
v1::Envelope ToEnvelope(const api::Attachment& attachment);

// VALUE_ERROR: the envelope holds something else, or its body breaks a bound; LIMIT_EXCEEDED; the
// error of a program that does not read.
absl::StatusOr<api::Command> ReadCommand(const v1::Envelope& envelope, const Limits& limits = {});
absl::StatusOr<api::Report> ReadReport(const v1::Envelope& envelope, const Limits& limits = {});
// Names are printable and at most 128 bytes, at most 1024 executors, each index once, 1 to 65536
// devices.
absl::StatusOr<api::Registration> ReadRegistration(const v1::Envelope& envelope);
absl::StatusOr<api::Welcome> ReadWelcome(const v1::Envelope& envelope);
absl::StatusOr<api::Attachment> ReadAttachment(const v1::Envelope& envelope);

// The report that fails a command that did not read with `why`; nullopt if none is expected.
std::optional<api::ReportBody> AnswerUnread(const v1::Envelope& envelope, const absl::Status& why);

}  // namespace tessera::ir::serial
