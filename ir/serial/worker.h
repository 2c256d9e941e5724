// Converts the messages of ir/api/worker_link.h to the envelopes that carry them, and back.
// Stateless; thread-safe.
#pragma once
#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "ir/api/worker_link.h"
#include "ir/verify.h"
#include "tessera/v1/worker.pb.h"

namespace tessera::ir::serial {

// The sender sets the epoch of the envelope.
v1::Envelope ToEnvelope(int32_t executor, uint64_t incarnation, const api::Command& command);
v1::Envelope ToEnvelope(const api::Report& report);
v1::Envelope ToEnvelope(const api::Registration& registration);
v1::Envelope ToEnvelope(const api::Welcome& welcome);
v1::Envelope ToEnvelope(const api::Attachment& attachment);

// Errors: VALUE_ERROR if the envelope holds another kind of message or its body breaks a bound;
// LIMIT_EXCEEDED; or the error of a program that cannot be read.
absl::StatusOr<api::Command> ReadCommand(const v1::Envelope& envelope, const Limits& limits = {});
absl::StatusOr<api::Report> ReadReport(const v1::Envelope& envelope, const Limits& limits = {});
// Checks that names are printable and at most 128 bytes long, that there are at most 1024 executors
// with distinct indices, and that each has 1 to 65536 devices.
absl::StatusOr<api::Registration> ReadRegistration(const v1::Envelope& envelope);
absl::StatusOr<api::Welcome> ReadWelcome(const v1::Envelope& envelope);
absl::StatusOr<api::Attachment> ReadAttachment(const v1::Envelope& envelope);

// Returns the report that fails an unreadable command with the error `why`, or nullopt if the
// coordinator expects no report for it.
std::optional<api::ReportBody> FailureReportFor(const v1::Envelope& envelope,
                                                const absl::Status& why);

}  // namespace tessera::ir::serial
