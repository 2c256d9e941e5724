// Proves the text form by golden transcripts, tests/golden/text/*.txt. The commands are:
//
//   parse             prints the parsed program, or the error. The print is parsed again and
//                     compared.
//   eval a=1,2 b=3    evaluates the program on these numbers, with one list of numbers for each
//                     param in turn.
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/testing/datadriven.h"
#include "base/testing/status_matchers.h"
#include "ir/eval/eval.h"
#include "ir/program_hash.h"
#include "ir/text.h"

namespace tessera::ir {
namespace {

std::string ErrorText(const absl::Status& status) {
  return absl::StrCat(ToAbsl(ReasonOf(status)), ": ", status.message(), "\n");
}

std::string ParseText(const DataCase& c) {
  const absl::StatusOr<Program> program = ParseProgram(c.input);
  if (!program.ok()) return ErrorText(program.status());
  const std::string text = PrintProgram(*program);
  const absl::StatusOr<Program> back = ParseProgram(text);
  EXPECT_THAT(back, IsOk()) << text;
  if (back.ok()) {
    EXPECT_EQ(PrintProgram(*back), text);
    EXPECT_EQ(StructuralHash(*back), StructuralHash(*program)) << text;
  }
  return text;
}

std::string EvalText(const DataCase& c) {
  const absl::StatusOr<Program> program = ParseProgram(c.input);
  if (!program.ok()) return ErrorText(program.status());
  const Function& f = *program->entry;
  EXPECT_EQ(c.arg_names.size(), static_cast<size_t>(f.num_params));
  std::vector<Array> args;
  for (size_t i = 0; i < c.arg_names.size(); ++i) {
    std::vector<double> numbers;
    for (const absl::string_view word : absl::StrSplit(c.Arg(c.arg_names[i]), ',')) {
      numbers.emplace_back();
      EXPECT_TRUE(absl::SimpleAtod(word, &numbers.back())) << word;
    }
    EXPECT_EQ(static_cast<int64_t>(numbers.size()), f.types[i].num_elements());
    args.push_back(Array::Of(f.types[i].dtype, f.types[i].shape, numbers));
  }
  const absl::StatusOr<std::vector<Array>> results = Evaluate(f, args);
  if (!results.ok()) return ErrorText(results.status());
  std::string out;
  for (const Array& a : *results) absl::StrAppend(&out, a.ToString(), "\n");
  return out;
}

TEST(TextTranscripts, AreAsRecorded) {
  RunDataFolder("tests/golden/text", [](const DataCase& c) {
    SCOPED_TRACE(absl::StrCat(c.file, ":", c.line));
    if (c.command == "parse") return ParseText(c);
    if (c.command == "eval") return EvalText(c);
    ADD_FAILURE() << "unknown command " << c.command;
    return std::string();
  });
}

}  // namespace
}  // namespace tessera::ir
