// The command table, in the order of --help.
#include "client/cli/commands.h"

namespace tessera::cli {

const std::vector<Command>& Commands() {
  static const auto* const all = [] {
    auto* const rows = new std::vector<Command>();
    for (const auto& part :
         {ProgramCommands(), OperationCommands(), ArrayCommands(), ClusterCommands(), TopCommands(),
          DoctorCommands(), UpCommands(), JoinCommands(), SecurityCommands(), ShellCommands()}) {
      rows->insert(rows->end(), part.begin(), part.end());
    }
    return rows;
  }();
  return *all;
}

}  // namespace tessera::cli
