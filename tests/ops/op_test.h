// The fixture of the tests that check every op. TESSERA_FOR_EVERY_OP instantiates a test suite once
// for each op. A test walks the rows of its op with ForRows, which names the row that fails. A row,
// or sample, is one op with given attributes and operands: a test case (samples.h).
#pragma once
#include <gtest/gtest.h>

#include <cctype>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_exception.h"
#include "ir/op_def.h"
#include "ir/registry.h"
#include "tests/ops/samples.h"

namespace tessera::ir::samples {

class OpTest : public ::testing::TestWithParam<const OpDef*> {
 protected:
  const OpDef& op() const { return *GetParam(); }

  // Calls `check` for each row. `check` returns why the row fails, or "" if it passes. An exception
  // that a rule of the op throws is a failure, too.
  void ForRows(const std::function<std::string(const Sample&)>& check) {
    for (const Sample* s : SamplesOf(op())) {
      std::string why;
      const absl::Status status = CatchStatus([&] { why = check(*s); });
      if (!status.ok()) why = status.ToString();
      EXPECT_EQ(why, "") << "row " << s->name;
    }
  }
  // Like the function above, but skips the rows that exclude the check `kind`.
  void ForRows(Check kind, const std::function<std::string(const Sample&)>& check) {
    ForRows([&](const Sample& s) { return s.Excludes(kind) ? "" : check(s); });
  }
};

inline std::string NameOfOp(const ::testing::TestParamInfo<const OpDef*>& info) {
  return std::string(info.param->name);
}

#define TESSERA_FOR_EVERY_OP(Suite)                                                              \
  INSTANTIATE_TEST_SUITE_P(AllOps, Suite, ::testing::ValuesIn(AllOps().begin(), AllOps().end()), \
                           NameOfOp)

// Returns the text of a status, or "" if it is OK.
inline std::string Why(const absl::Status& status) { return status.ok() ? "" : status.ToString(); }

// Returns, for each type, whether its values are inexact numbers and so have tangents.
inline std::vector<bool> Inexact(const std::vector<Type>& types) {
  std::vector<bool> out;
  for (const Type& t : types) out.push_back(IsInexact(t.dtype));
  return out;
}
inline bool Any(const std::vector<bool>& mask) {
  for (bool m : mask)
    if (m) return true;
  return false;
}

}  // namespace tessera::ir::samples
