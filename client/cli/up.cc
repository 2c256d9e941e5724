// The commands up and init. `up` makes the certificates and tokens of a cluster and runs its
// daemons on this machine until Ctrl-C; `init` only makes the files.
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/address.h"
#include "base/file.h"
#include "base/status.h"
#include "client/cli/context.h"
#include "client/cli/state_dir.h"
#include "client/cli/supervise.h"

namespace tessera::cli {
namespace {

constexpr absl::Duration kPollInterval = absl::Milliseconds(50);
constexpr char kDefaultListen[] = "127.0.0.1:8470";
// The ports of the first worker. Each further worker takes the next two.
constexpr int kDataPort = 8471, kPeerPort = 8472, kPortStride = 2;
constexpr int64_t kWorkersMax = 64;

absl::StatusOr<HostPort> ParseListenAddress(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon + 1 == text.size())
    return UsageError("--listen is '", text, "'; expected HOST:PORT");
  const std::string host = text.substr(0, colon);
  return HostPort{std::string(WithoutBrackets(host)), text.substr(colon + 1)};
}
// Returns whether a listener at the host listens on all network interfaces.
bool IsWildcard(const std::string& host) {
  return host.empty() || host == "0.0.0.0" || host == "::";
}

// Returns the addresses of this machine's network interfaces, except loopback.
std::vector<std::string> OwnAddresses() {
  std::vector<std::string> out;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return out;
  for (const ifaddrs* i = all; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || (i->ifa_flags & IFF_UP) == 0) continue;
    const int family = i->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    char host[NI_MAXHOST] = {};
    const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (getnameinfo(i->ifa_addr, size, host, sizeof(host), nullptr, 0, NI_NUMERICHOST) != 0)
      continue;
    // Link-local addresses, "fe80::1%eth0", are useless in a certificate.
    const std::string text = host;
    if (text.find('%') == std::string::npos && !IsLoopback(text)) out.push_back(text);
  }
  freeifaddrs(all);
  return out;
}

void AddIfNew(std::vector<std::string>* names, const std::string& name) {
  if (!name.empty() && std::find(names->begin(), names->end(), name) == names->end())
    names->push_back(name);
}

// Returns the names for the coordinator's certificate: all names and addresses by which a client
// may reach the listener.
std::vector<std::string> NamesFor(const std::string& host,
                                  const std::vector<std::string>& advertised) {
  std::vector<std::string> names = advertised;
  if (!IsWildcard(host)) AddIfNew(&names, host);
  for (const char* local : {"localhost", "127.0.0.1", "::1"}) AddIfNew(&names, local);
  if (IsLoopback(host)) return names;
  AddIfNew(&names, HostName());
  for (const std::string& address : OwnAddresses()) AddIfNew(&names, address);
  return names;
}

// Returns the host by which other machines reach the coordinator.
std::string PublicHost(const std::string& host, const std::vector<std::string>& advertised) {
  if (!advertised.empty()) return advertised[0];
  if (!IsWildcard(host)) return host;
  const std::vector<std::string> own = OwnAddresses();
  return own.empty() ? HostName() : own[0];
}

// The options of `up`.
struct UpOptions {
  std::string dir, listen;
  HostPort listen_at;  // `listen`, parsed
  std::vector<std::string> advertised;
  std::vector<std::string> workers;  // names of the workers; may be empty
  int64_t devices = 0;               // devices of each worker; 0 lets the daemon decide
  std::string files_dir;
  absl::Duration start_timeout, join_token_lifetime;
};

// Returns the names of the workers that `up` starts. A single worker has the name that is given, or
// this machine's name. Several workers have that name with a number. The names must not depend on
// anything else, because the cluster knows its workers by these names when it starts again.
absl::StatusOr<std::vector<std::string>> WorkerNames(const Arguments& arguments) {
  const int64_t count = arguments.Int("workers");
  if (arguments.Flag("no-worker")) {
    if (arguments.Has("workers"))
      return UsageError("--workers and --no-worker exclude each other; give one of them");
    return std::vector<std::string>();
  }
  if (count < 1 || count > kWorkersMax) {
    return UsageError("--workers is ", count, "; expected 1 to ", kWorkersMax,
                      ", or --no-worker for none");
  }
  const std::string name = arguments.Has("name") ? arguments.Text("name") : HostName();
  if (count == 1) return std::vector<std::string>{name};
  std::vector<std::string> names;
  for (int64_t i = 0; i < count; ++i) names.push_back(absl::StrCat(name, "-", i));
  return names;
}

absl::StatusOr<UpOptions> ParseUpOptions(const Arguments& arguments) {
  UpOptions up;
  up.dir = arguments.Has("dir") ? arguments.Text("dir") : DefaultStateDir();
  up.listen = arguments.Text("listen");
  TESSERA_ASSIGN_OR_RETURN(up.listen_at, ParseListenAddress(up.listen));
  up.advertised = arguments.Texts("advertise");
  TESSERA_ASSIGN_OR_RETURN(up.workers, WorkerNames(arguments));
  up.devices = arguments.Int("devices");
  // A worker without --devices takes every GPU of the machine, and only one worker can do that.
  if (up.workers.size() > 1 && up.devices == 0) up.devices = 1;
  up.files_dir = arguments.Has("files-dir") ? arguments.Text("files-dir") : up.dir + "/files";
  up.start_timeout = arguments.Duration("start-timeout");
  up.join_token_lifetime = arguments.Duration("join-for");
  return up;
}

// Returns an error if another program listens at the coordinator's address. Called before the
// coordinator starts, because the coordinator would report the error only in its log.
absl::Status CheckListenAddressIsFree(const UpOptions& up) {
  const std::string host = IsWildcard(up.listen_at.host) ? "" : up.listen_at.host;
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  // If the address is invalid, the coordinator reports the error.
  if (getaddrinfo(host.empty() ? nullptr : host.c_str(), up.listen_at.port.c_str(), &hints,
                  &found) != 0)
    return absl::OkStatus();
  const UniqueFd fd(socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int one = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  const bool taken = bind(fd.get(), found->ai_addr, found->ai_addrlen) != 0 && errno == EADDRINUSE;
  freeaddrinfo(found);
  if (!taken) return absl::OkStatus();
  return MakeError(ErrorKind::kAlreadyExists,
                   absl::StrCat("another program listens at ", up.listen,
                                "; stop it, or give another port with --listen HOST:PORT"));
}

// Waits for the file with the address, which the coordinator writes once it serves, and returns the
// address.
absl::StatusOr<std::string> AwaitAddress(const Context& context, ManagedProcess& coordinator,
                                         const std::string& file, absl::Time deadline) {
  while (absl::Now() < deadline) {
    if (const auto address = ReadWholeFile(file); address.ok())
      return std::string(absl::StripAsciiWhitespace(*address));
    if (coordinator.ExitDescription()) return coordinator.ExitError();
    if (!context.SleepUnlessInterrupted(kPollInterval))
      return Context::InterruptedError("up: interrupted");
  }
  return MakeError(
      ErrorKind::kDeadlineExceeded,
      "up: the coordinator does not serve in time; give it more time with --start-timeout");
}

// Waits until a device of the worker is healthy.
absl::Status AwaitWorker(const Context& context, const std::string& address,
                         const ConnectOptions& options, const std::string& worker,
                         ManagedProcess& process, absl::Time deadline) {
  Connection connection(address, options);
  while (absl::Now() < deadline) {
    TESSERA_ASSIGN_OR_RETURN(
        const Json response,
        connection.Call("ClusterService/ListDevices", Json::object(), deadline - absl::Now()));
    for (const Json& device : ChildOf(response, "devices"))
      if (TextOf(device, "worker") == worker && FlagOf(device, "healthy")) return absl::OkStatus();
    if (process.ExitDescription()) return process.ExitError();
    if (!context.SleepUnlessInterrupted(kPollInterval))
      return Context::InterruptedError("up: interrupted");
  }
  return MakeError(
      ErrorKind::kDeadlineExceeded,
      absl::StrCat(
          "up: the worker '", worker,
          "' does not register in time; see its log, or give it more time with --start-timeout"));
}

// Waits until each worker has a healthy device. processes[i] runs up.workers[i].
absl::Status AwaitWorkers(const Context& context, const std::string& address, const StateDir& dir,
                          const UpOptions& up,
                          const std::vector<std::unique_ptr<ManagedProcess>>& processes,
                          absl::Time deadline) {
  ConnectOptions options;
  options.ca_file = dir.FilePath("client", "ca.pem");
  TESSERA_ASSIGN_OR_RETURN(const std::string token, ReadWholeFile(dir.FilePath("client", "token")));
  options.token = std::string(absl::StripAsciiWhitespace(token));
  for (size_t i = 0; i < up.workers.size(); ++i) {
    TESSERA_RETURN_IF_ERROR(
        AwaitWorker(context, address, options, up.workers[i], *processes[i], deadline));
  }
  return absl::OkStatus();
}

std::vector<std::string> CoordinatorFlags(const std::string& listen, const StateDir& dir,
                                          const std::string& port_file) {
  std::vector<std::string> flags = dir.TlsFlags("coordinator");
  flags.push_back("--listen=" + listen);
  flags.push_back("--port-file=" + port_file);
  flags.push_back("--ca-key-file=" + dir.FilePath("ca", "ca.key"));
  flags.push_back("--tokens-file=" + dir.FilePath("coordinator", "tokens"));
  flags.push_back("--state-dir=" + dir.FilePath("coordinator", "state"));
  return flags;
}

// Returns the flags of the worker up.workers[index].
std::vector<std::string> WorkerFlags(const UpOptions& up, const StateDir& dir,
                                     const std::string& coordinator, size_t index) {
  const std::string& worker = up.workers[index];
  std::vector<std::string> flags = dir.TlsFlags(worker);
  flags.push_back("--coordinator=" + coordinator);
  flags.push_back("--name=" + worker);
  flags.push_back("--files-dir=" + up.files_dir);
  if (up.devices > 0) flags.push_back(absl::StrCat("--devices=", up.devices));
  if (!IsLoopback(up.listen_at.host)) {
    const std::string host =
        WithBrackets(IsWildcard(up.listen_at.host) ? "0.0.0.0" : up.listen_at.host);
    const std::string advertised = WithBrackets(PublicHost(up.listen_at.host, up.advertised));
    const int offset = kPortStride * static_cast<int>(index);
    flags.push_back(absl::StrCat("--data-listen=", host, ":", kDataPort + offset));
    flags.push_back(absl::StrCat("--peer-listen=", host, ":", kPeerPort + offset));
    flags.push_back(absl::StrCat("--advertise-client=", advertised));
    flags.push_back(absl::StrCat("--advertise-peer=", advertised));
  }
  return flags;
}

void ShowHowToConnect(Context& context, const StateDir& dir, const std::string& address,
                      const std::string& join_token, const UpOptions& up) {
  const std::string ca = dir.FilePath("client", "ca.pem"), token = dir.FilePath("client", "token");
  const std::string join_command = absl::StrCat("tessera join ", address, " --token ", join_token);
  context.PrintResult(
      {{"address", address},
       {"caFile", ca},
       {"tokenFile", token},
       {"joinCommand", join_command},
       {"folder", dir.path()}},
      [&] {
        context.terminal().Print(absl::StrCat("export TESSERA_ADDRESS=", address,
                                              "\nexport TESSERA_CA_FILE='", ca,
                                              "'\nexport TESSERA_TOKEN=$(cat '", token, "')\n"));
        context.Note(absl::StrCat(
            "\nThe lines above connect clients on this machine. To join from another machine, "
            "within ",
            absl::FormatDuration(up.join_token_lifetime), " from now:\n\n  ", join_command, "\n"));
        if (IsLoopback(up.listen_at.host))
          context.Note(
              "The coordinator listens on this machine only; to serve others, give --listen "
              "0.0.0.0:8470\n");
        context.Note("Serving; Ctrl-C ends it.");
      });
}

// Makes the files, then starts the coordinator, then the workers, which need the coordinator's
// address. A step that fails ends the processes that run already, by their destructors. The lines
// that clients need are printed only when every worker has a healthy device, so a script may wait
// for them.
absl::Status Up(Context& context, const Arguments& arguments) {
  TESSERA_ASSIGN_OR_RETURN(const UpOptions up, ParseUpOptions(arguments));
  const StateDir dir(up.dir);
  TESSERA_ASSIGN_OR_RETURN(const UniqueFd lock, LockDirectory(up.dir));
  const absl::Time now = absl::Now(), deadline = now + up.start_timeout;
  TESSERA_RETURN_IF_ERROR(dir.Prepare(NamesFor(up.listen_at.host, up.advertised), now));
  for (const std::string& worker : up.workers)
    TESSERA_RETURN_IF_ERROR(dir.PrepareWorker(worker, now));
  if (!up.workers.empty()) TESSERA_RETURN_IF_ERROR(MakeDirectory(up.files_dir));
  TESSERA_ASSIGN_OR_RETURN(const std::string join_token,
                           dir.MakeJoinToken(now, up.join_token_lifetime));

  TESSERA_RETURN_IF_ERROR(CheckListenAddressIsFree(up));
  const std::string port_file = up.dir + "/address";
  unlink(port_file.c_str());
  TESSERA_ASSIGN_OR_RETURN(
      const std::unique_ptr<ManagedProcess> coordinator,
      ManagedProcess::Start("tessera-coordinator", CoordinatorFlags(up.listen, dir, port_file),
                            up.dir + "/coordinator.log"));
  TESSERA_ASSIGN_OR_RETURN(const std::string bound_address,
                           AwaitAddress(context, *coordinator, port_file, deadline));
  const std::string port = bound_address.substr(bound_address.rfind(':'));
  // This process and the workers connect by loopback if possible, so that they need no name
  // service.
  const std::string near_address =
      WithBrackets(IsWildcard(up.listen_at.host) ? "127.0.0.1" : up.listen_at.host) + port;
  const std::string address = WithBrackets(PublicHost(up.listen_at.host, up.advertised)) + port;

  // Declared after the coordinator, so that the workers end before the coordinator does.
  std::vector<std::unique_ptr<ManagedProcess>> workers;
  // A restart uses the port of the first start, because clients and workers know that port.
  std::vector<SupervisedProcess> processes = {
      {coordinator.get(),
       CoordinatorFlags(up.listen.substr(0, up.listen.rfind(':')) + port, dir, port_file)}};
  for (size_t i = 0; i < up.workers.size(); ++i) {
    const std::vector<std::string> flags = WorkerFlags(up, dir, near_address, i);
    const std::string suffix = up.workers.size() == 1 ? "" : absl::StrCat("-", i);
    TESSERA_ASSIGN_OR_RETURN(
        std::unique_ptr<ManagedProcess> worker,
        ManagedProcess::Start("tessera-worker", flags,
                              absl::StrCat(up.dir, "/worker", suffix, ".log")));
    processes.push_back({worker.get(), flags});
    workers.push_back(std::move(worker));
  }
  TESSERA_RETURN_IF_ERROR(AwaitWorkers(context, near_address, dir, up, workers, deadline));
  ShowHowToConnect(context, dir, address, join_token, up);
  return Supervise(context, processes);
}

absl::Status Init(Context& context, const Arguments& arguments) {
  const StateDir dir(arguments.Has("dir") ? arguments.Text("dir") : DefaultStateDir());
  std::vector<std::string> names;
  for (const std::string& given : arguments.Texts("coordinator"))
    for (const absl::string_view name : absl::StrSplit(given, ',', absl::SkipEmpty()))
      AddIfNew(&names, std::string(name));
  for (const char* local : {"localhost", "127.0.0.1", "::1"}) AddIfNew(&names, local);
  const absl::Time now = absl::Now();
  TESSERA_ASSIGN_OR_RETURN(const UniqueFd lock, LockDirectory(dir.path()));
  TESSERA_RETURN_IF_ERROR(dir.Prepare(names, now));
  for (const std::string& worker : arguments.Texts("worker")) {
    // In "NAME=HOST,..." the hosts are ignored, because a worker's certificate names no host.
    TESSERA_RETURN_IF_ERROR(dir.PrepareWorker(worker.substr(0, worker.find('=')), now));
  }
  context.PrintResult({{"folder", dir.path()}}, [&] {
    context.Note(absl::StrCat("certificates and tokens are in ", dir.path()));
  });
  return absl::OkStatus();
}

}  // namespace

// The rows of these commands. Both have the option --dir with the same default, so that `up` finds
// the files that `init` has made.
std::vector<Command> UpCommands() {
  const Option dir = {
      .name = "dir",
      .value_name = "DIR",
      .help = "Folder for the CA, certificates and tokens (default: ~/.local/state/tessera)."};
  return {
      {.name = "up",
       .summary = "Starts a coordinator and workers on this machine, with TLS and tokens.",
       .options =
           {dir,
            {.name = "listen",
             .value_name = "HOST:PORT",
             .help = "Address on which the coordinator listens; 0.0.0.0:8470 also serves other "
                     "machines.",
             .default_value = kDefaultListen},
            {.name = "advertise",
             .type = OptionType::kTexts,
             .value_name = "NAME",
             .help = "Name or address by which other machines reach this one, for its certificate; "
                     "the first one is printed."},
            {.name = "workers",
             .type = OptionType::kInt,
             .value_name = "N",
             .help = "Number of workers on this machine. Several workers serve to try out on one "
                     "machine what a program does on many; they have CPU devices only.",
             .default_value = "1"},
            {.name = "devices",
             .type = OptionType::kInt,
             .value_name = "N",
             .help = "Number of CPU devices of each worker. Without it, a single worker has the "
                     "machine's GPUs, or one CPU device, and each of several workers has one CPU "
                     "device."},
            {.name = "name",
             .value_name = "NAME",
             .help = "Name of the worker (default: the name of this machine). Several workers are "
                     "called NAME-0, NAME-1 and so on."},
            {.name = "files-dir",
             .value_name = "FOLDER",
             .help = "Folder in which the workers save and load arrays (default: files below "
                     "--dir). An array on several workers needs a folder that all of them share."},
            Flag("no-worker", "Start no worker on this machine."),
            {.name = "join-for",
             .type = OptionType::kDuration,
             .value_name = "TIME",
             .help = "How long the printed join token is valid.",
             .default_value = "24h"},
            {.name = "start-timeout",
             .type = OptionType::kDuration,
             .value_name = "TIME",
             .help = "How long the daemons may take to start serving.",
             .default_value = "60s"}},
       .timeout = absl::InfiniteDuration(),
       .details =
           "Prints how clients connect and how another machine joins, then serves until Ctrl-C. A "
           "daemon that ends is started again, within half a minute at most. If another start "
           "cannot help, the command ends and says why. With the same folder, the next `tessera "
           "up` starts the same cluster: its CA and tokens are kept. See docs/security.md.",
       .run = Up},
      {.name = "init",
       .summary = "Makes the certificates and tokens of a cluster, and starts nothing.",
       .options = {dir,
                   {.name = "coordinator",
                    .type = OptionType::kTexts,
                    .value_name = "HOST,HOST",
                    .help = "Names and addresses of the coordinator, for its certificate."},
                   {.name = "worker",
                    .type = OptionType::kTexts,
                    .value_name = "NAME",
                    .help = "Name of a worker, which gets a folder with its certificate."}},
       .details =
           "Writes DIR/ca, DIR/coordinator, DIR/client and a folder for each worker. Files that "
           "exist and are still valid are kept. Do not run it while a coordinator uses the folder.",
       .run = Init},
  };
}

}  // namespace tessera::cli
