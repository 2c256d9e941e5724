// Runs of executables: of clients' programs, and of the identity that moves an array on its mesh.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ir/array.h"

namespace tessera::server::scheduler {

class Machine;
struct Operation;

struct Run {
  uint64_t executable = 0;
  std::vector<bool> donate = {};  // per argument; empty: none
  // Results that are together no larger come along with the end; 0: none are wanted.
  int64_t inline_bytes_max = 0;
  // Those that have come, until it ends, by array and device id.
  std::map<std::pair<uint64_t, int64_t>, ir::Array> inlined = {};

  static constexpr bool kUsesDevices = true;
  static constexpr bool kReadsPeers = false;
  std::vector<std::string> Executors(Machine& m, const Operation& op) const;
  void Send(Machine& m, Operation& op, const std::vector<std::string>& executors);
};

}  // namespace tessera::server::scheduler
