// Checks invariants that only our own bug can break. A check that fails prints to stderr, in the
// format of the log, and aborts the process.
//
//   TESSERA_CHECK(n > 0) << "n=" << n;
//   TESSERA_CHECK_EQ(a, b) << "after repartition";
//   TESSERA_CHECK_OK(Open(path));
//
// The operands that are streamed into a check are evaluated only if it fails. docs/checks.md has a
// row for every check in product code. Thread-safe.
#pragma once
#include <cstdint>
#include <memory>
#include <ostream>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>

#include "absl/base/optimization.h"
#include "absl/status/status.h"
#include "base/status.h"

namespace tessera::internal {

// Prints and aborts at the end of the statement.
class CheckFailure {
 public:
  CheckFailure(const char* file, int line, std::string_view what) : file_(file), line_(line) {
    stream_ << "CHECK failed: " << what << " ";
  }
  [[noreturn]] ~CheckFailure();
  std::ostream& stream() { return stream_; }

 private:
  const char* const file_;
  const int line_;
  std::ostringstream stream_;
};

// Makes both branches of the conditional in the macros void. The operator binds weaker than <<.
struct Voidify {
  void operator&(std::ostream&) const {}
};

template <typename T>
void PrintOperand(std::ostream& os, const T& value) {
  if constexpr (requires { os << value; }) {
    os << value;
  } else if constexpr (std::is_enum_v<T>) {
    os << static_cast<int64_t>(value);
  } else {
    os << "?";
  }
}

// Returns the failure message of a comparison, or null if the comparison holds.
template <typename A, typename B, typename Compare>
std::unique_ptr<std::string> CheckCompare(const A& a, const B& b, Compare holds, const char* text) {
  if (ABSL_PREDICT_TRUE(holds(a, b))) return nullptr;
  std::ostringstream os;
  os << text << " (";
  PrintOperand(os, a);
  os << " vs. ";
  PrintOperand(os, b);
  os << ")";
  return std::make_unique<std::string>(os.str());
}

}  // namespace tessera::internal

#define TESSERA_CHECK(condition)                  \
  ABSL_PREDICT_TRUE(static_cast<bool>(condition)) \
  ? (void)0                                       \
  : ::tessera::internal::Voidify() &              \
          ::tessera::internal::CheckFailure(__FILE__, __LINE__, #condition).stream()

#define TESSERA_CHECK_OP_(a, b, op)                                                            \
  switch (0)                                                                                   \
  case 0:                                                                                      \
  default:                                                                                     \
    if (auto tessera_failure_ = ::tessera::internal::CheckCompare(                             \
            (a), (b), [](const auto& x, const auto& y) { return x op y; }, #a " " #op " " #b); \
        tessera_failure_ == nullptr)                                                           \
      ;                                                                                        \
    else                                                                                       \
      ::tessera::internal::CheckFailure(__FILE__, __LINE__, *tessera_failure_).stream()
#define TESSERA_CHECK_EQ(a, b) TESSERA_CHECK_OP_(a, b, ==)
#define TESSERA_CHECK_NE(a, b) TESSERA_CHECK_OP_(a, b, !=)
#define TESSERA_CHECK_LT(a, b) TESSERA_CHECK_OP_(a, b, <)
#define TESSERA_CHECK_LE(a, b) TESSERA_CHECK_OP_(a, b, <=)
#define TESSERA_CHECK_GT(a, b) TESSERA_CHECK_OP_(a, b, >)
#define TESSERA_CHECK_GE(a, b) TESSERA_CHECK_OP_(a, b, >=)

// Aborts unless the expression, a Status or a StatusOr, is OK.
#define TESSERA_CHECK_OK(expr)                                                    \
  switch (0)                                                                      \
  case 0:                                                                         \
  default:                                                                        \
    if (const absl::Status tessera_status_ = ::tessera::internal::AsStatus(expr); \
        tessera_status_.ok())                                                     \
      ;                                                                           \
    else                                                                          \
      ::tessera::internal::CheckFailure(__FILE__, __LINE__, #expr).stream()       \
          << tessera_status_ << " "
