// The arguments of a command, and exit codes. The parser (parse.cc) fills Arguments; main.cc turns
// the status of a command into the exit code of the process.
#include "client/cli/commands.h"

#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace tessera::cli {
namespace {

constexpr char kExitPayload[] = "type.tessera.dev/exit";

}  // namespace

std::string Arguments::Text(const std::string& name) const {
  if (const auto it = given_.find(name); it != given_.end() && !it->second.empty()) {
    return it->second[0];
  }
  const auto it = defaults_.find(name);
  return it == defaults_.end() ? "" : it->second;
}

std::vector<std::string> Arguments::Texts(const std::string& name) const {
  const auto it = given_.find(name);
  return it == given_.end() ? std::vector<std::string>() : it->second;
}

int64_t Arguments::Int(const std::string& name) const {
  int64_t value = 0;
  return absl::SimpleAtoi(Text(name), &value) ? value : 0;
}

absl::Duration Arguments::Duration(const std::string& name) const {
  absl::Duration value;
  return absl::ParseDuration(Text(name), &value) ? value : absl::ZeroDuration();
}

void Arguments::Set(const std::string& name, std::vector<std::string> values) {
  given_[name] = std::move(values);
}

void Arguments::SetDefault(const std::string& name, std::string value) {
  defaults_[name] = std::move(value);
}

absl::Status WithExitCode(absl::Status status, int code) {
  status.SetPayload(kExitPayload, absl::Cord(absl::StrCat(code)));
  return status;
}

int ExitCodeOf(const absl::Status& status) {
  if (status.ok()) return kExitOk;
  int code = 0;
  if (const auto payload = status.GetPayload(kExitPayload);
      payload && absl::SimpleAtoi(std::string(*payload), &code)) {
    return code;
  }
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return kExitUnavailable;
    default:
      return kExitFailed;
  }
}

}  // namespace tessera::cli
