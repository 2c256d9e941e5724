// The calls of the host that a program makes, as compilation finds them. If the program uses the
// results of a call, the call is made before the program runs and needs its operands by then. So
// the part of the program that computes these operands becomes a program of its own. make_calls.h
// makes the calls.
//
// References: docs/decisions/0026, 0028, 0042.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/session.h"
#include "ir/program.h"
#include "ir/stablehlo/import.h"

namespace tessera::pjrt {

struct Client;

// A call whose results the program uses.
struct CallBeforeRun {
  std::string name;
  std::vector<ir::Type> results;
  // The part of the program that computes the call's operands.
  std::shared_ptr<const Session::Executable> executable;
  // Which values `executable` takes: one entry for each argument of the program, then one for each
  // result of earlier calls.
  std::vector<bool> takes;
};

// Plans the parts of `program` that compute the operands of the calls, and removes these operands
// from the results of `program`. Requires that the effects of `program` have been recorded, and
// that the operands are its last results but for the `num_printed` values that are the record.
absl::StatusOr<std::vector<CallBeforeRun>> SplitCalls(
    Client& client, const std::vector<ir::stablehlo::HostCall>& calls,
    const std::vector<int64_t>& devices, int num_printed, ir::Program* program);

// Returns the call with this name, or null if there is none.
const ir::stablehlo::HostCall* FindCall(const std::vector<ir::stablehlo::HostCall>& calls,
                                        const std::string& name);

}  // namespace tessera::pjrt
