// The part of the state with who owns what: sessions of clients, and the tenants of ids.
//
// Invariants:
// - A tenant has at most one default session, which is created on first use and never ends; every
//   other session has a lease.
// - Arrays, executables and operations get their ids from one sequence; the tenant of an id is
// known
//   until there are owners_max later ranges of ids.
// - A session's arrays are those in the catalogue that are not deleted, its operations those in the
//   order that have not ended.
#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "absl/container/btree_set.h"
#include "absl/time/time.h"
#include "server/scheduler/find.h"
#include "server/scheduler/id_set.h"

namespace tessera::server::scheduler {

// A client's session: the owner of its arrays and operations.
struct Session {
  std::string tenant, display_name;
  bool own = false;  // the tenant's default session, which has no lease; clients call it 0
  absl::Duration lease = absl::InfiniteDuration();
  absl::Time until = absl::InfiniteFuture();
  absl::btree_set<uint64_t> arrays;    // not deleted
  IdSet operations;                    // not ended
  std::map<uint64_t, uint64_t> holds;  // hold -> request that waits for its end
  // When its operations are cancelled unless a client reconnects; infinite while one is connected.
  absl::Time silent_until = absl::InfiniteFuture();
};

class Ownership {
 public:
  // By key: the id of a session with a lease, an internal id of a default session.
  const std::map<uint64_t, Session>& sessions() const { return sessions_; }
  int64_t num_leased() const {
    return static_cast<int64_t>(sessions_.size() - own_sessions_.size());
  }
  Session* FindSession(uint64_t key) { return FindIn(sessions_, key); }
  // Requires: it exists.
  Session& session(uint64_t key) { return sessions_.at(key); }
  // The id by which clients name the session.
  uint64_t NameOf(uint64_t key) const;
  // The tenant of the id; null if it was never assigned, or too long ago.
  const std::string* OwnerOf(uint64_t id) const;

  // Ids will be greater than this.
  void Begin(uint64_t first_id) { last_id_ = last_session_ = first_id; }
  // The next id of arrays, executables and operations.
  uint64_t NewId(const std::string& tenant, int64_t owners_max);
  // The key of the tenant's default session.
  uint64_t OwnSession(const std::string& tenant);
  // The key of a new session with a lease.
  uint64_t AddSession();
  // One of an earlier life.
  void RestoreSession(uint64_t key, Session session);
  void RemoveSession(uint64_t key) { sessions_.erase(key); }

 private:
  uint64_t last_id_ = 0;
  uint64_t last_session_ = 0;
  std::map<uint64_t, Session> sessions_;
  std::map<std::string, uint64_t> own_sessions_;  // tenant -> key of sessions
  std::map<uint64_t, std::string> owners_;  // the tenant of each id from the key to the next key
};

}  // namespace tessera::server::scheduler
