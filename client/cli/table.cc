// Puts the rows of all files together into the command table, in the order of --help. A group is a
// heading of the help; its commands must follow each other.
#include <utility>

#include "client/cli/commands.h"

namespace tessera::cli {

const std::vector<Command>& Commands() {
  static const auto* const all = [] {
    const std::pair<const char*, std::vector<Command>> groups[] = {
        {"Programs", ProgramCommands()},     {"Programs", InspectCommands()},
        {"Operations", OperationCommands()}, {"Arrays", ArrayCommands()},
        {"Cluster", ClusterCommands()},      {"Cluster", TopCommands()},
        {"Cluster", DoctorCommands()},       {"Cluster", BundleCommands()},
        {"Clusters", UpCommands()},          {"Clusters", JoinCommands()},
        {"Clusters", StateCommands()},       {"Security", SecurityCommands()},
        {"Shell", ShellCommands()}};
    auto* const rows = new std::vector<Command>();
    for (const auto& [group, commands] : groups) {
      for (Command command : commands) {
        command.group = group;
        rows->push_back(std::move(command));
      }
    }
    return rows;
  }();
  return *all;
}

}  // namespace tessera::cli
