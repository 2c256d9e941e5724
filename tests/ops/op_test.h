// The fixture of the tests that check every op. TESSERA_FOR_EVERY_OP instantiates a test suite once
// for each op. A test goes through the samples of its op with ForEachSample, which names the sample
// that fails. A sample, or row, is one op with given attributes and operands: a test case
// (samples.h).
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

  // Calls `check` for each sample. `check` returns why the sample fails, or "" if it passes. An
  // exception that a rule of the op throws is a failure, too.
  void ForEachSample(const std::function<std::string(const Sample&)>& check) {
    for (const Sample* s : SamplesOf(op())) {
      std::string why;
      const absl::Status status = CatchStatus([&] { why = check(*s); });
      if (!status.ok()) why = status.ToString();
      EXPECT_EQ(why, "") << "sample " << s->name;
    }
  }
  // Like the function above, but skips the samples that exclude checks of this kind.
  void ForEachSample(CheckKind kind, const std::function<std::string(const Sample&)>& check) {
    ForEachSample([&](const Sample& s) { return s.Excludes(kind) ? "" : check(s); });
  }
};

inline std::string NameOfOp(const ::testing::TestParamInfo<const OpDef*>& info) {
  return std::string(info.param->name);
}

#define TESSERA_FOR_EVERY_OP(Suite)                                                              \
  INSTANTIATE_TEST_SUITE_P(AllOps, Suite, ::testing::ValuesIn(AllOps().begin(), AllOps().end()), \
                           NameOfOp)

// Returns the text of a status, or "" if it is OK.
inline std::string StatusText(const absl::Status& status) {
  return status.ok() ? "" : status.ToString();
}

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
