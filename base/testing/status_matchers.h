// Matchers for absl::Status and absl::StatusOr in tests.
//
//   EXPECT_THAT(F(), IsOk());            EXPECT_THAT(F(), IsOkAndHolds(Eq(3)));
//   EXPECT_THAT(F(), StatusIs(absl::StatusCode::kAborted, "part of the message"));
//   EXPECT_THAT(F(), ReasonIs("VALUE_ERROR", HasSubstr("dim 1")));
//   TESSERA_ASSERT_OK_AND_ASSIGN(auto x, F());
#pragma once
#include <string>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera {
namespace internal {

// Returns a matcher for the message of a status. If `m` is a text, the message must contain it; if
// `m` is a matcher, the whole message must match.
template <typename M>
::testing::Matcher<std::string> MessageMatcher(M&& m) {
  if constexpr (std::is_convertible_v<M, std::string>) {
    return ::testing::HasSubstr(std::string(std::forward<M>(m)));
  } else {
    return ::testing::SafeMatcherCast<std::string>(std::forward<M>(m));
  }
}

inline void Explain(const absl::Status& status, ::testing::MatchResultListener* listener) {
  *listener << "whose status is " << status.ToString();
}

}  // namespace internal

MATCHER(IsOk, negation ? "is an error" : "is OK") {
  const absl::Status status = internal::AsStatus(arg);
  internal::Explain(status, result_listener);
  return status.ok();
}

MATCHER_P(IsOkAndHolds, value, "is OK and holds the value") {
  internal::Explain(arg.status(), result_listener);
  if (!arg.ok()) return false;
  return ::testing::ExplainMatchResult(value, *arg, result_listener);
}

MATCHER_P2(StatusMatches, code, message, "has the code and the message") {
  const absl::Status status = internal::AsStatus(arg);
  internal::Explain(status, result_listener);
  return status.code() == code &&
         ::testing::ExplainMatchResult(message, std::string(status.message()), result_listener);
}

MATCHER_P2(ReasonMatches, reason, message, "has reason " + ::testing::PrintToString(reason)) {
  const absl::Status status = internal::AsStatus(arg);
  internal::Explain(status, result_listener);
  return ReasonOf(status) == std::string_view(reason) &&
         ::testing::ExplainMatchResult(message, std::string(status.message()), result_listener);
}

inline auto StatusIs(absl::StatusCode code) {
  return StatusMatches(code, ::testing::Matcher<std::string>(::testing::_));
}
template <typename M>
auto StatusIs(absl::StatusCode code, M&& message) {
  return StatusMatches(code, internal::MessageMatcher(std::forward<M>(message)));
}

inline auto ReasonIs(std::string reason) {
  return ReasonMatches(std::move(reason), ::testing::Matcher<std::string>(::testing::_));
}
template <typename M>
auto ReasonIs(std::string reason, M&& message) {
  return ReasonMatches(std::move(reason), internal::MessageMatcher(std::forward<M>(message)));
}

}  // namespace tessera

#define TESSERA_EXPECT_OK(...) EXPECT_THAT((__VA_ARGS__), ::tessera::IsOk())
#define TESSERA_ASSERT_OK(...) ASSERT_THAT((__VA_ARGS__), ::tessera::IsOk())
#define TESSERA_ASSERT_OK_AND_ASSIGN(lhs, ...)                                         \
  TESSERA_ASSERT_OK_AND_ASSIGN_(TESSERA_CONCAT_(tessera_status_or_, __COUNTER__), lhs, \
                                (__VA_ARGS__))
#define TESSERA_ASSERT_OK_AND_ASSIGN_(tmp, lhs, expr) \
  auto tmp = expr;                                    \
  ASSERT_TRUE(tmp.ok()) << tmp.status();              \
  TESSERA_UNPARENTHESIZE_(lhs) = *std::move(tmp)
