// The part of the state that remembers what calls with a request_id have made. A repeated call
// makes nothing: it gets an answer that names the objects of the first call. The answer is written
// to the store in the same commit as the objects that the call has made, so that a repeated call is
// recognised after a restart too.
//
// Only accepted calls are kept here. A refused call has made nothing, and its request_id may be
// used again. core::AnswerLimits says what happens at the bounds.
//
// Reference: docs/decisions/0012.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "server/core/answer_limits.h"

namespace tessera::server::scheduler {

// The effect of a call. Calls of one kind with the same request id are repetitions of one call,
// even if they came by different methods. The numbers are stored in rows, so they must not change.
enum class CallKind : uint8_t {
  kOpenSession = 0,
  kCloseSession = 1,
  kCreateMesh = 2,
  kDeleteMesh = 3,
  kExecute = 4,
  kCreateArray = 5,
  kReshardArray = 6,
  kSaveArrays = 7,
  kLoadArrays = 8,
  kDeleteArrays = 9,
  kDeleteProgram = 10,
};

struct AnswerRecord {
  std::string tenant;
  CallKind call = CallKind::kOpenSession;
  std::string request_id;
  std::string payload;  // identifies the request
  uint64_t made = 0;    // id of the session, array or operation that was made
  // The results of the operation; for a deletion, the arrays that it did not find.
  std::vector<uint64_t> arrays;
  absl::Time until;  // time after which the answer may be dropped
};

class Answers {
 public:
  // The answers by number. Numbers rise in the order in which the calls were accepted.
  const std::map<uint64_t, AnswerRecord>& all() const { return answers_; }
  // Returns null if no such call has been accepted, or if its answer has expired or was dropped.
  const AnswerRecord* Find(const std::string& tenant, CallKind call, const std::string& request_id,
                           absl::Time now) const;
  // Adds the answer, and erases the oldest answers that are beyond the limits. Returns the numbers
  // and tenants of the answers that were added and erased. Requires: Find returns null.
  std::vector<std::pair<uint64_t, std::string>> Add(AnswerRecord answer,
                                                    const core::AnswerLimits& limits,
                                                    absl::Time now);
  // Requires: the answer is one of all().
  uint64_t NumberOf(const AnswerRecord& answer) const;
  // Drops the answer of this number. A call with its request_id then counts as a new call.
  void Erase(uint64_t number);
  // Adds an answer of an earlier life. Call it in the order of the numbers.
  void Restore(uint64_t number, AnswerRecord answer);

 private:
  struct Tenant {
    // (kind of call, request_id) -> number of the answer.
    absl::flat_hash_map<std::pair<CallKind, std::string>, uint64_t> numbers;
    std::deque<uint64_t> order;  // numbers, oldest first
    int64_t bytes = 0;
  };

  uint64_t last_number_ = 0;
  int64_t bytes_ = 0;
  std::map<uint64_t, AnswerRecord> answers_;
  std::map<std::string, Tenant> tenants_;
};

}  // namespace tessera::server::scheduler
