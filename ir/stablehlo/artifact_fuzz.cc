// Fuzzes the reader of artifacts. The reader must either refuse arbitrary bytes with a status or
// read them. An artifact that was read is written and read again. A program that was imported is
// exported and imported again.
//
// Most mutations change the tables of an artifact that can be read, and write the artifact again.
// The container of such an artifact is valid, so the change reaches the code that decodes
// attributes, types and ops.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "ir/stablehlo/artifact.h"
#include "ir/stablehlo/export.h"
#include "ir/stablehlo/import.h"
#include "ir/stablehlo/inspect.h"
#include "ir/stablehlo/writer.h"
#include "ir/verify.h"

namespace {

// Checks that an imported program can be exported, or is refused as not implemented or too large.
// The exported artifact must be readable again.
void CheckExport(const tessera::ir::Program& program) {
  using namespace tessera::ir::stablehlo;
  const absl::StatusOr<std::string> bytes = ExportProgram(program);
  if (!bytes.ok()) {
    TESSERA_CHECK(bytes.status().code() == absl::StatusCode::kUnimplemented ||
                  bytes.status().code() == absl::StatusCode::kResourceExhausted)
        << bytes.status();
    return;
  }
  const absl::StatusOr<Artifact> artifact =
      ReadArtifact({reinterpret_cast<const uint8_t*>(bytes->data()), bytes->size()});
  TESSERA_CHECK(artifact.ok()) << artifact.status();
  const absl::StatusOr<tessera::ir::Program> again = ImportProgram(*artifact);
  TESSERA_CHECK(again.ok() || again.status().code() == absl::StatusCode::kResourceExhausted)
      << again.status();
}

// Changes the tables of an artifact whose properties are in the encoding of version 5 or later.
class Mutator {
 public:
  Mutator(tessera::ir::stablehlo::Bytecode code, unsigned seed)
      : code_(std::move(code)), random_(seed) {}

  std::string MutatedArtifact() {
    for (uint64_t changes = 1 + Below(3); changes > 0; --changes) Change();
    return tessera::ir::stablehlo::WriteBytecode(code_);
  }

 private:
  uint64_t Below(uint64_t n) { return n == 0 ? 0 : random_() % n; }
  template <typename T>
  T* PickFrom(std::vector<T>* table) {
    return table->empty() ? nullptr : &(*table)[Below(table->size())];
  }
  tessera::ir::stablehlo::Bytes Keep(std::string bytes) {
    const std::string& kept = kept_.emplace_back(std::move(bytes));
    return {reinterpret_cast<const uint8_t*>(kept.data()), kept.size()};
  }
  // Returns a replacement for the byte `old`: a byte near it, a byte at a bound, or a random byte.
  uint8_t MutatedByte(uint8_t old) {
    constexpr uint8_t kBounds[] = {0, 1, 2, 3, 0x7f, 0x80, 0xfe, 0xff};
    switch (Below(4)) {
      case 0:
        return kBounds[Below(std::size(kBounds))];
      case 1:
        return old + 2;  // raises the value of a one-byte varint by 1: the low bit is its length
      case 2:
        return old - 2;
      default:
        return static_cast<uint8_t>(random_());
    }
  }
  // Returns the bytes with one byte changed, inserted or removed, or the bytes of `other`.
  tessera::ir::stablehlo::Bytes MutatedBytes(tessera::ir::stablehlo::Bytes bytes,
                                             tessera::ir::stablehlo::Bytes other) {
    std::string out(bytes.begin(), bytes.end());
    const uint64_t at = Below(out.size());
    const uint64_t kind = Below(8);
    if (kind == 0) {
      out.assign(other.begin(), other.end());
    } else if (kind == 1) {
      out.insert(at, 1, static_cast<char>(random_()));
    } else if (kind == 2 && !out.empty()) {
      out.erase(at, 1);
    } else if (!out.empty()) {
      out[at] = static_cast<char>(MutatedByte(static_cast<uint8_t>(out[at])));
    }
    return Keep(std::move(out));
  }
  // Makes one change: the bytes of an attribute, a type or properties, the type of a value, an
  // operand, the name of an op, or the dictionary that it carries. Attributes and properties are
  // changed most often.
  void Change() {
    using namespace tessera::ir::stablehlo;
    RawOp* const op = PickFrom(&code_.ops);
    const auto attr_index = static_cast<uint32_t>(Below(code_.attrs.size()));
    switch (Below(10)) {
      case 0:
      case 1:
      case 2:
        if (Entry* const entry = PickFrom(&code_.attrs))
          entry->bytes = MutatedBytes(entry->bytes, code_.attrs[attr_index].bytes);
        break;
      case 3:
        if (Entry* const entry = PickFrom(&code_.types))
          entry->bytes = MutatedBytes(entry->bytes, PickFrom(&code_.types)->bytes);
        break;
      case 4:
      case 5:
        if (Bytes* const bytes = PickFrom(&code_.properties))
          *bytes = MutatedBytes(*bytes, *PickFrom(&code_.properties));
        break;
      case 6:
        if (uint32_t* const type = PickFrom(&code_.value_types))
          *type = static_cast<uint32_t>(Below(code_.types.size()));
        break;
      case 7:
        if (uint32_t* const value = PickFrom(&code_.operands)) *value = *PickFrom(&code_.operands);
        break;
      case 8:
        op->name = code_.ops[Below(code_.ops.size())].name;
        break;
      default:
        if (op->attrs != kNone || Below(4) == 0) op->attrs = attr_index;
        break;
    }
  }

  tessera::ir::stablehlo::Bytecode code_;
  std::mt19937 random_;
  std::deque<std::string> kept_;
};

}  // namespace

extern "C" __attribute__((weak)) size_t LLVMFuzzerMutate(uint8_t* data, size_t size,
                                                         size_t max_size);
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  using namespace tessera::ir::stablehlo;
  if (seed % 8 != 0) {
    // The artifact that was read borrows its bytes, and `data` is overwritten.
    const std::vector<uint8_t> bytes(data, data + size);
    const absl::StatusOr<Bytecode> code = ReadBytecode({bytes.data(), bytes.size()});
    if (code.ok() && code->version >= 5 && !code->ops.empty()) {
      const std::string mutated = Mutator(*code, seed).MutatedArtifact();
      if (mutated.size() <= max_size) {
        std::memcpy(data, mutated.data(), mutated.size());
        return mutated.size();
      }
    }
  }
  return LLVMFuzzerMutate == nullptr ? size : LLVMFuzzerMutate(data, size, max_size);
}

// Runs one input through all readers: inspection, import, import for a host, export, and the round
// trip of the container. The verifier must accept an imported program, unless the program exceeds
// the verifier's limits.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera::ir;
  using namespace tessera::ir::stablehlo;
  const absl::StatusOr<Artifact> artifact = ReadArtifact({data, size});
  if (!artifact.ok()) return 0;
  Inspect(*artifact);
  if (const absl::StatusOr<Program> program = ImportProgram(*artifact); program.ok()) {
    const absl::Status verified = Verify(*program);
    TESSERA_CHECK(verified.ok() || verified.code() == absl::StatusCode::kResourceExhausted)
        << verified;
    if (verified.ok()) CheckExport(*program);
  }
  if (const absl::StatusOr<HostProgram> program = ImportForHost(*artifact); program.ok()) {
    size_t num_operands = 0, num_results = 0;
    for (const HostCall& call : program->calls) {
      num_operands += call.num_operands;
      num_results += call.results.size();
    }
    TESSERA_CHECK(num_operands <= program->program.entry->results.size());
    TESSERA_CHECK(num_results <= static_cast<size_t>(program->program.entry->num_params));
  }
  if (artifact->code.version < 5) return 0;
  const std::string written = WriteBytecode(artifact->code);
  const Bytes bytes(reinterpret_cast<const uint8_t*>(written.data()), written.size());
  const absl::StatusOr<Artifact> again = ReadArtifact(bytes);
  TESSERA_CHECK(again.ok()) << again.status();
  TESSERA_CHECK_EQ(WriteBytecode(again->code), written);
  return 0;
}
