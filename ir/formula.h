// Formulas on Values. The ops of a formula are emitted in the order in which they are written,
// whatever order a compiler evaluates operands in, so every build produces the same program.
//
// A Formula is emitted once, when its value is first asked for; its operands are emitted before it,
// from left to right. A number takes the type of the operand beside it. A Formula belongs to the
// thread of its builder. The functions throw StatusException.
#pragma once
#include <functional>
#include <memory>
#include <utility>

#include "ir/ops.h"

namespace tessera::ir {

class Formula {
 public:
  // NOLINTBEGIN(google-explicit-constructor): formulas are written with values and numbers
  Formula(Value value) : node_(std::make_shared<Node>(Node{value, nullptr, 0})) {}
  Formula(double number) : node_(std::make_shared<Node>(Node{Value(), nullptr, number})) {}
  // NOLINTEND(google-explicit-constructor)
  explicit Formula(std::function<Value()> emit)
      : node_(std::make_shared<Node>(Node{Value(), std::move(emit), 0})) {}

  // Returns the value, emitting it first if needed. Requires: the formula is not a number.
  Value value() const;
  Value operator*() const { return value(); }
  bool is_number() const { return !node_->value && node_->emit == nullptr; }
  // Returns the formula's value or, if the formula is a number, a constant of the type of `like`.
  Value ValueLike(Value like) const;

 private:
  struct Node {
    Value value;
    std::function<Value()> emit;
    double number;
  };
  std::shared_ptr<Node> node_;
};

// Apply an op of one operand, of two operands, and a comparison, to formulas.
Formula Apply(Value (*op)(Value), Formula x);
Formula Apply(Value (*op)(Value, Value), Formula x, Formula y);
Formula CompareFormulas(Formula x, Formula y, const char* direction);

inline Formula operator-(Formula x) { return Apply(Neg, std::move(x)); }
inline Formula operator+(Formula x, Formula y) { return Apply(Add, std::move(x), std::move(y)); }
inline Formula operator-(Formula x, Formula y) { return Apply(Sub, std::move(x), std::move(y)); }
inline Formula operator*(Formula x, Formula y) { return Apply(Mul, std::move(x), std::move(y)); }
inline Formula operator/(Formula x, Formula y) { return Apply(Div, std::move(x), std::move(y)); }
// The operator % is the remainder of integers. The operators &, |, ^ and ~ are logical on bools and
// bitwise on integers.
inline Formula operator%(Formula x, Formula y) { return Apply(Rem, std::move(x), std::move(y)); }
inline Formula operator&(Formula x, Formula y) { return Apply(And, std::move(x), std::move(y)); }
inline Formula operator|(Formula x, Formula y) { return Apply(Or, std::move(x), std::move(y)); }
inline Formula operator^(Formula x, Formula y) { return Apply(Xor, std::move(x), std::move(y)); }
inline Formula operator~(Formula x) { return Apply(Not, std::move(x)); }
inline Formula operator<<(Formula x, Formula y) {
  return Apply(ShiftLeft, std::move(x), std::move(y));
}
// Shifts to the right as for unsigned integers: the upper bits become 0.
inline Formula operator>>(Formula x, Formula y) {
  return Apply(ShiftRightLogical, std::move(x), std::move(y));
}
inline Formula operator<(Formula x, Formula y) {
  return CompareFormulas(std::move(x), std::move(y), "LT");
}
inline Formula operator<=(Formula x, Formula y) {
  return CompareFormulas(std::move(x), std::move(y), "LE");
}
inline Formula operator>(Formula x, Formula y) {
  return CompareFormulas(std::move(x), std::move(y), "GT");
}
inline Formula operator>=(Formula x, Formula y) {
  return CompareFormulas(std::move(x), std::move(y), "GE");
}
inline Formula operator==(Formula x, Formula y) {
  return CompareFormulas(std::move(x), std::move(y), "EQ");
}
inline Formula operator!=(Formula x, Formula y) {
  return CompareFormulas(std::move(x), std::move(y), "NE");
}

// Selects by `condition`. Requires: at least one of the branches is not a number.
Formula Where(Formula condition, Formula on_true, Formula on_false);
// Returns a number as an array of the type of `like`.
Formula Like(const Formula& like, double number);
inline Formula IsNan(const Formula& x) { return x != x; }

#define TESSERA_FORMULA_UNARY(Symbol) \
  inline Formula Symbol(Formula x) { return Apply(Symbol, std::move(x)); }
#define TESSERA_FORMULA_BINARY(Symbol) \
  inline Formula Symbol(Formula x, Formula y) { return Apply(Symbol, std::move(x), std::move(y)); }
TESSERA_FORMULA_UNARY(Abs)
TESSERA_FORMULA_UNARY(Sign)
TESSERA_FORMULA_UNARY(Exp)
TESSERA_FORMULA_UNARY(Expm1)
TESSERA_FORMULA_UNARY(Log)
TESSERA_FORMULA_UNARY(Log1p)
TESSERA_FORMULA_UNARY(Logistic)
TESSERA_FORMULA_UNARY(Sqrt)
TESSERA_FORMULA_UNARY(Rsqrt)
TESSERA_FORMULA_UNARY(Sin)
TESSERA_FORMULA_UNARY(Cos)
TESSERA_FORMULA_UNARY(Tan)
TESSERA_FORMULA_UNARY(Floor)
TESSERA_FORMULA_UNARY(Ceil)
TESSERA_FORMULA_UNARY(Erf)
TESSERA_FORMULA_UNARY(Erfc)
TESSERA_FORMULA_UNARY(ErfInv)
TESSERA_FORMULA_UNARY(Lgamma)
TESSERA_FORMULA_UNARY(Digamma)
TESSERA_FORMULA_UNARY(Clz)
TESSERA_FORMULA_UNARY(IsFinite)
TESSERA_FORMULA_UNARY(Square)
TESSERA_FORMULA_BINARY(Max)
TESSERA_FORMULA_BINARY(Min)
TESSERA_FORMULA_BINARY(Pow)
TESSERA_FORMULA_BINARY(Nextafter)
#undef TESSERA_FORMULA_UNARY
#undef TESSERA_FORMULA_BINARY

// ---- Loops. -------------------------------------------------------------------------------------

// Returns whether some element of an array of bools is true.
Value AnyOf(Value bools);
// Applies `step` to the carry as long as some element of `holds` is true, and returns the final
// carry. The result of `holds` is an array of bools of any shape. Both functions take the carry and
// then `consts`. The step returns a carry of the same types.
std::vector<Value> Loop(std::vector<Value> carry, std::vector<Value> consts,
                        const std::function<Value(Values carry, Values consts)>& holds,
                        const std::function<std::vector<Value>(Values carry, Values consts)>& step);

struct TangentOptions {
  int num_consts = 0;  // number of leading operands that have no derivatives
  // The number of successive derivatives that follow the rule. After them, the result of f is
  // differentiated by the ops of f.
  int rules = 1;
  // Whether the tangent is a sum with one term for each operand. The terms of operands that are not
  // differentiated are then left out, since they may be infinite or may have no derivatives.
  bool by_operand = false;
};
// Returns f(operands) with the derivative tangent(operands, result of f, tangents). The tangents
// are those of the operands of inexact dtypes, without the consts.
using TangentFn = std::function<Value(Values operands, Value result, Values tangents)>;
Value WithTangent(std::vector<Value> operands, const std::function<Value(Values operands)>& f,
                  const TangentFn& tangent, const TangentOptions& options = {});
// Returns f(operands) without derivatives. Errors call it `name`.
Value WithoutTangent(std::vector<Value> operands, const std::function<Value(Values operands)>& f,
                     const char* name);

}  // namespace tessera::ir
