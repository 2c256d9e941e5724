// Assigns ids and keeps the sessions. sessions.cc calls these functions for requests about
// sessions, Machine::NewId calls them for every new object, and restore.cc at the start of a life.
#include "server/scheduler/ownership.h"

#include <iterator>

namespace tessera::server::scheduler {

uint64_t Ownership::ClientIdOf(uint64_t key) const {
  const auto it = sessions_.find(key);
  return it != sessions_.end() && it->second.own ? 0 : key;
}

const std::string* Ownership::OwnerOf(uint64_t id) const {
  if (id == 0 || id > last_id_) return nullptr;
  const auto next = owners_.upper_bound(id);
  return next == owners_.begin() ? nullptr : &std::prev(next)->second;
}

uint64_t Ownership::NewId(const std::string& tenant, int64_t owners_max) {
  const uint64_t id = ++last_id_;
  if (owners_.empty() || std::prev(owners_.end())->second != tenant) {
    owners_.emplace(id, tenant);
    if (static_cast<int64_t>(owners_.size()) > owners_max) owners_.erase(owners_.begin());
  }
  return id;
}

uint64_t Ownership::FindOrAddOwnSession(const std::string& tenant) {
  const auto [it, added] = own_sessions_.try_emplace(tenant, 0);
  if (added) {
    it->second = AddSession();
    Session& session = sessions_.at(it->second);
    session.tenant = tenant;
    session.own = true;
  }
  return it->second;
}

uint64_t Ownership::AddSession() {
  sessions_.try_emplace(++last_session_);
  return last_session_;
}

void Ownership::RestoreSession(uint64_t key, Session session) {
  if (session.own) own_sessions_[session.tenant] = key;
  sessions_.insert_or_assign(key, std::move(session));
}

}  // namespace tessera::server::scheduler
