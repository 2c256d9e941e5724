// The command join: makes this machine a worker of a cluster. It gets a certificate by the join
// token that `tessera up` prints, and then runs the worker's daemon until Ctrl-C.
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/address.h"
#include "base/file.h"
#include "base/pki.h"
#include "base/secret.h"
#include "base/status.h"
#include "base/token_file.h"
#include "client/cli/context.h"
#include "client/cli/state_dir.h"
#include "client/cli/supervise.h"
#include "client/remote/enroll.h"

namespace tessera::cli {
namespace {

constexpr char kDefaultPort[] = "8470";
constexpr absl::Duration kCallTimeout = absl::Seconds(20);

// Returns the address HOST, HOST:PORT, [V6] or [V6]:PORT, with the default port if it has none.
absl::StatusOr<std::string> WithPort(const std::string& text) {
  if (text.empty()) return UsageError("expected HOST[:PORT]");
  const bool bracketed = text.front() == '[';
  const size_t end = bracketed ? text.find(']') : std::string::npos;
  if (bracketed && end == std::string::npos) return UsageError("HOST: '[' has no matching ']'");
  const size_t colon = text.find(':', bracketed ? end : 0);
  if (colon == std::string::npos) return absl::StrCat(text, ":", kDefaultPort);
  if (!bracketed && text.find(':', colon + 1) != std::string::npos)
    return UsageError("HOST: write the address as [", text, "]");
  return text;
}

// Returns the address of the local interface that routes to `address`, or "" if that is not known.
// Connects a UDP socket, which sends nothing.
std::string OwnAddressTowards(const std::string& address) {
  const absl::StatusOr<HostPort> target = ParseHostPort(address);
  if (!target.ok()) return "";
  addrinfo hints = {};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(target->host.c_str(), target->port.c_str(), &hints, &found) != 0) return "";
  const UniqueFd fd(socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage own = {};
  socklen_t size = sizeof(own);
  char text[NI_MAXHOST] = {};
  const bool known = fd.ok() && connect(fd.get(), found->ai_addr, found->ai_addrlen) == 0 &&
                     getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &size) == 0 &&
                     getnameinfo(reinterpret_cast<sockaddr*>(&own), size, text, sizeof(text),
                                 nullptr, 0, NI_NUMERICHOST) == 0;
  freeaddrinfo(found);
  return known ? text : "";
}

// Returns the certificate of the CA whose fingerprint is in the token. If the token has none,
// returns the certificate in the file of --ca-file.
absl::StatusOr<std::string> TrustedCa(const Context& context, const std::string& address,
                                      const TokenText& token) {
  if (token.fingerprint.empty()) {
    if (context.globals().connect.ca_file.empty())
      return UsageError(
          "--token: this is not a join token (tsj_...), so it pins no authority; give --ca-file "
          "too");
    return ReadWholeFile(context.globals().connect.ca_file);
  }
  TESSERA_ASSIGN_OR_RETURN(const std::string ca, remote::FetchCa(address, kCallTimeout));
  TESSERA_ASSIGN_OR_RETURN(const std::string fingerprint, pki::Fingerprint(ca));
  if (!EqualInConstantTime(fingerprint, token.fingerprint))
    return MakeError(
        ErrorKind::kTokenUnknown,
        absl::StrCat("join: ", address,
                     " is not the cluster of this token: its authority has another fingerprint. "
                     "Check the address; if it is right, somebody intercepts the connection"));
  return ca;
}

// Makes a key, has the coordinator sign a certificate for it, and writes both to `dir`.
absl::Status EnrollInto(const Context& context, const StateDir& dir, const std::string& address,
                        const std::string& worker, const std::string& token_text) {
  TESSERA_ASSIGN_OR_RETURN(const TokenText token, ParseToken(token_text));
  TESSERA_ASSIGN_OR_RETURN(const std::string ca, TrustedCa(context, address, token));
  TESSERA_ASSIGN_OR_RETURN(const pki::SigningRequest request, pki::MakeSigningRequest(worker));
  TESSERA_ASSIGN_OR_RETURN(
      const std::string cert,
      remote::Enroll(address, ca, FormatBearerToken(token), worker, request.csr_pem, kCallTimeout));
  // Write the files only if the certificate fits the key and the CA has signed it.
  TESSERA_RETURN_IF_ERROR(pki::CheckPair(cert, request.key_pem));
  TESSERA_RETURN_IF_ERROR(pki::CheckIssuedBy(cert, ca));
  TESSERA_RETURN_IF_ERROR(MakeDirectory(dir.path() + "/" + worker));
  TESSERA_RETURN_IF_ERROR(ReplaceFile(dir.FilePath(worker, "ca.pem"), ca, /*is_private=*/false));
  TESSERA_RETURN_IF_ERROR(
      ReplaceFile(dir.FilePath(worker, "key.pem"), request.key_pem, /*is_private=*/true));
  return ReplaceFile(dir.FilePath(worker, "cert.pem"), cert, /*is_private=*/false);
}

std::vector<std::string> WorkerFlags(const Arguments& arguments, const StateDir& dir,
                                     const std::string& address, const std::string& worker) {
  std::vector<std::string> flags = dir.TlsFlags(worker);
  flags.push_back("--coordinator=" + address);
  flags.push_back("--name=" + worker);
  if (arguments.Has("devices"))
    flags.push_back(absl::StrCat("--devices=", arguments.Int("devices")));
  if (arguments.Has("files-dir")) flags.push_back("--files-dir=" + arguments.Text("files-dir"));
  // If no address is given, listen on the well-known ports of the address that routes to the
  // coordinator.
  const std::string own = WithBrackets(OwnAddressTowards(address));
  const bool local = own.empty() || IsLoopback(own);
  for (const auto& [flag, port] :
       {std::pair("data-listen", 8471), std::pair("peer-listen", 8472)}) {
    if (arguments.Has(flag))
      flags.push_back(absl::StrCat("--", flag, "=", arguments.Text(flag)));
    else if (!local)
      flags.push_back(absl::StrCat("--", flag, "=", own, ":", port));
  }
  for (const char* flag : {"advertise-client", "advertise-peer"})
    if (arguments.Has(flag)) flags.push_back(absl::StrCat("--", flag, "=", arguments.Text(flag)));
  return flags;
}

// If a token is given, enrolls the machine; otherwise requires the certificate that an earlier
// `tessera join` has stored. Then runs the daemon. The result is printed only when the daemon has
// written the file that says that the coordinator has taken the worker; Supervise looks for that
// file at each poll.
absl::Status Join(Context& context, const Arguments& arguments) {
  TESSERA_ASSIGN_OR_RETURN(const std::string address, WithPort(arguments.Text("HOST")));
  const std::string worker = arguments.Has("name") ? arguments.Text("name") : HostName();
  const StateDir dir(arguments.Has("dir") ? arguments.Text("dir") : DefaultStateDir() + "-worker");
  TESSERA_ASSIGN_OR_RETURN(const UniqueFd lock, LockDirectory(dir.path()));
  if (arguments.Has("token")) {
    TESSERA_RETURN_IF_ERROR(EnrollInto(context, dir, address, worker, arguments.Text("token")));
  } else if (!ReadWholeFile(dir.FilePath(worker, "cert.pem")).ok()) {
    return UsageError("'", worker, "' has no certificate in ", dir.path(),
                      "; give the --token that `tessera up` prints");
  }
  if (arguments.Flag("no-start")) {
    context.PrintResult({{"worker", worker}, {"folder", dir.path()}}, [&] {
      context.Note(absl::StrCat("'", worker, "' has joined; its certificate is in ", dir.path()));
    });
    return absl::OkStatus();
  }
  const std::string registered_file = absl::StrCat(dir.path(), "/", worker, ".registered");
  unlink(registered_file.c_str());
  std::vector<std::string> flags = WorkerFlags(arguments, dir, address, worker);
  flags.push_back("--registered-file=" + registered_file);
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<ManagedProcess> worker_process,
                           ManagedProcess::Start("tessera-worker", flags,
                                                 absl::StrCat(dir.path(), "/", worker, ".log")));
  context.Note(absl::StrCat("'", worker, "' asks the coordinator at ", address,
                            " to accept it as a worker. The worker's log is in ", dir.path(),
                            ". Ctrl-C stops the worker."));
  const Json document = {{"worker", worker}, {"folder", dir.path()}, {"coordinator", address}};
  return Supervise(context, {{worker_process.get(), flags}}, [&] {
    if (context.has_printed_result() || access(registered_file.c_str(), F_OK) != 0) return;
    context.PrintResult(
        document, [&] { context.Note(absl::StrCat("'", worker, "' works for ", address, ".")); });
  });
}

}  // namespace

// Returns this command's entry in the table of commands. Most options are passed on to
// tessera-worker under the same name.
std::vector<Command> JoinCommands() {
  return {
      {.name = "join",
       .summary = "Makes this machine a worker of a cluster.",
       .options =
           {Positional("HOST", "Address of the coordinator: HOST[:PORT]."),
            {.name = "token",
             .value_name = "TOKEN",
             .help = "The join token that `tessera up` printed. Not needed once this machine has "
                     "its certificate."},
            {.name = "name",
             .value_name = "NAME",
             .help =
                 "Name of the worker, unique in the cluster (default: the name of this machine)."},
            {.name = "dir",
             .value_name = "DIR",
             .help = "Folder for the worker's key and certificate (default: "
                     "~/.local/state/tessera-worker)."},
            {.name = "devices",
             .type = OptionType::kInt,
             .value_name = "N",
             .help = "Use N CPU devices (default: all GPUs of the machine, or one CPU device if it "
                     "has none)."},
            {.name = "files-dir",
             .value_name = "FOLDER",
             .help = "Folder, shared by all workers, in which arrays are saved and loaded. Without "
                     "it, this worker saves and loads no arrays."},
            {.name = "data-listen",
             .value_name = "HOST:PORT",
             .help = "Address to which clients send and from which they fetch bytes (default: port "
                     "8471 of the address that faces the coordinator)."},
            {.name = "peer-listen",
             .value_name = "HOST:PORT",
             .help = "Address to which other workers connect (default: port 8472 of the address "
                     "that faces the coordinator)."},
            {.name = "advertise-client",
             .value_name = "HOST[:PORT]",
             .help = "Address by which clients reach --data-listen (default: the address itself)."},
            {.name = "advertise-peer",
             .value_name = "HOST[:PORT]",
             .help = "Address by which other workers reach --peer-listen (default: the address "
                     "itself)."},
            Flag("no-start", "Get the certificate, but start no daemon.")},
       .timeout = absl::InfiniteDuration(),
       .details = "The token holds the fingerprint of the cluster's CA, so that nobody can pose as "
                  "the coordinator. The worker's key is made on this machine and stays there. The "
                  "command reports when the coordinator has accepted the worker, and runs until "
                  "Ctrl-C. A worker that ends is started again, within half a minute at most. If "
                  "another start cannot help, the command ends and says why. See docs/security.md.",
       .run = Join},
  };
}

}  // namespace tessera::cli
