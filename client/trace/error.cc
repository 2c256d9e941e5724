// Makes the SDK's exceptions. All of client/ throws through ThrowError, which adds the call site to
// the message.
#include "client/error.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

// Appends the call site to the message, unless the message contains it already.
absl::Status WithSite(const absl::Status& status, const Site& site) {
  const std::string suffix = absl::StrCat("(", site.ToString(), ")");
  if (!site.valid() || absl::StrContains(status.message(), suffix)) return status;
  absl::Status out(status.code(), absl::StrCat(status.message(), " ", suffix));
  status.ForEachPayload(
      [&](absl::string_view url, const absl::Cord& payload) { out.SetPayload(url, payload); });
  return out;
}

}  // namespace

Error::Error(absl::Status status, Site site)
    : std::runtime_error(std::string(status.message())), status_(std::move(status)), site_(site) {}

namespace internal {

void ThrowError(const absl::Status& status, const Site& site) {
  throw Error(WithSite(status, site), site);
}

}  // namespace internal
}  // namespace tessera
