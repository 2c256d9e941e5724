// The text form of programs and functions: parse(print(p)) == p. Stateless; thread-safe.
//
//   mesh (data=2, model=2)
//   func main(%0: f32[8,16] P('data'), %1: f32[16,4]) -> (f32[8,4] P('data')) {
//     %2 = dot_general(%0, %1) {lhs_batching_dimensions=[], ...} : f32[8,4]  # model.cc:41
//     return %2
//   }
//
// An argument or a result of the program may have a display name after its type and sharding, such
// as "args[0].w1". An argument that is written %x, and not %0, has the display name "%x" by
// default.
#pragma once
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "ir/program.h"
#include "ir/verify.h"

namespace tessera::ir {

struct PrintOptions {
  bool sites = false;  // appends each op's source location as a comment
};
std::string PrintFunction(const Function& f, const PrintOptions& options = {});
std::string PrintProgram(const Program& p, const PrintOptions& options = {});

// Parses and verifies a program. An error is MALFORMED_PROGRAM or LIMIT_EXCEEDED with line and
// column of the text, or the error of the op that is wrong, with its line, such as (program.txt:3).
// The limits are enforced while reading, so a text of any bytes is safe to parse. `file` names the
// file in errors and must outlive the program (InternFile).
absl::StatusOr<Program> ParseProgram(std::string_view text, const Limits& limits = {},
                                     const char* file = "program.txt");

}  // namespace tessera::ir
