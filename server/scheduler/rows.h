// Rows: the records of the state that the next life of the coordinator has to know. Each step
// commits the records that it has changed, as they are at the end of the step. The first step of a
// life receives all rows (Restore in events.h). server/rows encodes them as bytes and lists which
// members of a record are written.
//
// The written records are sessions, arrays, uploaded programs, executables, operations and their
// ends, meshes, workers, executors, and the answers to calls that may come again. Ends of leases,
// waits, communicators and unfinished uploads are not written, because they begin anew. The
// programs that executors have and the shards that have been uploaded are not written either,
// because executors report them when they return.
#pragma once
#include <algorithm>
#include <compare>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "server/core/rows.h"
#include "server/scheduler/answers.h"
#include "server/scheduler/catalogue.h"
#include "server/scheduler/cluster.h"
#include "server/scheduler/operation.h"
#include "server/scheduler/ownership.h"
#include "server/scheduler/uploads.h"

namespace tessera::server::scheduler {

struct RowKey {
  core::RowKind kind = core::RowKind::kSession;
  uint64_t id = 0;  // id of the session, array, operation or executable; number of the answer
  // The name of a worker or executor, "tenant/name" for a mesh, "tenant/hash" for a program.
  std::string name = {};
  auto operator<=>(const RowKey&) const = default;
};

struct RowChange {
  RowKey key;
  // Holds no record if the object no longer exists. The record of the executor "" says in
  // first_device how many device ids are assigned, because the ids of deleted workers are not used
  // again.
  std::variant<std::monostate, Session, ArrayRecord, Operation, Executable, NamedMesh, Worker,
               Executor, AnswerRecord, UploadedProgram>
      record;
};

// Convert between the name in the row's key and the pair (tenant, name). They are for objects that
// a tenant calls by a name or a hash. Neither such a name or hash nor the
// name of a tenant contains a '/'.
inline std::string NameInRow(const std::pair<std::string, std::string>& key) {
  return key.first + "/" + key.second;
}
inline std::pair<std::string, std::string> OwnerAndName(const std::string& name) {
  const size_t slash = std::min(name.find('/'), name.size());
  return {name.substr(0, slash), name.substr(std::min(slash + 1, name.size()))};
}

}  // namespace tessera::server::scheduler
