// Implements Client::Ask, by which a client makes a call of any kind. The client_*.cc files include
// it.
#pragma once
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "tests/sim/client.h"

namespace tessera::sim {

// Whether a call of this kind that comes twice has no more effect than a call that comes once.
template <class E>
inline constexpr bool kIdempotent =
    !std::is_same_v<E, scheduler::OpenSession> && !std::is_same_v<E, scheduler::CreateArray> &&
    !std::is_same_v<E, scheduler::Execute> && !std::is_same_v<E, scheduler::ReshardArray> &&
    !std::is_same_v<E, scheduler::SaveArrays> && !std::is_same_v<E, scheduler::LoadArrays>;

template <class E>
void Client::Ask(const std::string& what, E event, ReplyFn then) {
  event.caller = caller_;
  const auto call = std::make_shared<Call>();
  call->what = what;
  call->then = std::move(then);
  call->repeats = kIdempotent<E>;
  // With a request id, the scheduler recognises a repetition of any call.
  if constexpr (requires { event.request_id.text; }) {
    call->repeats = true;
    event.request_id.text = absl::StrCat(caller_.tenant, "-", ++last_request_);
    event.request_id.payload = what;
  }
  call->send = [event = std::move(event)](Process* process, Process::ReplyFn done,
                                          Process::LostFn lost) {
    process->Call(event, std::move(done), std::move(lost));
  };
  BeginCall(call);
}

}  // namespace tessera::sim
