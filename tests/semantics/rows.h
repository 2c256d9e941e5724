// The semantics of JAX, case by case. Each case is a row: a program in Python that uses JAX and, if
// the SDK can express it, its twin, the same program in C++ with the SDK.
// scripts/record_semantics.py runs the Python programs in an installed JAX and writes
// recorded.jsonl. semantics_test.cc runs the twins and compares their results with recorded.jsonl.
//
// The Python program sets `out`, a tree of arrays, types, strings and numbers, or raises an error.
// It can use the names that scripts/record_semantics.py defines, such as the meshes `auto(x=2)` and
// `explicit(x=2)`. The twin returns a tree with the same leaves in the same order, or throws an
// Error.
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

// A leaf of a result. If the leaf is an array, `array` is valid. Otherwise `text` holds it, such as
// 4, true, None, or the text of a type: "f32[4]{V:i}".
struct Leaf {
  Array array;
  std::string text;
};

struct Row {
  std::string name = {};                            // unique name: "shard_map/repeated_psum"
  std::string python = {};                          // the program in Python
  bool fails = false;                               // whether it raises an error
  std::string phrase = {};                          // phrase in the error's message; may be empty
  std::string phrase2 = {};                         // another phrase in the message; may be empty
  std::function<std::vector<Leaf>()> program = {};  // the twin; empty if the SDK cannot express it
  double ulps = 0;                                  // allowed distance from JAX's numbers
  bool placed = true;                               // whether to compare the shardings of results
  bool does_not_compile = false;                    // whether the compiler rejects the twin
  std::vector<std::string> acceptance = {};  // acceptance programs to which the row belongs: "A03"
  // Says where the installed JAX gives another result than expected, or than the SDK should give.
  std::string note = {};
};

class Table {
 public:
  explicit Table(std::vector<Row>* rows) : rows_(rows) {}

  // Adds a row whose Python program sets `out`.
  Table& Gives(std::string name, std::string python) {
    rows_->push_back({.name = std::move(name), .python = std::move(python)});
    return *this;
  }
  // Adds a row whose Python program raises an error. The error's message contains `phrase` and, if
  // given, `phrase2`.
  Table& Fails(std::string name, std::string phrase, std::string python, std::string phrase2 = {}) {
    rows_->push_back({.name = std::move(name),
                      .python = std::move(python),
                      .fails = true,
                      .phrase = std::move(phrase),
                      .phrase2 = std::move(phrase2)});
    return *this;
  }
  // The following functions change the row that was added last. Twin() sets its twin.
  template <class F>
  Table& Twin(F f) {
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

// ---- Helpers for the twins. Each has its equivalent in the Python programs. ---------------------

// Written auto(x=2) and explicit(x=2) in Python: a mesh of Auto or of Explicit axes.
using AxisSizes = std::vector<std::pair<std::string, int64_t>>;
Mesh Auto(const AxisSizes& axes);
Mesh Explicit(const AxisSizes& axes);
// Written ar(4, 3) in Python: an array with the elements 0, 1, 2, ... as f32.
Array Ar(Dims shape);
Array Ints(Dims shape);  // ints(4, 3): the same numbers as s32
// Written as a plain number in Python, of which JAX makes an array with a weak type.
template <class T>
Array Weak(T number) {
  return jit([](Array x) { return x; })(number);
}
// Written check_vma=False and axis_names={...} in Python.
inline const ShardMapOptions kUnchecked = {.axis_names = {}, .check_vma = false};
inline ShardMapOptions Only(std::vector<std::string> axis_names) {
  return {.axis_names = std::move(axis_names), .check_vma = true};
}
// Written typeof(x) and out_sharding=spec in Python.
inline std::string TypeOf(const Array& x) { return x.type().ToString(); }
inline lax::DotOptions To(const PartitionSpec* spec) {
  lax::DotOptions options;
  options.out_sharding = spec;
  return options;
}
// Written see(x) in Python: records the types of the arrays that a body sees while it is traced.
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
