// Collects the rows of all files of this folder for semantics_test.cc and dump.cc. A row is a
// program in Python and its twin, the same program in C++ (rows.h). The file also implements the
// helpers with which the twins are written.
#include "tests/semantics/rows.h"

namespace tessera::semantics {
namespace {

Mesh MeshOf(const AxisSizes& axes, AxisType type) {
  std::vector<int64_t> shape;
  std::vector<std::string> names;
  for (const auto& [name, size] : axes) {
    names.push_back(name);
    shape.push_back(size);
  }
  return make_mesh(shape, names, std::vector<AxisType>(axes.size(), type));
}

int64_t NumElements(const Dims& shape) {
  int64_t n = 1;
  for (const int64_t d : shape) n *= d;
  return n;
}

}  // namespace

const std::vector<Row>& Rows() {
  static const std::vector<Row> kRows = [] {
    std::vector<Row> rows;
    Table t(&rows);
    AddBoundary(t);
    AddVarying(t);
    AddCollectives(t);
    AddBodies(t);
    AddShardMapAutodiff(t);
    AddExplicitTypes(t);
    AddExplicitOps(t);
    AddExplicitIndexing(t);
    AddPmap(t);
    AddFilters(t);
    AddAutodiff(t);
    AddCustomRules(t);
    AddVmap(t);
    AddControlFlow(t);
    AddJit(t);
    AddNestings(t);
    AddDtypes(t);
    return rows;
  }();
  return kRows;
}

void Table::Append(const TreeNode& node, const std::vector<Array>& arrays, size_t* next,
                   std::vector<Leaf>* out) {
  if (node.kind == TreeNode::kLeaf) {
    const Array& array = arrays.at((*next)++);
    out->push_back({.array = array, .text = array.valid() ? "" : "None"});
  } else if (node.kind == TreeNode::kStatic) {
    static const std::string kNone = flatten(None).tree.text;
    std::string text = node.text == kNone ? "None" : node.text;
    if (text.size() > 1 && text.front() == '"') text = text.substr(1, text.size() - 2);
    out->push_back({.array = {}, .text = std::move(text)});
  }
  for (const TreeNode& child : node.children) Append(child, arrays, next, out);
}

Mesh Auto(const AxisSizes& axes) { return MeshOf(axes, AxisType::kAuto); }
Mesh Explicit(const AxisSizes& axes) { return MeshOf(axes, AxisType::kExplicit); }

Array Ar(Dims shape) { return arange(NumElements(shape), kF32).reshape(std::move(shape)); }
Array Ints(Dims shape) { return arange(NumElements(shape), kS32).reshape(std::move(shape)); }

}  // namespace tessera::semantics
