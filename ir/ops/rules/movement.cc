// The types, checks and pieces of index maps that the ops which move elements share:
// data_movement.cc, concatenate_pad.cc, indexing.cc, gather.cc and sliding_window.cc.
#include "ir/ops/rules/movement.h"

namespace tessera::ir::ops {

Type WithShape(const Type& x, Dims shape) {
  Type t = MakeType(x.dtype, std::move(shape));
  t.weak = x.weak;
  return t;
}

absl::Status CheckLength(const InferContext& c, std::string_view what, size_t length, int rank) {
  if (length == static_cast<size_t>(rank)) return absl::OkStatus();
  return ValueError(c, ToAbsl(what), " has ", length, " entries; expected one per dim of ",
                    c.in[0].ToString());
}

IndexPiece ContiguousPiece(int source, const Dims& shape) {
  IndexPiece piece;
  piece.source = source;
  piece.start.assign(shape.size(), 0);
  piece.step.assign(shape.size(), 1);
  piece.shape = shape;
  piece.strides = StridesOf(shape);
  return piece;
}

}  // namespace tessera::ir::ops
