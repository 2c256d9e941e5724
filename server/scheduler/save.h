// Saves arrays to a file.
#pragma once
#include <string>
#include <vector>

#include "ir/api/files.h"

namespace tessera::server::scheduler {

class Machine;
struct Operation;

struct Save {
  std::string path;  // path under --files-dir: the tenant's directory, then the client's path
  bool overwrite = false;
  std::vector<api::FileArrayInfo> arrays = {};  // what the file will say of the arguments

  static constexpr bool kUsesDevices = false;
  static constexpr bool kReadsPeers = true;
  std::vector<std::string> Executors(Machine& m, const Operation& op) const;
  void Send(Machine& m, Operation& op, const std::vector<std::string>& executors,
            const std::string& only);
};

}  // namespace tessera::server::scheduler
