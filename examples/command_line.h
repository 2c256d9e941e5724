// The command lines of the examples, and the cluster that they name.
#pragma once
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "client/tessera.h"

namespace tessera::examples {

// What is wrong with the command line; empty: help was asked for.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// An option `--name VALUE` or `--name=VALUE`; of a bool just `--name`. Numbers are 1 or more.
struct Option {
  std::string name;
  std::variant<std::string*, int64_t*, double*, bool*> value;
};
// Sets what the options point to. Throws UsageError.
void ParseOptions(int argc, char** argv, const std::vector<Option>& options);

// The mesh that text like "data=2,model=2" means, with the axes `data` and `model`. Throws
// UsageError.
std::pair<int64_t, int64_t> ParseMesh(const std::string& text);

// The options that every example has: where it runs.
struct SessionFlags {
  std::string address;
  bool embedded = false;

  std::vector<Option> Options();
};
inline const std::string kSessionUsage =
    "  --address HOST:PORT     a coordinator; else TESSERA_ADDRESS, else inside this process\n"
    "  --embedded              inside this process, whatever TESSERA_ADDRESS says\n";
// Opens a session with so many devices, and makes it the default one. In an embedded cluster the
// folder of the file `checkpoint` becomes the root of files, and the path relative to it.
std::shared_ptr<Session> OpenSession(const SessionFlags& flags, int64_t devices,
                                     std::string* checkpoint = nullptr);

// And the mesh, for those that leave it to the user.
struct ClusterFlags {
  SessionFlags session;
  std::string mesh = "data=2,model=2";

  std::vector<Option> Options();
};
inline const std::string kClusterUsage =
    "  --mesh data=D,model=M   the mesh (data=2,model=2)\n" + kSessionUsage;

// The session of these flags, as OpenSession opens it, and the mesh.
struct Cluster {
  std::shared_ptr<Session> session;
  Mesh mesh;
};
Cluster OpenCluster(const ClusterFlags& flags, std::string* checkpoint = nullptr);

// Runs `run` on the command line: returns its exit code, or prints what went wrong.
int Main(const char* name, const std::string& usage, int (*run)(int argc, char** argv), int argc,
         char** argv);

}  // namespace tessera::examples
