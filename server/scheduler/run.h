// Runs an executable: a client's program, or the identity program that reshards an array on its
// mesh.
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
  std::vector<bool> donate = {};  // per argument; if empty, none is donated
  // The donated arrays of which temporary copies are the arguments. They are kept until the run
  // starts, because the run may fail before that.
  std::vector<uint64_t> originals = {};
  // The total size up to which results are returned inline with the completion; 0 returns none.
  int64_t inline_bytes_max = 0;
  // The inline results received so far, by array and device id.
  std::map<std::pair<uint64_t, int64_t>, ir::Array> inlined = {};

  static constexpr bool kUsesDevices = true;
  static constexpr bool kReadsPeers = false;
  std::vector<std::string> Executors(Machine& m, const Operation& op) const;
  void Send(Machine& m, Operation& op, const std::vector<std::string>& executors,
            const std::string& only);
};

}  // namespace tessera::server::scheduler
