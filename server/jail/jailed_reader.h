// Reads, verifies and plans the programs of clients in jailed processes (base/jail.h). A program
// that crashes or exhausts its process thereby fails its own request and nothing else.
// Reference: docs/decisions/0019.
#pragma once
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ir/program.h"
#include "ir/verify.h"
#include "server/core/plan.h"
#include "server/core/reader.h"
#include "server/jail/pool.h"

namespace tessera::server::jail {

// The coordinator's side: reads, inspects and plans programs by requests to jailed processes.
// Thread-safe. Every call may also return the errors of Pool::Call.
class JailedReader final : public core::ProgramReader {
 public:
  JailedReader(PoolOptions options, const ir::Limits& limits)
      : pool_(std::move(options)), limits_(limits) {}

  // Checks that jailed processes can be started on this system. The error is INTERNAL and says why
  // they cannot.
  absl::Status Check();
  // See Pool::Stop.
  void Stop() { pool_.Stop(); }
  absl::StatusOr<ir::Program> Read(const std::string& tenant, const api::ProgramSource& source,
                                   absl::Time deadline) override;
  absl::StatusOr<std::string> Inspect(const std::string& tenant, const api::ProgramSource& source,
                                      absl::Time deadline) override;
  // Plans in a jailed process. A lambda that calls it is a core::PlanFn. The plan is verified
  // against the request, but the texts of the stages are passed on unchecked. on_stage is called
  // for all stages once the process has answered, and not at all if the process crashed.
  absl::StatusOr<core::Plan> Plan(const core::PlanRequest& request);

 private:
  Pool pool_;
  const ir::Limits limits_;
};

// A main function that finds this flag as its only argument calls RunJailedProcess.
inline constexpr char kJailFlag[] = "--jailed";
// The main function of a jailed process. It plans with `plan` and returns the exit status.
int RunJailedProcess(const core::PlanFn& plan);
// Returns the jailed process's answer to a request: the bytes of a tessera.jail.v1.Reply. `request`
// may be any bytes.
std::string AnswerRequest(std::string_view request, const core::PlanFn& plan);

}  // namespace tessera::server::jail
