// The client of the requests fuzzer (server/requests_fuzz.cc), which sends raw bytes to every
// method.
#include "server/rpc/raw_call.h"

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/log.h"

namespace tessera::server::rpc {

// Makes the call as a stream in both directions, which works for unary methods too, so that one
// function serves every kind of method. Each step waits on a queue of its own call; the deadline
// bounds them all.
absl::Status RawCaller::Call(const std::string& method, absl::string_view bytes,
                             absl::Duration bound) {
  grpc::ClientContext context;
  context.set_deadline(WallDeadline(bound));
  grpc::CompletionQueue queue;
  const auto wait = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    TESSERA_CHECK(queue.Next(&tag, &ok));
    return ok;
  };
  const auto call = stub_.PrepareCall(&context, absl::StrCat("/", method), &queue);
  call->StartCall(nullptr);
  bool open = wait();
  if (open) {
    const grpc::Slice slice(bytes.data(), bytes.size());
    call->WriteLast(grpc::ByteBuffer(&slice, 1), {}, nullptr);
    wait();
  }
  while (open) {
    grpc::ByteBuffer message;
    call->Read(&message, nullptr);
    open = wait();
  }
  grpc::Status end;
  call->Finish(&end, nullptr);
  wait();
  return absl::Status(static_cast<absl::StatusCode>(end.error_code()), end.error_message());
}

std::vector<std::string> AllMethods() {
  return {
#define TESSERA_METHOD(service, method, least, ...) "tessera.v1." #service "/" #method,
#include "server/rpc/methods.def"
#undef TESSERA_METHOD
  };
}

}  // namespace tessera::server::rpc
