// What the next life of the coordinator is to know: records of the state as they were at the end of
// a step, and as the first step of a life gets them (events.h, Restore). server/rows writes them as
// bytes; what of a record is written is listed there.
//
// Written are sessions, arrays, uploaded programs, executables, operations and their ends, meshes,
// workers, executors and the answers to calls that may come again. Not written is what begins anew:
// leases, waits, communicators, programs that are not whole; and what executors say themselves when
// they return: which programs they have, and which shards have been uploaded.
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
  uint64_t id = 0;  // of a session, array, operation or executable; an answer's number
  std::string name =
      {};  // of a worker or executor; "tenant/name" of a mesh, "tenant/hash" of a program
  auto operator<=>(const RowKey&) const = default;
};

struct RowChange {
  RowKey key;
  // None: it no longer exists. The executor "" says how many ids of devices are assigned
  // (first_device), since those of deleted workers are not used again.
  std::variant<std::monostate, Session, ArrayRecord, Operation, Executable, NamedMesh, Worker,
               Executor, AnswerRecord, UploadedProgram>
      record;
};

struct State;
// The record as it is.
RowChange RowOf(const State& state, const RowKey& key);

// What a tenant calls by a name or a hash, of which none has a '/': the name in the row's key, and
// (tenant, name).
inline std::string NameInRow(const std::pair<std::string, std::string>& key) {
  return key.first + "/" + key.second;
}
inline std::pair<std::string, std::string> OwnerAndName(const std::string& name) {
  const size_t slash = std::min(name.find('/'), name.size());
  return {name.substr(0, slash), name.substr(std::min(slash + 1, name.size()))};
}

}  // namespace tessera::server::scheduler
