// Handles the sessions of clients: opening, renewing, holding and ending them. It also makes the
// hints that errors about unknown ids end with.
#include <algorithm>
#include <iterator>

#include "server/scheduler/machine.h"

namespace tessera::server::scheduler {
namespace {

// Shorter leases would only cause many timers.
constexpr absl::Duration kLeaseMin = absl::Milliseconds(100);

}  // namespace

absl::Status Machine::NoSessionError(uint64_t id) const {
  return Error(ErrorKind::kSessionNotFound, "session ", id,
               " does not exist, was deleted, or its lease ran out", HintIfRestarted(id),
               "; open one");
}

std::string Machine::HintIfRestarted(uint64_t id) const {
  // The hint is the same for all ids of this life, so that other tenants do not learn which ids
  // exist.
  const core::Life& life = s_.config.life;
  const bool is_of_this_life = id > life.first_id && id - life.first_id <= life.num_ids;
  if (is_of_this_life || id == 0) return "";
  return s_.config.durable ? ": it had ended before the coordinator restarted"
                           : ": the coordinator has restarted since then and has lost it";
}

std::string Machine::HintAboutId(const core::Caller& caller, uint64_t id, Access access) const {
  const std::string* owner = ownership_.OwnerOf(id);
  if (owner == nullptr || !Allowed(caller, *owner, access)) return HintIfRestarted(id);
  if (catalogue_.FindExecutable(id) != nullptr) return ": it is an executable";
  if (catalogue_.FindArray(id) != nullptr) return ": it is an array";
  auto* const op = order_.Find(id);
  if (op == nullptr) return HintIfRestarted(id);
  const std::vector<uint64_t>& results = op->results;
  if (results.empty()) return ": it is an operation";
  // The ids of results are consecutive.
  return absl::StrCat(": it is an operation, which makes ",
                      results.size() == 1 ? "array " : "arrays ", results.front(),
                      results.size() == 1 ? "" : absl::StrCat(" to ", results.back()));
}

int64_t Machine::PageSize(int64_t requested) const {
  return requested <= 0 ? s_.config.page_size : std::min(requested, s_.config.page_size_max);
}

absl::StatusOr<uint64_t> Machine::FindSession(const core::Caller& caller, uint64_t id,
                                              Access access) {
  if (id == 0) {
    const size_t known = ownership_.sessions().size();
    const uint64_t own = ownership_.FindOrAddOwnSession(caller.tenant);
    if (ownership_.sessions().size() > known)
      MarkChanged(core::RowKind::kSession, own, caller.tenant);
    return own;
  }
  auto* const it = ownership_.FindSession(id);
  if (it == nullptr || it->own || !Allowed(caller, it->tenant, access)) return NoSessionError(id);
  // The timer stays armed for the old time. OnSessionTimer then arms it for the new one.
  if (access == Access::kChange) it->lease_until = now_ + it->lease;
  return id;
}

SessionInfo Machine::SessionInfoOf(uint64_t key, const Session& session) const {
  return {.id = session.own ? 0 : key,
          .tenant = session.tenant,
          .display_name = session.display_name,
          .lease = session.lease,
          .expires = session.lease_until + s_.wall_ahead,
          .grace = session.own ? absl::ZeroDuration() : s_.config.session_grace,
          .arrays = static_cast<int64_t>(session.arrays.size()),
          .operations = static_cast<int64_t>(session.operations.size())};
}

absl::StatusOr<SessionInfo> Machine::On(const OpenSession& e) {
  if (e.lease < absl::ZeroDuration())
    return Error(ErrorKind::kValueError, "session: a lease of ", absl::FormatDuration(e.lease),
                 "; leases are positive");
  if (ownership_.num_leased() >= s_.config.sessions_max)
    return Error(ErrorKind::kLimitExceeded, "session: ", ownership_.num_leased(),
                 " sessions exist, at most ", s_.config.sessions_max, " are kept; delete some");
  const uint64_t id = ownership_.AddSession();
  Session& session = ownership_.session(id);
  session.tenant = e.caller.tenant;
  session.display_name = e.display_name;
  session.lease = std::clamp(e.lease == absl::ZeroDuration() ? s_.config.session_lease : e.lease,
                             kLeaseMin, s_.config.session_lease_max);
  session.lease_until = now_ + session.lease;
  Arm(session.lease_until, kSessionTimer, id);
  MarkChanged(core::RowKind::kSession, id, session.tenant);
  Log("session ", id, " opened");
  Remember(e, id);
  return SessionInfoOf(id, session);
}

absl::StatusOr<SessionInfo> Machine::On(const GetSession& e) {
  TESSERA_ASSIGN_OR_RETURN(
      const uint64_t key,
      FindSession(e.caller, e.session, e.renew ? Access::kChange : Access::kRead));
  Session& session = ownership_.session(key);
  if (e.renew) EndSilence(key, session);
  return SessionInfoOf(key, session);
}

absl::StatusOr<Page<SessionInfo>> Machine::On(const ListSessions& e) {
  Page<SessionInfo> page;
  const auto size = static_cast<size_t>(PageSize(e.page.size));
  const std::map<uint64_t, Session>& sessions = ownership_.sessions();
  for (auto it = sessions.upper_bound(e.page.after); it != sessions.end(); ++it) {
    const Session& session = it->second;
    if (session.own || session.tenant != e.caller.tenant) continue;
    if (page.items.size() == size) {
      page.has_more = true;
      break;
    }
    page.items.push_back(SessionInfoOf(it->first, session));
  }
  return page;
}

absl::StatusOr<std::monostate> Machine::On(const CloseSession& e) {
  if (e.session == 0)
    return MakeError(ErrorKind::kValueError,
                     "session 0 is the tenant's own and stays; delete its "
                     "arrays and cancel its operations");
  TESSERA_ASSIGN_OR_RETURN(const uint64_t key, FindSession(e.caller, e.session, Access::kChange));
  Note(core::SessionEnded{ownership_.session(key).tenant, "deleted"});
  EndSession(key, "it was deleted");
  Remember(e);
  return std::monostate();
}

void Machine::On(const HoldSession& e) {
  const auto refuse = [&](const absl::Status& why) {
    Answer(e.request, why);
    Answer(e.end_request, why);
  };
  if (e.session == 0)
    return refuse(MakeError(ErrorKind::kValueError,
                            "session 0 belongs to the tenant and cannot be held; open a session"));
  const auto key = FindSession(e.caller, e.session, Access::kChange);
  if (!key.ok()) return refuse(key.status());
  Session& session = ownership_.session(*key);
  EndSilence(*key, session);
  session.holds.emplace(e.hold, e.end_request);
  Answer(e.request, SessionInfoOf(*key, session));
  // There is no timeout, because the connection's keepalive notices a client that is gone.
  BeginWait(e.end_request, absl::InfiniteFuture(), HoldWait{});
}

void Machine::On(const DropHold& e) {
  auto* const it = ownership_.FindSession(e.session);
  if (it == nullptr) return;
  Session& session = *it;
  const auto hold = session.holds.find(e.hold);
  if (hold == session.holds.end()) return;
  const uint64_t end_request = hold->second;
  session.holds.erase(hold);
  EndWait(end_request);
  Answer(end_request, std::monostate());
  if (!session.holds.empty()) return;
  session.silent_until = now_ + s_.config.session_grace;
  Arm(session.silent_until, kSilenceTimer, e.session);
}

void Machine::EndSilence(uint64_t key, Session& session) {
  Disarm(session.silent_until, kSilenceTimer, key);
  session.silent_until = absl::InfiniteFuture();
}

void Machine::OnSilenceTimer(uint64_t key) {
  Session& session = ownership_.session(key);
  session.silent_until = absl::InfiniteFuture();
  if (session.operations.empty()) return;
  const std::string why =
      absl::StrCat("the client of its session ", key,
                   " is gone: its connection ended, and no other took its place within ",
                   absl::FormatDuration(s_.config.session_grace));
  Log("session ", key, ": ", session.operations.size(),
      " operations cancelled: ", "its client is gone");
  CancelOperations(IdSet(session.operations), why);
}

void Machine::CancelOperations(const IdSet& operations, const std::string& why) {
  for (uint64_t op : operations)
    Fail(op,
         Error(ErrorKind::kCancelled, "operation ", op, " (", order_.operation(op).name,
               ") was cancelled: ", why),
         api::OperationState::kCancelled);
}

void Machine::OnSessionTimer(uint64_t key) {
  auto* const it = ownership_.FindSession(key);
  if (it == nullptr) return;
  if (it->lease_until > now_) return Arm(it->lease_until, kSessionTimer, key);
  Note(core::SessionEnded{it->tenant, "lease_expired"});
  LogIncident("session not renewed", {{"session", absl::StrCat(key)},
                                      {"tenant", it->tenant},
                                      {"client", it->display_name},
                                      {"lease", absl::FormatDuration(it->lease)},
                                      {"operations_cancelled", absl::StrCat(it->operations.size())},
                                      {"arrays_deleted", absl::StrCat(it->arrays.size())}});
  EndSession(key,
             absl::StrCat("its lease of ", absl::FormatDuration(it->lease), " was not renewed"));
}

void Machine::EndSession(uint64_t key, const std::string& why) {
  auto* const it = ownership_.FindSession(key);
  const IdSet operations = std::move(it->operations);
  const absl::btree_set<uint64_t> arrays = std::move(it->arrays);
  const std::map<uint64_t, uint64_t> holds = std::move(it->holds);
  EndSilence(key, *it);
  MarkChanged(core::RowKind::kSession, key, it->tenant);
  // The lease's timer is still armed. OnSessionTimer ignores a session that does not exist.
  ownership_.RemoveSession(key);
  Log("session ", key, " ended: ", why);
  CancelOperations(operations, absl::StrCat("its session ", key, " has ended: ", why));
  for (uint64_t array : arrays) Delete(array);
  for (const auto& [hold, request] : holds) {
    EndWait(request);
    Answer(request,
           Error(ErrorKind::kSessionNotFound, "session ", key, " has ended: ", why, "; open one"));
  }
  std::vector<uint64_t> creates;
  for (const auto& [request, w] : s_.waiters)
    if (const auto* wait = std::get_if<CreateWait>(&w.wait);
        wait != nullptr && wait->session == key)
      creates.push_back(request);
  EndWaits(creates, NoSessionError(key));
}

}  // namespace tessera::server::scheduler
