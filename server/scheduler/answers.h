// The part of the state with what calls have made that came with a request_id, so that a call which
// comes again makes nothing again: it is answered from what the first one made. Written to the
// store in the commit of what was made, so that this holds over a restart too.
//
// Only calls that were accepted are here: one that was refused has changed nothing, and its id may
// be used again. What happens at the bounds is said at core::AnswerLimits.
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

// What a call does. Calls of one kind share their ids, whatever the method that they came by. The
// numbers are in rows of the store.
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
  uint64_t made = 0;    // the session, array or operation
  // The operation's results; of a deletion, those that it did not find.
  std::vector<uint64_t> arrays;
  absl::Time until;  // when it may go
};

class Answers {
 public:
  // By number, which rises in the order that the calls were accepted in.
  const std::map<uint64_t, AnswerRecord>& all() const { return all_; }
  // Null: no such call has been accepted, or too long ago.
  const AnswerRecord* Find(const std::string& tenant, CallKind call, const std::string& request_id,
                           absl::Time now) const;
  // Also erases what is beyond the limits. Returns the numbers and tenants of what was added and
  // erased. Requires: Find returns null.
  std::vector<std::pair<uint64_t, std::string>> Add(AnswerRecord answer,
                                                    const core::AnswerLimits& limits,
                                                    absl::Time now);
  // Forgets one of these, so that its call may be made anew. Returns its number.
  uint64_t Forget(const AnswerRecord& answer);
  // One of an earlier life; these come in the order of their numbers.
  void Restore(uint64_t number, AnswerRecord answer);

 private:
  struct Tenant {
    absl::flat_hash_map<std::pair<CallKind, std::string>, uint64_t> numbers;  // by kind and id
    std::deque<uint64_t> order;                                               // oldest first
    int64_t bytes = 0;
  };
  void Erase(uint64_t number);

  uint64_t last_ = 0;
  int64_t bytes_ = 0;
  std::map<uint64_t, AnswerRecord> all_;
  std::map<std::string, Tenant> tenants_;
};

}  // namespace tessera::server::scheduler
