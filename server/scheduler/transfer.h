// Moves an array to another placement, slice by slice from executor to executor.
#pragma once
#include <string>
#include <vector>

namespace tessera::server::scheduler {

class Machine;
struct Operation;

struct Transfer {
  static constexpr bool kUsesDevices = true;
  static constexpr bool kReadsPeers = true;
  std::vector<std::string> Executors(Machine& m, const Operation& op) const;
  void Send(Machine& m, Operation& op, const std::vector<std::string>& executors,
            const std::string& only);
};

}  // namespace tessera::server::scheduler
