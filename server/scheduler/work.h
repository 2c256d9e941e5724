// The work of an operation, as plain data: a struct for each kind of work.
//
// Each kind says, in constants that Operation reads,
// - kUsesDevices: whether the operation occupies the devices of its executors in sequence order.
//   Later operations on these devices wait for it.
// - kReadsPeers: whether executors read the arguments from each other. The buffers then stay until
//   the operation has ended, because the order of commands on one executor does not delay a
//   deletion until another executor has read the buffer.
//
// The functions ExecutorsFor and SendWork of Machine (machine.h) say on which executors the work
// runs, and send its commands. To add a kind of work, add its struct, an entry in Work, and a file
// with its two functions.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "ir/api/files.h"
#include "ir/array.h"

namespace tessera::server::scheduler {

// Runs an executable: a client's program, or the identity program that reshards an array on its
// mesh (run.cc).
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
};

// Moves an array to another placement, slice by slice from executor to executor (transfer.cc).
struct Transfer {
  static constexpr bool kUsesDevices = true;
  static constexpr bool kReadsPeers = true;
};

// Saves arrays to a file (save.cc).
struct Save {
  std::string path;  // path under --files-dir: the tenant's directory, then the client's path
  bool overwrite = false;
  std::vector<api::FileArrayInfo> arrays = {};  // what the file will say of the arguments
  // The ordinals of the devices that write the distinct shards, array by array. Set when the save
  // is sent, because other devices may hold the shards later.
  std::vector<int> ordinals = {};

  static constexpr bool kUsesDevices = false;
  static constexpr bool kReadsPeers = true;
};

// Loads arrays from a file (load.cc).
struct Load {
  std::string path;  // path under --files-dir: the tenant's directory, then the client's path
  std::vector<api::FileArrayInfo> arrays = {};  // what the file says of the results

  static constexpr bool kUsesDevices = false;
  static constexpr bool kReadsPeers = true;
};

using Work = std::variant<Run, Transfer, Save, Load>;

}  // namespace tessera::server::scheduler
