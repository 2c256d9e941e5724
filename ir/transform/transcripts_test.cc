// Proves the transforms by golden transcripts, tests/golden/transform/*.txt.
//
// The input of a case is a program, the output its transformed functions. Params are listed by
// position; a param that is not listed is held fixed (known, not batched, not linear). Each
// transform is also run and checked: against finite differences, the dot-product test, a loop, or
// the program itself.
//
//   jvp [active=0,1] [instantiate]   params, tangents -> results, tangents
//       [not_smooth]                 does not compare with finite differences, which disagree
//   linearize [active=0,1]           prints the forward function and the linear part
//   transpose linear=1               other params, cotangents -> cotangents of the linear params
//   vjp [active=0,1]                 params, cotangents -> cotangents
//   grad [active=0]                  gradient of one scalar result
//   vmap dims=0,- size=3             `-` means that the param is not batched
//   partial_eval known=0             prints the known and the unknown part
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/testing/datadriven.h"
#include "ir/text.h"
#include "ir/transform/testing/transform_checks.h"
#include "ir/transform/transform.h"

namespace tessera::ir {
namespace {

using testing::Cat;
using testing::Dot;
using testing::Eval;
using testing::Masked;
using testing::RandomArgs;

// Returns which params `name`=0,2 lists, or `otherwise` if the argument is missing.
std::vector<bool> Mask(const DataCase& c, const std::string& name,
                       const std::vector<bool>& otherwise) {
  if (!c.Has(name)) return otherwise;
  std::vector<bool> mask(otherwise.size(), false);
  for (const absl::string_view word : absl::StrSplit(c.Arg(name), ',', absl::SkipEmpty())) {
    int i = -1;
    EXPECT_TRUE(absl::SimpleAtoi(word, &i) && i >= 0 && i < static_cast<int>(mask.size()))
        << c.file << ":" << c.line << ": no param " << word;
    mask.at(i) = true;
  }
  return mask;
}

// Checks <ct, f'(linear args)> = <transpose(ct), linear args>, for f linear in these params.
void CheckTranspose(const Function& f, const std::vector<bool>& linear,
                    const Function& transposed) {
  const std::vector<Array> args = RandomArgs(f.param_types(), 1);
  std::vector<Array> known, xs;
  for (size_t i = 0; i < args.size(); ++i) (linear[i] ? xs : known).push_back(args[i]);
  const std::vector<Array> cts = RandomArgs(f.result_types(), 2);
  const std::vector<Array> back = Eval(transposed, Cat(known, cts));
  ASSERT_EQ(back.size(), xs.size());
  EXPECT_NEAR(Dot(back, xs), Dot(cts, Eval(f, args)), 1e-9) << "dot-product test";
}

// Checks that the known and then the unknown function give the results of f, bit for bit.
void CheckPartialEval(const Function& f, const std::vector<bool>& known_in,
                      const PartialEvalResult& pe) {
  const std::vector<Array> args = RandomArgs(f.param_types(), 1);
  std::vector<Array> known, unknown;
  for (size_t i = 0; i < args.size(); ++i) (known_in[i] ? known : unknown).push_back(args[i]);
  const std::vector<Array> first = Eval(*pe.known, known);
  const std::vector<Array> residuals(first.end() - pe.num_residuals, first.end());
  const std::vector<Array> second = Eval(*pe.unknown, Cat(residuals, unknown));
  const std::vector<Array> want = Eval(f, args);
  size_t from_known = 0, from_unknown = 0;
  for (size_t r = 0; r < want.size(); ++r) {
    const Array& got = pe.out_known[r] ? first.at(from_known++) : second.at(from_unknown++);
    EXPECT_TRUE(got == want[r]) << "result " << r;
  }
}

std::string JvpText(const DataCase& c, const Function& f) {
  const std::vector<bool> active = Mask(c, "active", testing::InexactParams(f));
  const JvpResult jvp = ValueOrThrow(Jvp(f, active, c.Has("instantiate")));
  if (!c.Has("not_smooth")) testing::CheckDerivatives(f);
  return PrintFunction(*jvp.fn);
}

std::string LinearizeText(const DataCase& c, const Function& f) {
  const Linearized lin = ValueOrThrow(Linearize(f, Mask(c, "active", testing::InexactParams(f))));
  testing::CheckDerivatives(f);
  return absl::StrCat("forward, then ", lin.num_residuals, " residuals\n",
                      PrintFunction(*lin.forward), "linear\n", PrintFunction(*lin.linear));
}

std::string TransposeText(const DataCase& c, const Function& f) {
  const std::vector<bool> linear = Mask(c, "linear", std::vector<bool>(f.num_params, false));
  const FunctionRef transposed = ValueOrThrow(TransposeFunction(f, linear));
  CheckTranspose(f, linear, *transposed);
  return PrintFunction(*transposed);
}

std::string VjpText(const DataCase& c, const Function& f) {
  testing::CheckDerivatives(f);
  return PrintFunction(*testing::VjpFn(f, Mask(c, "active", testing::InexactParams(f))));
}

std::string GradText(const DataCase& c, const Function& f) {
  testing::CheckDerivatives(f);
  return PrintFunction(*testing::GradFn(f, Mask(c, "active", testing::InexactParams(f))));
}

std::string VmapText(const DataCase& c, const Function& f) {
  std::vector<int> dims;
  for (const absl::string_view word : absl::StrSplit(c.Arg("dims"), ',')) {
    int dim = -1;
    EXPECT_TRUE(word == "-" || absl::SimpleAtoi(word, &dim)) << c.file << ":" << c.line;
    dims.push_back(dim);
  }
  int64_t size = 0;
  EXPECT_TRUE(absl::SimpleAtoi(c.Arg("size"), &size)) << c.file << ":" << c.line;
  const BatchResult batched = ValueOrThrow(Batch(f, dims, size));
  testing::CheckBatch(f, dims, size);
  std::string out = PrintFunction(*batched.fn);
  for (size_t r = 0; r < batched.out_dims.size(); ++r) {
    const int dim = batched.out_dims[r];
    absl::StrAppend(&out, "result ", r, dim < 0 ? " is not batched" : absl::StrCat(" at dim ", dim),
                    "\n");
  }
  return out;
}

std::string PartialEvalText(const DataCase& c, const Function& f) {
  const std::vector<bool> known = Mask(c, "known", std::vector<bool>(f.num_params, false));
  const PartialEvalResult pe = ValueOrThrow(PartialEval(f, known));
  CheckPartialEval(f, known, pe);
  return absl::StrCat("known, then ", pe.num_residuals, " residuals\n", PrintFunction(*pe.known),
                      "unknown\n", PrintFunction(*pe.unknown));
}

std::string Transformed(const DataCase& c, const Function& f) {
  if (c.command == "jvp") return JvpText(c, f);
  if (c.command == "linearize") return LinearizeText(c, f);
  if (c.command == "transpose") return TransposeText(c, f);
  if (c.command == "vjp") return VjpText(c, f);
  if (c.command == "grad") return GradText(c, f);
  if (c.command == "vmap") return VmapText(c, f);
  if (c.command == "partial_eval") return PartialEvalText(c, f);
  ADD_FAILURE() << c.file << ":" << c.line << ": unknown command " << c.command;
  return "";
}

TEST(TransformTranscripts, AreAsRecorded) {
  RunDataFolder("tests/golden/transform", [](const DataCase& c) {
    SCOPED_TRACE(absl::StrCat(c.file, ":", c.line));
    std::string out;
    const absl::Status status =
        CatchStatus([&] { out = Transformed(c, *ValueOrThrow(ParseProgram(c.input)).entry); });
    return status.ok() ? out : absl::StrCat(ToAbsl(ReasonOf(status)), ": ", status.message(), "\n");
  });
}

}  // namespace
}  // namespace tessera::ir
