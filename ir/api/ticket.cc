// Signs and checks tickets, and derives their keys. The coordinator signs a ticket for a client;
// the executor checks it on its data port, with a key that only it, its worker and the coordinator
// know.
#include "ir/api/ticket.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/log.h"
#include "base/status.h"
#include "ir/dtype.h"

namespace tessera::api {
namespace {

// The fields of a ticket's body: v1|access|incarnation|array|device|dtype|dims|expiry in ms.
constexpr size_t kFields = 8;
constexpr size_t kMaxTicketBytes = 4096;

std::string RawMac(absl::string_view body, std::string_view key) {
  unsigned char mac[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  const unsigned char* done =
      HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(body.data()), body.size(), mac, &size);
  TESSERA_CHECK(done != nullptr) << "HMAC-SHA256 is not available";
  return std::string(reinterpret_cast<char*>(mac), size);
}
std::string HexMac(absl::string_view body, std::string_view key) {
  return absl::BytesToHexString(RawMac(body, key));
}

absl::Status Refused(absl::string_view why) {
  return MakeError(ErrorKind::kTicketRefused,
                   absl::StrCat("ticket: ", why, "; ask the coordinator for one"));
}
absl::Status Stale(absl::string_view why) {
  return MakeError(ErrorKind::kTicketStale,
                   absl::StrCat("ticket: ", why, "; ask the coordinator for a new one"));
}

}  // namespace

std::string WorkerTicketKey(std::string_view coordinator_key, std::string_view worker) {
  return RawMac(absl::StrCat("tickets of worker ", ToAbsl(worker)), coordinator_key);
}

std::string ExecutorTicketKey(std::string_view worker_key, int32_t index, uint64_t incarnation) {
  return RawMac(absl::StrCat("tickets of executor ", index, " incarnation ", incarnation),
                worker_key);
}

std::string TicketKeyFor(std::string_view coordinator_key, std::string_view executor,
                         uint64_t incarnation) {
  const size_t slash = executor.rfind('/');
  int32_t index = 0;
  TESSERA_CHECK(slash != std::string_view::npos &&
                absl::SimpleAtoi(ToAbsl(executor.substr(slash + 1)), &index))
      << executor;
  return ExecutorTicketKey(WorkerTicketKey(coordinator_key, executor.substr(0, slash)), index,
                           incarnation);
}

std::string SignTicket(const Ticket& t, std::string_view key) {
  std::string body = absl::StrCat("v1|", static_cast<int>(t.access), "|", t.incarnation, "|",
                                  t.array, "|", t.device, "|", ToAbsl(ir::DTypeName(t.dtype)), "|",
                                  absl::StrJoin(t.shape, ","), "|", absl::ToUnixMillis(t.expires));
  const std::string mac = HexMac(body, key);
  absl::StrAppend(&body, "|", mac);
  return body;
}

// Compares the signature in constant time before it trusts any field. Only the incarnation is
// looked at earlier: a ticket for another incarnation is called stale, not refused, so that the
// client asks for a new one after an executor has restarted. The time is checked last, since the
// expiry is one of the signed fields.
absl::StatusOr<Ticket> CheckTicket(std::string_view text, std::string_view key, absl::Time now,
                                   uint64_t incarnation) {
  if (text.size() > kMaxTicketBytes) return Refused("too long");
  const size_t cut = text.rfind('|');
  if (cut == std::string_view::npos) return Refused("not a ticket");
  const absl::string_view body = ToAbsl(text.substr(0, cut));
  // The signature of a ticket for another incarnation cannot be checked. It need not be checked,
  // since such a ticket grants nothing.
  const std::vector<absl::string_view> f = absl::StrSplit(body, '|');
  uint64_t named_incarnation = 0;
  if (f.size() == kFields && f[0] == "v1" && absl::SimpleAtoi(f[2], &named_incarnation) &&
      named_incarnation != incarnation)
    return Stale(
        absl::StrCat("for executor incarnation ", named_incarnation, ", this is ", incarnation));
  const std::string mac = HexMac(body, key);
  const std::string_view given = text.substr(cut + 1);
  if (given.size() != mac.size() || CRYPTO_memcmp(given.data(), mac.data(), mac.size()) != 0)
    return Refused("not signed by this coordinator");
  // The body was signed by us, so parsing can fail only if versions differ.
  Ticket t;
  int access = 0;
  int64_t expires_ms = 0;
  if (f.size() != kFields || f[0] != "v1" || !absl::SimpleAtoi(f[1], &access) ||
      (access != 1 && access != 2) || !absl::SimpleAtoi(f[2], &t.incarnation) ||
      !absl::SimpleAtoi(f[3], &t.array) || !absl::SimpleAtoi(f[4], &t.device) ||
      !absl::SimpleAtoi(f[7], &expires_ms))
    return Refused("it has another version");
  t.access = static_cast<Ticket::Access>(access);
  const auto dtype = ir::ParseDType(ToStd(f[5]));
  if (!dtype) return Refused("it has another version");
  t.dtype = *dtype;
  if (!f[6].empty()) {
    for (absl::string_view d : absl::StrSplit(f[6], ',')) {
      int64_t size = 0;
      if (!absl::SimpleAtoi(d, &size) || size < 0) return Refused("it has another version");
      t.shape.push_back(size);
    }
  }
  t.expires = absl::FromUnixMillis(expires_ms);
  if (now > t.expires)
    return Stale(absl::StrCat("expired ", absl::FormatDuration(now - t.expires), " ago"));
  return t;
}

}  // namespace tessera::api
