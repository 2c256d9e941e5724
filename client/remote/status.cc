// Turns the status of every gRPC call of the client into the error that the user sees. An error of
// the server carries its details and is passed on; an error of the transport gets a kind and the
// name of the peer here.
#include "client/remote/status.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "ir/serial/grpc_status.h"
#include "ir/serial/probe.h"

namespace tessera::remote {

absl::Status FromGrpc(const grpc::Status& status, const std::string& peer,
                      ErrorKind unreachable_kind) {
  if (status.ok()) return absl::OkStatus();
  if (std::optional<absl::Status> details = ir::serial::DetailsOf(status))
    return *std::move(details);
  const bool never_connected = unreachable_kind == ErrorKind::kServerStopping &&
                               ir::serial::NeverConnected(status.error_message());
  // CANCELLED does not always mean that this client cancelled the call: a server that stops cancels
  // the calls that it has not answered.
  if (never_connected || status.error_code() == grpc::StatusCode::UNAVAILABLE ||
      status.error_code() == grpc::StatusCode::CANCELLED) {
    return MakeError(never_connected ? ErrorKind::kUnreachable : unreachable_kind,
                     absl::StrCat(peer, " does not answer: ",
                                  never_connected ? ir::serial::CauseOf(status.error_message())
                                                  : status.error_message(),
                                  ". Check that it runs and that the address is right"));
  }
  absl::Status out(static_cast<absl::StatusCode>(status.error_code()),
                   absl::StrCat(peer, ": ", status.error_message()));
  out.SetPayload(kReasonPayload, absl::Cord(ToAbsl(InfoOf(KindOf(out)).reason)));
  return out;
}

}  // namespace tessera::remote
