// V wraps an LLVM value (a float, an int, a bool, or a vector of them) so that the operators of C++
// emit code. Ints are signed in comparisons and right shifts. Constants are copied to every lane.
// Thread-compatible.
#pragma once
#include <cstdint>

#include "llvm/IR/Constants.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Intrinsics.h"

namespace tessera::worker::codegen {

class V {
 public:
  V(llvm::IRBuilderBase& b, llvm::Value* v) : b_(&b), v_(v) {}

  llvm::Value* get() const { return v_; }
  llvm::Type* type() const { return v_->getType(); }
  llvm::IRBuilderBase& b() const { return *b_; }
  bool is_float() const { return type()->isFPOrFPVectorTy(); }
  unsigned bits() const { return type()->getScalarSizeInBits(); }
  V With(llvm::Value* v) const { return V(*b_, v); }

  // Of and OfInt return a constant of this value's type.
  V Of(double c) const { return With(llvm::ConstantFP::get(type(), c)); }
  V OfInt(int64_t c) const {
    return With(llvm::ConstantInt::get(type(), static_cast<uint64_t>(c), /*IsSigned=*/true));
  }
  // Returns this value's type with another element type.
  llvm::Type* TypeOf(llvm::Type* element) const {
    return type()->isVectorTy()
               ? llvm::VectorType::get(element,
                                       llvm::cast<llvm::VectorType>(type())->getElementCount())
               : element;
  }
  llvm::Type* IntType() const { return TypeOf(b_->getIntNTy(bits())); }

  // Bits, AsF32, AsF64 and AsFloat bitcast between a float and an int of its width.
  V Bits() const { return With(b_->CreateBitCast(v_, IntType())); }
  V AsF32() const { return With(b_->CreateBitCast(v_, TypeOf(b_->getFloatTy()))); }
  V AsF64() const { return With(b_->CreateBitCast(v_, TypeOf(b_->getDoubleTy()))); }
  V AsFloat() const { return bits() == 32 ? AsF32() : AsF64(); }
  V ToF32() const { return With(b_->CreateSIToFP(v_, TypeOf(b_->getFloatTy()))); }
  V ToF64() const { return With(b_->CreateSIToFP(v_, TypeOf(b_->getDoubleTy()))); }

  friend V operator+(V x, V y) {
    return x.With(x.is_float() ? x.b_->CreateFAdd(x.v_, y.v_) : x.b_->CreateAdd(x.v_, y.v_));
  }
  friend V operator-(V x, V y) {
    return x.With(x.is_float() ? x.b_->CreateFSub(x.v_, y.v_) : x.b_->CreateSub(x.v_, y.v_));
  }
  friend V operator*(V x, V y) {
    return x.With(x.is_float() ? x.b_->CreateFMul(x.v_, y.v_) : x.b_->CreateMul(x.v_, y.v_));
  }
  friend V operator/(V x, V y) { return x.With(x.b_->CreateFDiv(x.v_, y.v_)); }
  friend V operator-(V x) {
    return x.With(x.is_float() ? x.b_->CreateFNeg(x.v_) : x.b_->CreateNeg(x.v_));
  }
  friend V operator&(V x, V y) { return x.With(x.b_->CreateAnd(x.v_, y.v_)); }
  friend V operator|(V x, V y) { return x.With(x.b_->CreateOr(x.v_, y.v_)); }
  friend V operator^(V x, V y) { return x.With(x.b_->CreateXor(x.v_, y.v_)); }
  friend V operator~(V x) { return x.With(x.b_->CreateNot(x.v_)); }
  friend V operator<<(V x, int by) { return x.With(x.b_->CreateShl(x.v_, x.OfInt(by).v_)); }
  friend V operator>>(V x, int by) { return x.With(x.b_->CreateAShr(x.v_, x.OfInt(by).v_)); }
  V ShiftRight(int by) const { return With(b_->CreateLShr(v_, OfInt(by).v_)); }

  // Ordered comparisons, which are false for a NaN. Ne is unordered, so that it is true for a NaN.
  friend V operator<(V x, V y) {
    return x.Compare(llvm::CmpInst::FCMP_OLT, llvm::CmpInst::ICMP_SLT, y);
  }
  friend V operator<=(V x, V y) {
    return x.Compare(llvm::CmpInst::FCMP_OLE, llvm::CmpInst::ICMP_SLE, y);
  }
  friend V operator>(V x, V y) {
    return x.Compare(llvm::CmpInst::FCMP_OGT, llvm::CmpInst::ICMP_SGT, y);
  }
  friend V operator>=(V x, V y) {
    return x.Compare(llvm::CmpInst::FCMP_OGE, llvm::CmpInst::ICMP_SGE, y);
  }
  friend V Eq(V x, V y) { return x.Compare(llvm::CmpInst::FCMP_OEQ, llvm::CmpInst::ICMP_EQ, y); }
  friend V Ne(V x, V y) { return x.Compare(llvm::CmpInst::FCMP_UNE, llvm::CmpInst::ICMP_NE, y); }
  friend V IsNan(V x) { return x.With(x.b_->CreateFCmpUNO(x.v_, x.v_)); }

  friend V Select(V pred, V yes, V no) {
    return yes.With(yes.b_->CreateSelect(pred.v_, yes.v_, no.v_));
  }
  friend V Fma(V x, V y, V z) {
    return x.With(x.b_->CreateIntrinsic(llvm::Intrinsic::fma, {x.type()}, {x.v_, y.v_, z.v_}));
  }
  friend V Abs(V x) { return x.Unary(llvm::Intrinsic::fabs); }
  friend V Sqrt(V x) { return x.Unary(llvm::Intrinsic::sqrt); }
  friend V CopySign(V x, V sign) {
    return x.With(x.b_->CreateIntrinsic(llvm::Intrinsic::copysign, {x.type()}, {x.v_, sign.v_}));
  }
  V Unary(llvm::Intrinsic::ID id) const { return With(b_->CreateIntrinsic(id, {type()}, {v_})); }

  // The operators with a constant on one side.
  friend V operator+(V x, double c) { return x + x.Of(c); }
  friend V operator-(V x, double c) { return x - x.Of(c); }
  friend V operator-(double c, V x) { return x.Of(c) - x; }
  friend V operator*(V x, double c) { return x * x.Of(c); }
  friend V operator/(double c, V x) { return x.Of(c) / x; }
  friend V operator<(V x, double c) { return x < x.Of(c); }
  friend V operator>(V x, double c) { return x > x.Of(c); }
  friend V operator>=(V x, double c) { return x >= x.Of(c); }
  friend V operator<=(V x, double c) { return x <= x.Of(c); }

 private:
  V Compare(llvm::CmpInst::Predicate of_floats, llvm::CmpInst::Predicate of_ints, V y) const {
    return With(is_float() ? b_->CreateFCmp(of_floats, v_, y.v_)
                           : b_->CreateICmp(of_ints, v_, y.v_));
  }

  llvm::IRBuilderBase* b_;
  llvm::Value* v_;
};

// Returns c[0] + c[1] x + c[2] x^2 + ..., computed by Horner's rule with fused multiply-adds.
template <size_t kN>
V Polynomial(V x, const double (&c)[kN]) {
  V p = x.Of(c[kN - 1]);
  for (size_t i = kN - 1; i-- > 0;) p = Fma(p, x, x.Of(c[i]));
  return p;
}

}  // namespace tessera::worker::codegen
