// Calls the resolver of the system for RemoteService::Connect. The call cannot be interrupted and
// may take as long as the resolver likes, so a thread of its own makes it.
#include "client/remote/resolve.h"

#include <netdb.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/address.h"
#include "base/clock.h"
#include "base/status.h"

namespace tessera::remote {
namespace {

constexpr absl::Duration kPollInterval = absl::Milliseconds(100);
// A name that the resolver cannot look up at the moment is tried again for this time.
constexpr absl::Duration kRetryTime = absl::Seconds(1);

// The answer of the resolver, which its thread and the waiting thread share.
struct Answer {
  absl::Mutex mu;
  std::optional<int> code ABSL_GUARDED_BY(mu);  // as getaddrinfo returns it
};

// Looks the name up in a thread that nobody joins, since it may outlive the wait.
std::shared_ptr<Answer> StartLookup(const std::string& host) {
  auto answer = std::make_shared<Answer>();
  std::thread([answer, host] {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int code = getaddrinfo(host.c_str(), nullptr, &hints, &found);
    if (code == 0) freeaddrinfo(found);
    absl::MutexLock lock(&answer->mu);
    answer->code = code;
  }).detach();
  return answer;
}

}  // namespace

// Tells three cases apart: a name that does not exist, which is final; a resolver that cannot say
// at present, which is asked again for kRetryTime; and a resolver that does not answer, which may
// take the whole timeout.
absl::Status ResolveHost(const std::string& address, absl::Duration timeout,
                         const std::function<bool()>& keep_waiting) {
  if (absl::StartsWith(address, "unix:")) return absl::OkStatus();
  TESSERA_ASSIGN_OR_RETURN(const HostPort target, ParseHostPort(address));
  const absl::Time began = SteadyNow();
  const auto error = [&](absl::string_view why) {
    return MakeError(ErrorKind::kUnreachable,
                     absl::StrCat("the host name '", target.host, "' in the coordinator's address ",
                                  address, " cannot be looked up: ", why, "; correct the address"));
  };
  std::shared_ptr<Answer> answer = StartLookup(target.host);
  while (true) {
    std::optional<int> code;
    {
      absl::MutexLock lock(&answer->mu);
      const auto answered = [&]() ABSL_SHARED_LOCKS_REQUIRED(answer->mu) {
        return answer->code.has_value();
      };
      answer->mu.AwaitWithTimeout(absl::Condition(&answered), kPollInterval);
      code = answer->code;
    }
    const absl::Duration waited = SteadyNow() - began;
    if (code == 0) return absl::OkStatus();
    if (code == EAI_AGAIN && waited < std::min(kRetryTime, timeout)) {
      absl::SleepFor(kPollInterval);
      answer = StartLookup(target.host);
    } else if (code.has_value()) {
      return error(gai_strerror(*code));
    } else if (waited >= timeout) {
      return error(
          absl::StrCat("the resolver has not answered within ", absl::FormatDuration(timeout)));
    }
    if (!keep_waiting()) return MakeError(ErrorKind::kCancelled, "the wait was cancelled");
  }
}

}  // namespace tessera::remote
