// Arrays that are made of what a file holds.
#pragma once
#include <string>
#include <vector>

#include "ir/api/files.h"

namespace tessera::server::scheduler {

class Machine;
struct Operation;

struct Load {
  std::string path;  // below the workers' folder: the tenant's, then as the client said
  std::vector<api::FileArrayInfo> arrays = {};  // of the results

  static constexpr bool kUsesDevices = false;
  static constexpr bool kReadsPeers = true;
  std::vector<std::string> Executors(Machine& m, const Operation& op) const;
  void Send(Machine& m, Operation& op, const std::vector<std::string>& executors);
};

}  // namespace tessera::server::scheduler
