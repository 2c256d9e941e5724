// A contraction on its way to a library: which values its operands are, and how they lie.
//
// Used by Fuse. Value semantics; thread-compatible.
#pragma once
#include <optional>
#include <vector>

#include "worker/program/lower.h"

namespace tessera::worker::program {

class Product {
 public:
  Product(const ContractItem& item, const std::vector<int>& operands);

  // The number of an operand that no strides express, if there is one: it is to be copied to a
  // value of its own.
  std::optional<int> Unseen() const;
  int value(int operand) const { return operands_[operand].value; }
  // What the copy is of the value; from now on the operand is `packed`.
  View Pack(int operand, int packed);

  // Reads `source` in place of `v`, which is `view` of it, if a library can. Whether it does.
  bool SeeThrough(int v, int source, const View& view);

  ContractStep Step(const std::vector<Value>& values, int result) const;

 private:
  struct Operand {
    int value = 0;
    ir::Dims box;
    int num_batch = 0, num_rows = 0;
    ValueAccess access;
    std::optional<Matrices> matrices;

    std::optional<Matrices> See(const ValueAccess& a) const {
      return SeeAsMatrices(box, a.strides, num_batch, num_rows);
    }
  };

  Operand operands_[2];
};

}  // namespace tessera::worker::program
