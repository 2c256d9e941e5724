// Proves that a ticket survives signing and checking, that any changed byte or foreign key is
// refused, and that tickets of other incarnations and times are stale.
#include "ir/api/ticket.h"

#include "base/testing/status_matchers.h"

namespace tessera::api {
namespace {

Ticket Sample() {
  return {.access = Ticket::Access::kWrite,
          .incarnation = 7,
          .array = 1ull << 60,
          .device = 3,
          .dtype = ir::DType::kBF16,
          .shape = {8, 0, 512},
          .expires = absl::FromUnixMillis(1'000'000)};
}

TEST(TicketTest, ComesBackAsItWasSigned) {
  for (const ir::Dims& shape : {ir::Dims{}, ir::Dims{8, 0, 512}}) {
    Ticket t = Sample();
    t.shape = shape;
    EXPECT_THAT(CheckTicket(SignTicket(t, "key"), "key", absl::FromUnixMillis(999'999), 7),
                IsOkAndHolds(t));
  }
}

TEST(TicketTest, RefusesEveryChangedByte) {
  const std::string good = SignTicket(Sample(), "key");
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = bad[i] == '1' ? '2' : '1';
    // If the changed byte is the incarnation, the ticket names another executor and is stale.
    const bool names_another = good.substr(0, i) == "v1|2|";
    EXPECT_THAT(CheckTicket(bad, "key", absl::UnixEpoch(), 7),
                ReasonIs(names_another ? "TICKET_STALE" : "TICKET_REFUSED"))
        << "byte " << i;
    EXPECT_THAT(CheckTicket(good.substr(0, i), "key", absl::UnixEpoch(), 7),
                StatusIs(absl::StatusCode::kPermissionDenied));
  }
}

TEST(TicketTest, OtherIncarnationsAndTimesAreStaleOtherKeysRefused) {
  const std::string good = SignTicket(Sample(), "key");
  EXPECT_THAT(CheckTicket(good, "kez", absl::UnixEpoch(), 7),
              StatusIs(absl::StatusCode::kPermissionDenied, "not signed"));
  EXPECT_THAT(CheckTicket(good, "another key", absl::UnixEpoch(), 8),
              StatusIs(absl::StatusCode::kUnavailable, "incarnation 7, this is 8"));
  EXPECT_THAT(CheckTicket(good, "key", absl::FromUnixMillis(1'000'001), 7),
              ReasonIs("TICKET_STALE", "expired"));
}

TEST(TicketTest, EveryIncarnationOfEveryExecutorHasAKeyOfItsOwn) {
  const std::string own = TicketKeyFor("key", "w0/1", 7);
  EXPECT_EQ(own, ExecutorTicketKey(WorkerTicketKey("key", "w0"), 1, 7));
  EXPECT_EQ(own.size(), 32u);
  for (const std::string& other :
       {TicketKeyFor("kez", "w0/1", 7), TicketKeyFor("key", "w1/1", 7),
        TicketKeyFor("key", "w0/0", 7), TicketKeyFor("key", "w0/1", 8),
        TicketKeyFor("key", "w0/11", 7), WorkerTicketKey("key", "w0"), std::string("key")}) {
    EXPECT_NE(other, own);
    // The key of another worker or executor, or the coordinator's own key, makes no ticket for this
    // executor.
    EXPECT_THAT(CheckTicket(SignTicket(Sample(), other), own, absl::UnixEpoch(), 7),
                ReasonIs("TICKET_REFUSED"));
  }
}

}  // namespace
}  // namespace tessera::api
