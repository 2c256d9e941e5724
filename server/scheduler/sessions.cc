// Sessions of clients: opened, renewed, ended; and whose ids are.
#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "server/scheduler/machine.h"

namespace tessera::server::scheduler {
namespace {

// Shorter ones would only keep the timers busy.
constexpr absl::Duration kLeaseMin = absl::Milliseconds(100);

}  // namespace

absl::Status Machine::NoSession(uint64_t id) const {
  return MakeError(
      ErrorKind::kSessionNotFound,
      absl::StrCat("session ", id, " does not exist, was deleted, or its lease ran out",
                   IfRestarted(id), "; open one"));
}

std::string Machine::IfRestarted(uint64_t id) const {
  // Does not tell whether an id of this life was given: that is its owner's to know.
  const core::Life& life = s_.config.life;
  const bool of_this = id > life.first_id && id - life.first_id <= life.ids;
  return of_this || id == 0 ? "" : ": the coordinator restarted since it was given, and lost it";
}

std::string Machine::WhatElse(const core::Caller& caller, uint64_t id, Access access) const {
  const std::string* owner = OwnerOf(id);
  if (owner == nullptr || !May(caller, *owner, access)) return IfRestarted(id);
  if (s_.executables.count(id) > 0) return ": it is an executable";
  if (s_.arrays.count(id) > 0) return ": it is an array";
  const auto op = s_.operations.find(id);
  if (op == s_.operations.end()) return IfRestarted(id);
  const std::vector<uint64_t>& results = op->second.results;
  if (results.empty()) return ": it is an operation";
  // Results have ids one after the other.
  return absl::StrCat(": it is an operation, which makes ",
                      results.size() == 1 ? "array " : "arrays ", results.front(),
                      results.size() == 1 ? "" : absl::StrCat(" to ", results.back()));
}

uint64_t Machine::NewId(const std::string& tenant) {
  const uint64_t id = ++s_.last_id;
  if (s_.owners.empty() || std::prev(s_.owners.end())->second != tenant) {
    s_.owners.emplace(id, tenant);
    if (static_cast<int64_t>(s_.owners.size()) > s_.config.owners_max)
      s_.owners.erase(s_.owners.begin());
  }
  return id;
}

const std::string* Machine::OwnerOf(uint64_t id) const {
  if (id == 0 || id > s_.last_id) return nullptr;
  const auto next = s_.owners.upper_bound(id);
  return next == s_.owners.begin() ? nullptr : &std::prev(next)->second;
}

int64_t Machine::PageSize(int64_t asked) const {
  return asked <= 0 ? s_.config.page_size : std::min(asked, s_.config.page_size_max);
}

uint64_t Machine::OwnSession(const std::string& tenant) {
  const auto [it, added] = s_.own_sessions.try_emplace(tenant, 0);
  if (added) {
    it->second = ++s_.last_session;
    Session& session = s_.sessions[it->second];
    session.tenant = tenant;
    session.own = true;
  }
  return it->second;
}

absl::StatusOr<uint64_t> Machine::FindSession(const core::Caller& caller, uint64_t id,
                                              Access access) {
  if (id == 0) return OwnSession(caller.tenant);
  const auto it = s_.sessions.find(id);
  if (it == s_.sessions.end() || it->second.own || !May(caller, it->second.tenant, access))
    return NoSession(id);
  // The timer that is armed finds that the lease has moved on.
  if (access == Access::kChange) it->second.until = now_ + it->second.lease;
  return id;
}

uint64_t Machine::NameOfSession(uint64_t key) const {
  const auto it = s_.sessions.find(key);
  return it != s_.sessions.end() && it->second.own ? 0 : key;
}

SessionInfo Machine::Info(uint64_t key, const Session& session) const {
  return {.id = session.own ? 0 : key,
          .tenant = session.tenant,
          .display_name = session.display_name,
          .lease = session.lease,
          .expires = session.until + s_.wall_ahead,
          .grace = session.own ? absl::ZeroDuration() : s_.config.session_grace,
          .arrays = static_cast<int64_t>(session.arrays.size()),
          .operations = static_cast<int64_t>(session.operations.size())};
}

void Machine::On(const OpenSession& e) {
  if (e.lease < absl::ZeroDuration())
    return Answer(e.request,
                  MakeError(ErrorKind::kValueError,
                            absl::StrCat("session: a lease of ", absl::FormatDuration(e.lease),
                                         "; leases are positive")));
  if (s_.leased_sessions >= s_.config.sessions_max)
    return Answer(e.request,
                  MakeError(ErrorKind::kLimitExceeded,
                            absl::StrCat("session: ", s_.leased_sessions, " exist, at most ",
                                         s_.config.sessions_max, " are kept; delete some")));
  const uint64_t id = ++s_.last_session;
  ++s_.leased_sessions;
  Session& session = s_.sessions[id];
  session.tenant = e.caller.tenant;
  session.display_name = e.display_name;
  session.lease = std::clamp(e.lease == absl::ZeroDuration() ? s_.config.session_lease : e.lease,
                             kLeaseMin, s_.config.session_lease_max);
  session.until = now_ + session.lease;
  Arm(session.until, kSessionTimer, id);
  Log(absl::StrCat("session ", id, " opened"));
  Answer(e.request, Info(id, session));
}

void Machine::On(const GetSession& e) {
  const auto key = FindSession(e.caller, e.session, e.renew ? Access::kChange : Access::kRead);
  if (!key.ok()) return Answer(e.request, key.status());
  Session& session = s_.sessions.at(*key);
  if (e.renew) EndSilence(*key, session);
  Answer(e.request, Info(*key, session));
}

void Machine::On(const ListSessions& e) {
  Page<SessionInfo> page;
  const auto size = static_cast<size_t>(PageSize(e.page.size));
  for (auto it = s_.sessions.upper_bound(e.page.after); it != s_.sessions.end(); ++it) {
    const Session& session = it->second;
    if (session.own || session.tenant != e.caller.tenant) continue;
    if (page.items.size() == size) {
      page.more = true;
      break;
    }
    page.items.push_back(Info(it->first, session));
  }
  Answer(e.request, std::move(page));
}

void Machine::On(const CloseSession& e) {
  if (e.session == 0)
    return Answer(e.request, MakeError(ErrorKind::kValueError,
                                       "session 0 is the tenant's own and stays; delete its "
                                       "arrays and cancel its operations"));
  const auto key = FindSession(e.caller, e.session, Access::kChange);
  if (!key.ok()) return Answer(e.request, key.status());
  Note(core::SessionEnded{s_.sessions.at(*key).tenant, "deleted"});
  EndSession(*key, "it was deleted");
  Answer(e.request, std::monostate());
}

void Machine::On(const HoldSession& e) {
  const auto refuse = [&](const absl::Status& why) {
    Answer(e.request, why);
    Answer(e.end_request, why);
  };
  if (e.session == 0)
    return refuse(MakeError(ErrorKind::kValueError,
                            "session 0 is the tenant's own, which nobody holds; open one"));
  const auto key = FindSession(e.caller, e.session, Access::kChange);
  if (!key.ok()) return refuse(key.status());
  Session& session = s_.sessions.at(*key);
  EndSilence(*key, session);
  session.holds.emplace(e.hold, e.end_request);
  Answer(e.request, Info(*key, session));
  Waiter w;
  w.kind = Waiter::kHold;
  w.id = *key;
  w.until = absl::InfiniteFuture();  // The connection's keepalive bounds it.
  Wait(e.end_request, std::move(w));
}

void Machine::On(const DropHold& e) {
  const auto it = s_.sessions.find(e.session);
  if (it == s_.sessions.end()) return;
  Session& session = it->second;
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

void Machine::SilenceTimer(uint64_t key) {
  Session& session = s_.sessions.at(key);
  session.silent_until = absl::InfiniteFuture();
  if (session.operations.empty()) return;
  const std::string why =
      absl::StrCat("the client of its session ", key, " is gone: its connection ended, and none ",
                   "took its place within ", absl::FormatDuration(s_.config.session_grace));
  Log(absl::StrCat("session ", key, ": ", session.operations.size(),
                   " operations cancelled: ", "its client is gone"));
  CancelOperations(std::set<uint64_t>(session.operations), why);
}

void Machine::CancelOperations(const std::set<uint64_t>& operations, const std::string& why) {
  for (uint64_t op : operations)
    Fail(op,
         MakeError(ErrorKind::kCancelled,
                   absl::StrCat("operation ", op, " (", s_.operations.at(op).name,
                                ") was cancelled: ", why)),
         api::OperationState::kCancelled);
}

void Machine::SessionTimer(uint64_t key) {
  const auto it = s_.sessions.find(key);
  if (it == s_.sessions.end()) return;
  if (it->second.until > now_) return Arm(it->second.until, kSessionTimer, key);
  Note(core::SessionEnded{it->second.tenant, "lease_expired"});
  Tell("session not renewed", {{"session", absl::StrCat(key)},
                               {"tenant", it->second.tenant},
                               {"client", it->second.display_name},
                               {"lease", absl::FormatDuration(it->second.lease)},
                               {"operations_cancelled", absl::StrCat(it->second.operations.size())},
                               {"arrays_deleted", absl::StrCat(it->second.arrays.size())}});
  EndSession(key, absl::StrCat("its lease of ", absl::FormatDuration(it->second.lease),
                               " was not renewed"));
}

void Machine::EndSession(uint64_t key, const std::string& why) {
  const auto it = s_.sessions.find(key);
  const std::set<uint64_t> operations = std::move(it->second.operations);
  const std::set<uint64_t> arrays = std::move(it->second.arrays);
  const std::map<uint64_t, uint64_t> holds = std::move(it->second.holds);
  EndSilence(key, it->second);
  // The lease's timer, which is still armed, finds nothing.
  s_.sessions.erase(it);
  --s_.leased_sessions;
  Log(absl::StrCat("session ", key, " ended: ", why));
  CancelOperations(operations, absl::StrCat("its session ", key, " has ended: ", why));
  for (uint64_t array : arrays) Delete(array);
  for (const auto& [hold, request] : holds) {
    EndWait(request);
    Answer(request, MakeError(ErrorKind::kSessionNotFound,
                              absl::StrCat("session ", key, " has ended: ", why, "; open one")));
  }
  std::vector<uint64_t> creates;
  for (const auto& [request, w] : s_.waiters)
    if (w.kind == Waiter::kCreate && w.id == key) creates.push_back(request);
  for (uint64_t request : creates) {
    EndWait(request);
    Answer(request, NoSession(key));
  }
}

}  // namespace tessera::server::scheduler
