// What JAX says, case by case: a program in JAX, and the same program written with the SDK where
// the SDK can say it. scripts/record_semantics.py runs the first in an installed JAX and writes
// recorded.jsonl; semantics_test.cc runs the second and compares.
//
// A program in JAX sets `out`, a tree of arrays, types, strings and numbers, or raises. It sees
// what scripts/record_semantics.py defines, `auto(x=2)` and `explicit(x=2)` for meshes among them.
// Its twin returns a tree with the same leaves in the same order.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "client/tessera.h"

namespace tessera::semantics {

// Of an array, or of what is static in a tree, as text: 4, true, "f32[4]{V:i}", None.
struct Leaf {
  Array array;
  std::string text;
};

struct Row {
  std::string name = {};                            // "shard_map/repeated_psum"
  std::string python = {};                          // the program in JAX
  bool fails = false;                               // it raises an error, whose message has
  std::string phrase = {};                          // this, if anything
  std::string phrase2 = {};                         // and this
  std::function<std::vector<Leaf>()> program = {};  // empty: the SDK cannot say it yet
  double ulps = 0;                                  // how far a number may be from JAX's
  bool placed = true;                               // whether results must be sharded as JAX's are
  bool does_not_compile = false;  // the twin is what the types of C++ refuse, or a static_assert
  std::vector<std::string> acceptance = {};  // of which acceptance programs it is: "A03"
  // Where the installed JAX says other than one would expect, or than the SDK is to say.
  std::string note = {};
};

class Table {
 public:
  explicit Table(std::vector<Row>* rows) : rows_(rows) {}

  // The program that sets `out`.
  Table& Gives(std::string name, std::string python) {
    rows_->push_back({.name = std::move(name), .python = std::move(python)});
    return *this;
  }
  // The program that raises an error with this phrase, and perhaps another, in its message.
  Table& Fails(std::string name, std::string phrase, std::string python, std::string phrase2 = {}) {
    rows_->push_back({.name = std::move(name),
                      .python = std::move(python),
                      .fails = true,
                      .phrase = std::move(phrase),
                      .phrase2 = std::move(phrase2)});
    return *this;
  }
  // The following are about the row before.
  template <class F>
  Table& Is(F f) {
    rows_->back().program = [f = std::move(f)] {
      if constexpr (std::is_void_v<decltype(f())>) {
        f();
        return std::vector<Leaf>{};
      } else {
        return Leaves(f());
      }
    };
    return *this;
  }
  Table& Within(double ulps) {
    rows_->back().ulps = ulps;
    return *this;
  }
  Table& Anywhere() {
    rows_->back().placed = false;
    return *this;
  }
  Table& DoesNotCompile() {
    rows_->back().does_not_compile = true;
    return *this;
  }
  Table& For(std::string program) {
    rows_->back().acceptance.push_back(std::move(program));
    return *this;
  }
  Table& Note(std::string note) {
    rows_->back().note = std::move(note);
    return *this;
  }

 private:
  template <class T>
  static std::vector<Leaf> Leaves(const T& tree) {
    Flat flat = flatten(tree);
    std::vector<Leaf> out;
    size_t next = 0;
    Append(flat.tree, flat.leaves, &next, &out);
    return out;
  }
  static void Append(const TreeNode& node, const std::vector<Array>& arrays, size_t* next,
                     std::vector<Leaf>* out);
  std::vector<Row>* rows_;
};

void AddBoundary(Table& t);
void AddVarying(Table& t);
void AddCollectives(Table& t);
void AddBodies(Table& t);
void AddShardMapAutodiff(Table& t);
void AddExplicitTypes(Table& t);
void AddExplicitOps(Table& t);
void AddExplicitIndexing(Table& t);
void AddPmap(Table& t);
void AddFilters(Table& t);
void AddAutodiff(Table& t);
void AddCustomRules(Table& t);
void AddVmap(Table& t);
void AddControlFlow(Table& t);
void AddJit(Table& t);
void AddNestings(Table& t);
void AddDtypes(Table& t);
void AddAcceptance(Table& t);

const std::vector<Row>& Rows();

// ---- What the twins share with the programs. ----------------------------------------------------

// auto(x=2) and explicit(x=2) of the programs.
using AxisSizes = std::vector<std::pair<std::string, int64_t>>;
Mesh Auto(const AxisSizes& axes);
Mesh Explicit(const AxisSizes& axes);
// ar(4, 3): 0, 1, 2... as f32.
Array Ar(Dims shape);
Array Ints(Dims shape);  // as s32
// What a number is in a program: an array of a weak type.
template <class T>
Array Weak(T number) {
  return jit([](Array x) { return x; })(number);
}
// check_vma=False, and axis_names.
inline const ShardMapOptions kUnchecked = {.axis_names = {}, .check_vma = false};
inline ShardMapOptions Only(std::vector<std::string> axis_names) {
  return {.axis_names = std::move(axis_names), .check_vma = true};
}
// typeof(x), and out_sharding.
inline std::string TypeOf(const Array& x) { return x.type().ToString(); }
inline lax::DotOptions To(const PartitionSpec* spec) {
  lax::DotOptions options;
  options.out_sharding = spec;
  return options;
}
// see(x): the types that a body sees, one after another, whatever it runs how often.
class Seen {
 public:
  Array operator()(const Array& x) {
    types_.push_back(x.type().ToString());
    return x;
  }
  const std::vector<std::string>& types() const { return types_; }

 private:
  std::vector<std::string> types_;
};

}  // namespace tessera::semantics
