// Calls that came with a request_id. The objects that an accepted call has made are remembered, and
// a call that comes again is answered from them (answers.h). Step asks AnswerIfRepeated before it
// passes a call to its handler.
#include <utility>

#include "absl/strings/escaping.h"
#include "server/scheduler/machine.h"

namespace tessera::server::scheduler {

const AnswerRecord* Machine::FindAnswer(const core::Caller& caller, CallKind call,
                                        const std::string& request_id) const {
  return request_id.empty() ? nullptr : s_.answers.Find(caller.tenant, call, request_id, now_);
}

void Machine::Remember(const Request& e, CallKind call, uint64_t made,
                       const std::vector<uint64_t>& arrays) {
  const core::AnswerLimits limits{.answers_max = s_.config.request_ids_max,
                                  .age_max = s_.config.request_id_age};
  AnswerRecord answer{e.caller.tenant, call, e.request_id.text, e.request_id.payload, made,
                      arrays,          {}};
  for (const auto& [number, tenant] : s_.answers.Add(std::move(answer), limits, now_))
    MarkChanged(core::RowKind::kAnswer, number, tenant);
}

absl::Status Machine::RequestIdReusedError(const Request& e) {
  return Error(ErrorKind::kRequestIdReused, "request_id '", absl::CEscape(e.request_id.text),
               "' was used before with another request; use a new one");
}

absl::StatusOr<PendingArrays> Machine::PendingArraysOf(const core::Caller& caller,
                                                       const AnswerRecord& first) {
  TESSERA_ASSIGN_OR_RETURN(const Operation* op, FindOperation(caller, first.made, Access::kRead));
  PendingArrays pending{Describe(*op), {}};
  for (uint64_t id : first.arrays) {
    TESSERA_RETURN_IF_ERROR(FindArray(caller, id, Access::kRead).status());
    pending.arrays.push_back(ArrayInfoOf(id));
  }
  return pending;
}

void Machine::AnswerRepeatedCall(const OpenSession& e, const AnswerRecord& first) {
  const Session* const session = ownership_.FindSession(first.made);
  if (session == nullptr) return Answer(e.request, NoSessionError(first.made));
  Answer(e.request, SessionInfoOf(first.made, *session));
}

void Machine::AnswerRepeatedCall(const CloseSession& e, const AnswerRecord&) {
  Answer(e.request, std::monostate());
}

void Machine::AnswerRepeatedCall(const CreateMesh& e, const AnswerRecord&) {
  Answer(e.request, On(GetMesh{e, e.name}));
}

void Machine::AnswerRepeatedCall(const DeleteMesh& e, const AnswerRecord&) {
  Answer(e.request, std::monostate());
}

void Machine::AnswerRepeatedCall(const DeleteProgram& e, const AnswerRecord&) {
  Answer(e.request, std::monostate());
}

void Machine::AnswerRepeatedCall(const Execute& e, const AnswerRecord& first) {
  Answer(e.request, api::ExecuteReply{first.made, first.arrays});
  if (e.end_request == 0) return;
  const auto found = FindOperation(e.caller, first.made, Access::kRead);
  if (!found.ok()) return Answer(e.end_request, found.status());
  Operation& op = order_.operation(first.made);
  if (op.ended()) return Answer(e.end_request, TakeCompletion(op));
  BeginWait(e.end_request, now_ + s_.config.result_wait_max, CompletionWait{{op.id}});
}

void Machine::AnswerRepeatedCall(const CreateArray& e, const AnswerRecord& first) {
  const auto found = FindArray(e.caller, first.made, Access::kChange);
  if (!found.ok()) return Answer(e.request, found.status());
  Answer(e.request, ArrayInfoOf(first.made));
}

void Machine::AnswerRepeatedCall(const ReshardArray& e, const AnswerRecord& first) {
  Answer(e.request, PendingArraysOf(e.caller, first));
}

void Machine::AnswerRepeatedCall(const SaveArrays& e, const AnswerRecord& first) {
  const auto found = FindOperation(e.caller, first.made, Access::kRead);
  if (!found.ok()) return Answer(e.request, found.status());
  Answer(e.request, Describe(**found));
}

void Machine::AnswerRepeatedCall(const LoadArrays& e, const AnswerRecord& first) {
  Answer(e.request, PendingArraysOf(e.caller, first));
}

void Machine::AnswerRepeatedCall(const DeleteArrays& e, const AnswerRecord& first) {
  Answer(e.request, MissingArrays{first.arrays});
}

}  // namespace tessera::server::scheduler
