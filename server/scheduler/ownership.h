// The part of the state that says who owns what: the sessions of clients, and the tenants of ids.
//
// Invariants:
// - A tenant has at most one default session, which is created on first use and never ends. Every
//   other session has a lease.
// - Arrays, executables and operations get their ids from one sequence. Consecutive ids of one
//   tenant are a range; the tenants of the last owners_max ranges are known.
// - `arrays` of a session are its arrays in the catalogue that are not deleted. `operations` are
//   its operations in the order that have not ended.
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
  // Whether it is the tenant's default session, which has no lease; clients call it 0.
  bool own = false;
  absl::Duration lease = absl::InfiniteDuration();
  absl::Time lease_until = absl::InfiniteFuture();
  absl::btree_set<uint64_t> arrays;    // arrays that are not deleted
  IdSet operations;                    // operations that have not ended
  std::map<uint64_t, uint64_t> holds;  // hold -> request that waits for its end
  // The time at which its operations are cancelled unless a client reconnects; infinite while a
  // client is connected.
  absl::Time silent_until = absl::InfiniteFuture();
};

class Ownership {
 public:
  // The sessions by key. The key is the id of a session with a lease, or the internal id of a
  // default session.
  const std::map<uint64_t, Session>& sessions() const { return sessions_; }
  int64_t num_leased() const {
    return static_cast<int64_t>(sessions_.size() - own_sessions_.size());
  }
  Session* FindSession(uint64_t key) { return FindIn(sessions_, key); }
  // Requires: the session exists.
  Session& session(uint64_t key) { return sessions_.at(key); }
  // Returns the id by which clients name the session.
  uint64_t ClientIdOf(uint64_t key) const;
  // Returns the tenant of the id, or null if the id was never assigned or was assigned too long
  // ago.
  const std::string* OwnerOf(uint64_t id) const;

  // Makes all later ids greater than `first_id`.
  void Begin(uint64_t first_id) { last_id_ = last_session_ = first_id; }
  // Returns the next id for an array, executable or operation.
  uint64_t NewId(const std::string& tenant, int64_t owners_max);
  // Returns the key of the tenant's default session, and creates the session if there is none.
  uint64_t FindOrAddOwnSession(const std::string& tenant);
  // Adds a session with a lease, and returns its key.
  uint64_t AddSession();
  // Adds a session of an earlier life.
  void RestoreSession(uint64_t key, Session session);
  void RemoveSession(uint64_t key) { sessions_.erase(key); }

 private:
  uint64_t last_id_ = 0;
  uint64_t last_session_ = 0;
  std::map<uint64_t, Session> sessions_;
  std::map<std::string, uint64_t> own_sessions_;  // tenant -> key of its default session
  std::map<uint64_t, std::string> owners_;        // first id of a range -> tenant of the range
};

}  // namespace tessera::server::scheduler
