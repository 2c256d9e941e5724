// Formulas on Values. Their ops are emitted in the order in which they are written, whatever the
// order in which a compiler evaluates operands, so that a program is the same from every build.
//
// A Formula is emitted once, when its value is first asked for: those that it is made of come
// before it, from left to right. A number takes the type of the operand beside it. Belongs to the
// thread of the builder; functions throw StatusException.
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

  // Requires: not a number.
  Value value() const;
  Value operator*() const { return value(); }
  bool is_number() const { return !node_->value && node_->emit == nullptr; }
  // A constant of the type of `like` for a number, else the value.
  Value Beside(Value like) const;

 private:
  struct Node {
    Value value;
    std::function<Value()> emit;
    double number;
  };
  std::shared_ptr<Node> node_;
};

// An op of one and of two operands as functions on formulas.
Formula Apply(Value (*op)(Value), Formula x);
Formula Apply(Value (*op)(Value, Value), Formula x, Formula y);
Formula CompareFormulas(Formula x, Formula y, const char* direction);

inline Formula operator-(Formula x) { return Apply(Neg, std::move(x)); }
inline Formula operator+(Formula x, Formula y) { return Apply(Add, std::move(x), std::move(y)); }
inline Formula operator-(Formula x, Formula y) { return Apply(Sub, std::move(x), std::move(y)); }
inline Formula operator*(Formula x, Formula y) { return Apply(Mul, std::move(x), std::move(y)); }
inline Formula operator/(Formula x, Formula y) { return Apply(Div, std::move(x), std::move(y)); }
// Of integers the remainder; of bools and integers the bits.
inline Formula operator%(Formula x, Formula y) { return Apply(Rem, std::move(x), std::move(y)); }
inline Formula operator&(Formula x, Formula y) { return Apply(And, std::move(x), std::move(y)); }
inline Formula operator|(Formula x, Formula y) { return Apply(Or, std::move(x), std::move(y)); }
inline Formula operator^(Formula x, Formula y) { return Apply(Xor, std::move(x), std::move(y)); }
inline Formula operator~(Formula x) { return Apply(Not, std::move(x)); }
inline Formula operator<<(Formula x, Formula y) {
  return Apply(ShiftLeft, std::move(x), std::move(y));
}
// Of integers without sign.
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

// One of the branches is not a number.
Formula Where(Formula condition, Formula on_true, Formula on_false);
// A number as an array of the type of `like`.
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

// Whether some element of an array of bools holds.
Value AnyOf(Value bools);
// The carry after `step` for as long as `holds`, a bool of any shape, does for some element. Both
// take the carry and then `consts`. The step gives a carry of the same types.
std::vector<Value> Loop(std::vector<Value> carry, std::vector<Value> consts,
                        const std::function<Value(Values carry, Values consts)>& holds,
                        const std::function<std::vector<Value>(Values carry, Values consts)>& step);

struct TangentOptions {
  int num_consts = 0;  // the first operands, which have no derivatives
  // So many derivatives in turn follow the rule; those after them are the derivatives of f.
  int rules = 1;
  // The tangent is a sum with a term for each operand. Those of operands by which nothing is
  // differentiated are left out: they may be infinite, or have no derivatives.
  bool by_operand = false;
};
// f(operands), whose derivative is `tangent`(operands, result of f, tangents): the tangents of the
// operands of inexact dtypes but for the consts.
using TangentFn = std::function<Value(Values operands, Value result, Values tangents)>;
Value WithTangent(std::vector<Value> operands, const std::function<Value(Values operands)>& f,
                  const TangentFn& tangent, const TangentOptions& options = {});
// f(operands) without derivatives; `name` is what an error calls it.
Value WithoutTangent(std::vector<Value> operands, const std::function<Value(Values operands)>& f,
                     const char* name);

}  // namespace tessera::ir
