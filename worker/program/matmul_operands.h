// The operands of a contraction that becomes a library's matmul: which values they are, and with
// which strides the library reads them. Used by Fuse. Value semantics; thread-compatible.
#pragma once
#include <optional>
#include <vector>

#include "worker/program/lower.h"

namespace tessera::worker::program {

class MatmulOperands {
 public:
  MatmulOperands(const ContractItem& item, const std::vector<int>& operands);

  // The first operand whose layout no three strides express, if there is one. It must be packed:
  // copied to a dense value of its own.
  std::optional<int> NeedsPacking() const;
  int value(int operand) const { return operands_[operand].value; }
  // Makes value `packed` the operand, and returns which view of the present one it is a copy of.
  View Pack(int operand, int packed);

  // Reads `source` instead of `v`, which is `view` of it, if strides express that. Returns whether
  // it could.
  bool FuseView(int v, int source, const View& view);

  MatmulStep Step(const std::vector<Value>& values, int result) const;

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
};

}  // namespace tessera::worker::program
