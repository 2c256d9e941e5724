// Keeps track of the commands that an executor has not ended. CoordinatorStream passes every
// command and every report through it, and sends its description as part of the inventory when it
// attaches again.
#include "worker/rpc/command_ledger.h"

#include <type_traits>
#include <variant>

namespace tessera::worker::rpc {

void CommandLedger::RecordCommand(api::Command& command) {
  std::visit(
      [this](auto& c) {
        using C = std::decay_t<decltype(c)>;
        if constexpr (std::is_same_v<C, api::Launch> || std::is_same_v<C, api::Transfer> ||
                      std::is_same_v<C, api::SaveShards> || std::is_same_v<C, api::LoadShards>) {
          RunningOperation& running = running_[c.launch];
          if constexpr (requires { c.sequence; }) running.sequence = c.sequence;
          if constexpr (requires { c.generation; }) running.generation = c.generation;
        } else if constexpr (std::is_same_v<C, api::LoadProgram>) {
          executables_[c.executable] = false;
        } else if constexpr (std::is_same_v<C, api::UnloadPrograms>) {
          for (const uint64_t id : c.executables) executables_.erase(id);
        } else if constexpr (std::is_same_v<C, api::ConfigureCommunicator>) {
          generations_.insert(c.generation);
        } else if constexpr (std::is_same_v<C, api::CloseCommunicator>) {
          generations_.erase(c.generation);
        } else if constexpr (std::is_same_v<C, api::ReadBuffer> ||
                             std::is_same_v<C, api::InspectFile>) {
          ReplaceNumber(&c.request);
        }
      },
      command);
}

bool CommandLedger::RecordReport(api::ReportBody& report) {
  return std::visit(
      [this](auto& r) {
        using R = std::decay_t<decltype(r)>;
        if constexpr (std::is_same_v<R, api::BufferRead> || std::is_same_v<R, api::FileInspected>) {
          return RestoreNumber(&r.request);
        } else if constexpr (std::is_same_v<R, api::LaunchDone> ||
                             std::is_same_v<R, api::LaunchFailed>) {
          running_.erase(r.launch);
        } else if constexpr (std::is_same_v<R, api::ProgramLoaded>) {
          const auto it = executables_.find(r.executable);
          if (it != executables_.end()) {
            it->second = r.status.ok();
            if (!r.status.ok()) executables_.erase(it);
          }
        }
        return true;
      },
      report);
}

void CommandLedger::ReplaceNumber(uint64_t* request) {
  requests_[++last_request_] = *request;
  *request = last_request_;
}

bool CommandLedger::RestoreNumber(uint64_t* request) {
  const auto it = requests_.find(*request);
  if (it == requests_.end()) return false;
  *request = it->second;
  requests_.erase(it);
  return true;
}

void CommandLedger::Describe(api::ExecutorInventory* inventory) const {
  for (const auto& [operation, running] : running_) {
    inventory->running.push_back(operation);
    inventory->sequences.push_back(running.sequence);
    inventory->running_generations.push_back(running.generation);
  }
  for (const auto& [id, loaded] : executables_)
    (loaded ? inventory->executables : inventory->compiling).push_back(id);
  inventory->generations.assign(generations_.begin(), generations_.end());
}

}  // namespace tessera::worker::rpc
