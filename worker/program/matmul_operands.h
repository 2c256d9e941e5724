// The operands of a contraction that becomes a library's matmul: which values they are, and with
// which strides the library reads them. Only Fuse uses it. Value semantics; thread-compatible.
#pragma once
#include <optional>
#include <vector>

#include "worker/program/items.h"

namespace tessera::worker::program {

class MatmulOperands {
 public:
  MatmulOperands(const ContractItem& item, const std::vector<int>& operands);

  // Returns the first operand whose layout cannot be expressed by three strides, or nullopt if
  // there is no such operand. The operand must be packed, that is, copied to a dense value.
  std::optional<int> OperandToPack() const;
  int value(int operand) const { return operands_[operand].value; }
  // Makes the value `packed`, which the caller has added, operand number `operand`. Returns the
  // view of the old operand that the caller must copy to `packed`.
  View Pack(int operand, int packed);

  // Makes the matmul read `source` instead of `v`, which is a `view` of `source`. Returns false if
  // three strides cannot express that.
  bool FuseView(int v, int source, const View& view);

  // Returns the step that writes the product to value `result`. Requires that no operand needs
  // packing.
  MatmulStep MakeStep(const std::vector<Value>& values, int result) const;

 private:
  struct Operand {
    int value = 0;
    ir::Dims box;
    int num_batch = 0, num_rows = 0;
    ValueAccess access;
    std::optional<Matrices> matrices;

    std::optional<Matrices> MatricesOf(const ValueAccess& a) const {
      return AsMatrices(box, a.strides, num_batch, num_rows);
    }
  };

  Operand operands_[2];
  ir::Precision precision_;
};

}  // namespace tessera::worker::program
