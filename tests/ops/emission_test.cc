// Proves that the rules of an op emit the same ops in the same order with every compiler. The test
// takes a fingerprint of every transform of every row and compares it with
// tests/golden/ops/emission.txt. A row, or sample, is one op with given attributes and operands: a
// test case (samples.h).
//
// C++ leaves open which argument of a call is evaluated first. If two arguments of one call emit
// ops, the order of these ops therefore depends on the compiler; the cure is to assign the first
// argument to a variable before the call. A fingerprint also changes if the rule or its rows
// change; TESSERA_REWRITE=1 then writes the file again.
#include "absl/strings/str_format.h"
#include "base/testing/datadriven.h"
#include "ir/op_def.h"
#include "ir/program_hash.h"
#include "ir/registry.h"
#include "ir/transform/transform.h"
#include "tests/ops/op_test.h"

namespace tessera::ir::samples {
namespace {

// The FNV-1a hash of the structural hashes of functions. For a transform that is refused, the error
// message is hashed.
class Fingerprint {
 public:
  void Add(const absl::StatusOr<FunctionRef>& f) {
    const std::string text = f.ok() ? StructuralHash(**f) : std::string(f.status().message());
    for (const unsigned char c : text) hash_ = (hash_ ^ c) * 0x100000001b3u;
    any_ = true;
  }
  std::string ToString() const { return any_ ? absl::StrFormat("%016x", hash_) : "-"; }

 private:
  uint64_t hash_ = 0xcbf29ce484222325u;
  bool any_ = false;
};

absl::StatusOr<FunctionRef> FnOf(const absl::StatusOr<JvpResult>& r) {
  if (!r.ok()) return r.status();
  return r->fn;
}

// Returns a fingerprint of the jvp of each row and of the jvp of that jvp.
std::string JvpFingerprint(const std::vector<FunctionRef>& rows) {
  Fingerprint out;
  for (const FunctionRef& f : rows) {
    const std::vector<bool> active = Inexact(f->param_types());
    if (!Any(active)) continue;
    const absl::StatusOr<JvpResult> jvp = Jvp(*f, active);
    out.Add(FnOf(jvp));
    if (jvp.ok()) out.Add(FnOf(Jvp(*jvp->fn, Inexact(jvp->fn->param_types()))));
  }
  return out.ToString();
}

// Returns a fingerprint of the transposes of each row: the transpose by each operand alone, and the
// transpose of the linearized op.
std::string TransposeFingerprint(const std::vector<FunctionRef>& rows) {
  Fingerprint out;
  for (const FunctionRef& f : rows) {
    const std::vector<bool> active = Inexact(f->param_types());
    for (size_t i = 0; i < active.size(); ++i) {
      if (!active[i]) continue;
      std::vector<bool> one(active.size(), false);
      one[i] = true;
      out.Add(TransposeFunction(*f, one));
    }
    const absl::StatusOr<Linearized> lin = Linearize(*f, active);
    if (!Any(active) || !lin.ok()) continue;
    std::vector<bool> linear(lin->linear->num_params, true);
    std::fill_n(linear.begin(), lin->num_residuals, false);
    out.Add(TransposeFunction(*lin->linear, linear));
  }
  return out.ToString();
}

// Returns a fingerprint of each row batched: once with all operands batched at their first dim, and
// once for each operand alone, batched at its last dim.
std::string BatchFingerprint(const std::vector<FunctionRef>& rows) {
  Fingerprint out;
  const auto add = [&](const Function& f, const std::vector<int>& dims) {
    const absl::StatusOr<BatchResult> batch = Batch(f, dims, 3);
    out.Add(batch.ok() ? absl::StatusOr<FunctionRef>(batch->fn) : batch.status());
  };
  for (const FunctionRef& f : rows) {
    if (f->num_params == 0) continue;
    add(*f, std::vector<int>(f->num_params, 0));
    for (int i = 0; i < f->num_params; ++i) {
      std::vector<int> dims(f->num_params, -1);
      dims[i] = f->types[i].rank();
      add(*f, dims);
    }
  }
  return out.ToString();
}

TEST(EmissionTest, IsTheSameWithEveryCompiler) {
  std::string text = absl::StrFormat("%-24s %-16s %-16s %-16s\n", "op", "jvp", "transpose", "vmap");
  for (const OpDef* def : AllOps()) {
    std::vector<FunctionRef> rows;
    for (const Sample* s : SamplesOf(*def)) rows.push_back(FunctionOf(*s));
    absl::StrAppendFormat(&text, "%-24s %-16s %-16s %-16s\n", ToAbsl(def->name),
                          JvpFingerprint(rows), TransposeFingerprint(rows), BatchFingerprint(rows));
  }
  ExpectFileHolds("tests/golden/ops/emission.txt", text);
}

}  // namespace
}  // namespace tessera::ir::samples
