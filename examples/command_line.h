// The command lines of the examples, and the clusters that their options name.
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

// Says what is wrong with the command line. The text is empty if the user asked for help.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// An option `--name VALUE` or `--name=VALUE`. An option for a bool is just `--name`. Numbers must
// be 1 or more.
struct Option {
  std::string name;
  std::variant<std::string*, int64_t*, double*, bool*> value;
};
// Sets the variables that the options point to. Throws UsageError.
void ParseOptions(int argc, char** argv, const std::vector<Option>& options);

// Returns the sizes of the axes `data` and `model` in a text such as "data=2,model=2". Throws
// UsageError.
std::pair<int64_t, int64_t> ParseMesh(const std::string& text);

// The options that every example has. They say where the example runs.
struct SessionFlags {
  std::string address;
  bool embedded = false;

  std::vector<Option> Options();
};
inline const std::string kSessionUsage =
    "  --address HOST:PORT     a coordinator; else TESSERA_ADDRESS, else inside this process\n"
    "  --embedded              inside this process, whatever TESSERA_ADDRESS says\n";
// Opens a session with `devices` devices and makes it the default session. In an embedded cluster
// the folder of the file `checkpoint` becomes the folder of files, and `checkpoint` becomes the
// path within that folder.
std::shared_ptr<Session> OpenSession(const SessionFlags& flags, int64_t devices,
                                     std::string* checkpoint = nullptr);

// The options of examples that leave the mesh to the user: those of every example, and the mesh.
struct ClusterFlags {
  SessionFlags session;
  std::string mesh = "data=2,model=2";

  std::vector<Option> Options();
};
inline const std::string kClusterUsage =
    "  --mesh data=D,model=M   the mesh (data=2,model=2)\n" + kSessionUsage;

// The session that OpenSession opens for the flags, and the mesh.
struct Cluster {
  std::shared_ptr<Session> session;
  Mesh mesh;
};
Cluster OpenCluster(const ClusterFlags& flags, std::string* checkpoint = nullptr);

// Runs `run` on the command line and returns its exit code. If `run` throws, prints the error, and
// the usage if the command line is wrong, and returns 1 or 2.
int Main(const char* name, const std::string& usage, int (*run)(int argc, char** argv), int argc,
         char** argv);

}  // namespace tessera::examples
