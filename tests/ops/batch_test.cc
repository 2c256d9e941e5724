// Proves that vmap of an op gives the results of a loop over the examples of the batch, for every
// sample, every choice of batched operands, and several positions of the batch dim. A sample, or
// row, is one op with given attributes and operands: a test case (samples.h).
#include "absl/strings/str_join.h"
#include "ir/strided.h"
#include "ir/transform/transform.h"
#include "tests/ops/op_test.h"

namespace tessera::ir::samples {
namespace {

constexpr int64_t kSize = 3;

// Returns the arguments of example k. Example 0 has the row's own arguments. The others have the
// same types and fills, but other elements.
std::vector<Shards> Example(const Sample& s, int64_t k) {
  if (k == 0) return ArgsOf(s);
  std::vector<Shards> args;
  for (size_t i = 0; i < s.operands.size(); ++i) {
    const Operand& o = s.operands[i];
    // Integers that the row gives as a list of values, such as a start index, must differ between
    // examples, too.
    const bool listed = o.fill.kind == Fill::kValues && IsInteger(o.type.dtype);
    const Fill fill = listed ? Ints(IsSignedInt(o.type.dtype) ? -3 : 0, 9) : o.fill;
    args.push_back(FilledShards(o.type, fill, s.scope, absl::StrCat(s.name, "#", i, "#", k)));
  }
  return args;
}

// Returns the arrays stacked along a new dim.
Array Stacked(const std::vector<Array>& parts, int dim) {
  Dims shape = parts[0].shape();
  shape.insert(shape.begin() + dim, static_cast<int64_t>(parts.size()));
  Array out(parts[0].dtype(), shape);
  Dims start(shape.size(), 0), block = shape;
  block[dim] = 1;
  for (const Array& p : parts) {
    WriteBlock(&out, start, p.Reshaped(block));
    ++start[dim];
  }
  return out;
}
Array Part(const Array& a, int dim, int64_t k) {
  Dims start(a.rank(), 0), block = a.shape();
  start[dim] = k;
  block[dim] = 1;
  Array part = SliceBlock(a, start, block);
  block.erase(block.begin() + dim);
  return part.Reshaped(block);
}

// Returns three choices of the position of the batch dim for each batched operand: first in all
// operands, last in all, and alternately last and first.
std::vector<std::vector<int>> BatchDimChoices(const Sample& s, const std::vector<bool>& batched) {
  std::vector<std::vector<int>> out;
  for (int way = 0; way < 3; ++way) {
    std::vector<int> dims;
    for (size_t i = 0; i < batched.size(); ++i) {
      const bool last = way == 1 || (way == 2 && i % 2 == 0);
      dims.push_back(!batched[i] ? -1 : last ? s.operands[i].type.rank() : 0);
    }
    if (std::find(out.begin(), out.end(), dims) == out.end()) out.push_back(dims);
  }
  return out;
}

// Returns the sets of operands to batch: all non-empty sets or, for an op with more than four
// operands, the set of all operands, each operand alone, and all operands but one.
std::vector<std::vector<bool>> OperandSets(size_t n) {
  std::vector<std::vector<bool>> out;
  if (n <= 4) {
    for (size_t mask = 1; mask < size_t{1} << n; ++mask) {
      out.emplace_back();
      for (size_t i = 0; i < n; ++i) out.back().push_back(mask >> i & 1);
    }
    return out;
  }
  out.emplace_back(n, true);
  for (size_t i = 0; i < n; ++i) {
    out.emplace_back(n, false);
    out.back()[i] = true;
    out.emplace_back(n, true);
    out.back()[i] = false;
  }
  return out;
}

// Runs the batched op once and the op itself for each example, and compares the parts. Only sums
// may differ, within their tolerance, since the batched op may add in another order.
std::string CheckBatch(const Sample& s, const std::vector<int>& dims) {
  const FunctionRef f = FunctionOf(s);
  const BatchResult batch = ValueOrThrow(Batch(*f, dims, kSize));
  std::vector<std::vector<Shards>> examples;
  for (int64_t k = 0; k < kSize; ++k) examples.push_back(Example(s, k));
  std::vector<Shards> args = examples[0];
  for (size_t i = 0; i < dims.size(); ++i)
    for (size_t shard = 0; shard < args[i].size() && dims[i] >= 0; ++shard)
      args[i][shard] =
          Stacked({examples[0][i][shard], examples[1][i][shard], examples[2][i][shard]}, dims[i]);
  const std::vector<Shards> got = ValueOrThrow(RunShards(*batch.fn, args));
  if (got.size() != f->results.size() || batch.out_dims.size() != got.size())
    return "another number of results";
  for (int64_t k = 0; k < kSize; ++k) {
    std::vector<Shards> example = examples[0];
    for (size_t i = 0; i < dims.size(); ++i)
      if (dims[i] >= 0) example[i] = examples[k][i];
    const std::vector<Shards> want = ValueOrThrow(RunShards(*f, example));
    std::vector<Shards> part = got;
    for (size_t r = 0; r < got.size(); ++r)
      for (Array& a : part[r])
        if (batch.out_dims[r] >= 0) a = Part(a, batch.out_dims[r], k);
    std::string why;
    if (s.tolerance.kind == Tolerance::kReordered) {
      const std::vector<Shards> magnitudes = ValueOrThrow(MagnitudesOf(s, example));
      why = FirstDifference(part, want, s.tolerance, &magnitudes);
    } else {
      why = FirstDifference(part, want, kExact, nullptr);
    }
    if (!why.empty()) return absl::StrCat("example ", k, ": ", why);
  }
  return "";
}

class BatchTest : public OpTest {};

TEST_P(BatchTest, EqualsALoopOverTheExamples) {
  if (op().batch.refused()) GTEST_SKIP() << "no batching: " << op().batch.reason;
  ForEachSample(CheckKind::kBatch, [](const Sample& s) -> std::string {
    for (const std::vector<bool>& batched : OperandSets(s.operands.size()))
      for (const std::vector<int>& dims : BatchDimChoices(s, batched)) {
        std::string why;
        const absl::Status status = CatchStatus([&] { why = CheckBatch(s, dims); });
        if (!status.ok()) why = status.ToString();
        if (!why.empty()) return absl::StrCat("batched at [", absl::StrJoin(dims, ","), "]: ", why);
      }
    return "";
  });
}

// A result has its batch dim at the position that the caller asks for, even if no operand is
// batched.
TEST_P(BatchTest, PutsBatchDimsWhereForced) {
  if (op().batch.refused()) GTEST_SKIP() << "no batching: " << op().batch.reason;
  ForEachSample(CheckKind::kBatch, [](const Sample& s) -> std::string {
    const FunctionRef f = FunctionOf(s);
    const std::vector<int> want(f->results.size(), 0);
    for (int at : {-1, 0}) {
      const BatchResult batch =
          ValueOrThrow(Batch(*f, std::vector<int>(s.operands.size(), at), kSize, want));
      if (batch.out_dims != want) return "a result is not where it was wanted";
      for (size_t r = 0; r < want.size(); ++r)
        if (batch.fn->result_types()[r].shape.at(0) != kSize)
          return absl::StrCat("result ", r, " lacks the batch dim");
    }
    return "";
  });
}
TESSERA_FOR_EVERY_OP(BatchTest);

}  // namespace
}  // namespace tessera::ir::samples
