// How the coordinator reads, verifies and plans the programs of clients: in this process, or in
// jailed ones (base/jail.h), so that a program that no one foresaw fails its own request and
// nothing else.
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

// Thread-safe. Errors are also those of Pool::Call.
class JailedReader final : public core::ProgramReader {
 public:
  JailedReader(PoolOptions options, const ir::Limits& limits)
      : pool_(std::move(options)), limits_(limits) {}

  // Whether processes start and can be jailed here. INTERNAL says why not.
  absl::Status Check();
  // See Pool::Stop.
  void Stop() { pool_.Stop(); }
  absl::StatusOr<ir::Program> Read(const std::string& tenant, const api::ProgramSource& source,
                                   absl::Time deadline) override;
  absl::StatusOr<std::string> Inspect(const std::string& tenant, const api::ProgramSource& source,
                                      absl::Time deadline) override;
  // A core::PlanFn. The plan of the jailed process is verified against the request. The stages are
  // not: on_stage gets them when the process has answered, and gets none if the process crashed.
  absl::StatusOr<core::Plan> Plan(const core::PlanRequest& request);

 private:
  Pool pool_;
  const ir::Limits limits_;
};

// A binary that gets this as its only argument calls RunJailedProcess.
inline constexpr char kJailFlag[] = "--jailed";
// The main function of a jailed process. `plan` plans. Returns the exit status.
int RunJailedProcess(const core::PlanFn& plan);
// What it answers a request with: bytes of tessera.jail.v1.Reply. Any bytes may be given.
std::string AnswerRequest(std::string_view request, const core::PlanFn& plan);

}  // namespace tessera::server::jail
