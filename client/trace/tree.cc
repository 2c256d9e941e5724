// The parts of tree.h that are no templates. A Visitor makes TreeNodes from the parts of a tree
// that Walk reports. Transforms compare TreeNodes, and errors name the paths of their leaves.
#include "client/tree.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

void AppendLeafPaths(const TreeNode& n, const std::string& path, std::vector<std::string>* out) {
  if (n.kind == TreeNode::kLeaf) out->push_back(path);
  for (const TreeNode& c : n.children) AppendLeafPaths(c, path + c.label, out);
}

// Turns leaves that are holes into nodes without children. `next` is the index of the next leaf.
void ReplaceHoles(const std::vector<Array>& leaves, size_t* next, TreeNode* n) {
  if (n->kind == TreeNode::kLeaf && !leaves[(*next)++].valid()) {
    n->kind = TreeNode::kNode;
    n->text = "none";
  }
  for (TreeNode& c : n->children) ReplaceHoles(leaves, next, &c);
}

std::string Describe(const TreeNode& n) {
  switch (n.kind) {
    case TreeNode::kLeaf:
      return "an array";
    case TreeNode::kStatic:
      return absl::StrCat("the static value ", n.text);
    default:
      return absl::StrCat("a ", n.text, " of ", n.children.size());
  }
}

}  // namespace

TreeNode::TreeNode() = default;
TreeNode::TreeNode(const TreeNode&) = default;
TreeNode::TreeNode(TreeNode&&) noexcept = default;
TreeNode& TreeNode::operator=(const TreeNode&) = default;
TreeNode& TreeNode::operator=(TreeNode&&) noexcept = default;
TreeNode::~TreeNode() = default;
bool TreeNode::operator==(const TreeNode& other) const {
  return kind == other.kind && label == other.label && text == other.text &&
         children == other.children;
}

int TreeNode::num_leaves() const {
  int n = kind == kLeaf ? 1 : 0;
  for (const TreeNode& c : children) n += c.num_leaves();
  return n;
}

std::vector<std::string> LeafPaths(const TreeNode& tree, std::string_view root) {
  std::vector<std::string> out;
  AppendLeafPaths(tree, std::string(root), &out);
  return out;
}

std::string StructureDifference(const TreeNode& want, const TreeNode& got, std::string_view root) {
  if (want.kind != got.kind || want.text != got.text ||
      want.children.size() != got.children.size()) {
    return absl::StrCat("pytree structure error at ", std::string(root), ": expected ",
                        Describe(want), ", got ", Describe(got));
  }
  for (size_t i = 0; i < want.children.size(); ++i) {
    const TreeNode &w = want.children[i], &g = got.children[i];
    if (w.label != g.label) {
      return absl::StrCat("pytree structure error at ", std::string(root), ": expected the child ",
                          w.label, ", got ", g.label);
    }
    std::string diff = StructureDifference(w, g, std::string(root) + w.label);
    if (!diff.empty()) return diff;
  }
  return "";
}

namespace tree {

std::string TextOf(std::string_view text) { return "\"" + std::string(text) + "\""; }
std::string TextOf(bool value) { return value ? "true" : "false"; }
std::string TextOf(double value) {
  char buffer[40];
  std::snprintf(buffer, sizeof(buffer), "%.17g", value);
  return buffer;
}
std::string TextOf(long long value) { return std::to_string(value); }
std::string TextOf(unsigned long long value) { return std::to_string(value); }
std::string TextOf(const void* value) {
  char buffer[40];
  std::snprintf(buffer, sizeof(buffer), "%p", value);
  return buffer;
}

void Visitor::Leaf(Array& a) const {
  if (f_) {
    (*f_)(a);
    return;
  }
  node_->kind = TreeNode::kLeaf;
  leaves_->push_back(a);
}
void Visitor::Static(std::string text) const {
  node_->kind = TreeNode::kStatic;
  node_->text = std::move(text);
}
void Visitor::Enter(std::string_view kind) const {
  if (node_) node_->text = kind;
}
Visitor Visitor::Child(std::string label) const {
  TreeNode& child = node_->children.emplace_back();
  child.label = std::move(label);
  return Visitor(&child, leaves_);
}
Visitor Visitor::Element(size_t i) const {
  return node_ ? Child("[" + std::to_string(i) + "]") : *this;
}
Visitor Visitor::Value(std::string_view key) const {
  return node_ ? Child("['" + std::string(key) + "']") : *this;
}
Visitor Visitor::Field(const char* name) const {
  return node_ ? Child(std::string(".") + name) : *this;
}

}  // namespace tree

template struct Prefix<int>;
template struct Prefix<PartitionSpec>;

namespace internal {

template std::vector<std::optional<int>> BroadcastPrefix(const Prefix<int>&, const TreeNode&,
                                                         std::string_view, const Site&);
template std::vector<std::optional<PartitionSpec>> BroadcastPrefix(const Prefix<PartitionSpec>&,
                                                                   const TreeNode&,
                                                                   std::string_view, const Site&);

void LeafReplacer::operator()(Array& a) const {
  if (holes || a.valid()) a = from.at(next++);
}

void CheckMapped(const TreeNode& first, absl::Span<const Flat> others) {
  for (const Flat& other : others) {
    CheckSameStructure(first, other.tree, "tree", ErrorKind::kValueError, "tree_map: ", Site{});
  }
}

Flat WithoutHoles(Flat flat) {
  const auto is_hole = [](const Array& a) { return !a.valid(); };
  const bool has_holes = std::any_of(flat.leaves.begin(), flat.leaves.end(), is_hole);
  if (!has_holes) return flat;
  size_t next = 0;
  ReplaceHoles(flat.leaves, &next, &flat.tree);
  std::erase_if(flat.leaves, is_hole);
  return flat;
}

void CheckSameStructure(const TreeNode& want, const TreeNode& got, std::string_view root,
                        ErrorKind kind, const std::string& message, const Site& site) {
  const std::string difference = StructureDifference(want, got, root);
  if (!difference.empty()) ThrowError(kind, site, message, difference);
}

std::string PlainLabel(std::string_view label) {
  if (label.substr(0, 2) == "['") return std::string(label.substr(2, label.size() - 4));
  if (label.substr(0, 1) == ".") return std::string(label.substr(1));
  return std::string(label);
}

void ThrowPrefix(std::string_view what, const std::string& path, const std::string& problem,
                 const Site& site) {
  ThrowError(ErrorKind::kValueError, site, ToAbsl(what), " pytree structure error: at ", path, ", ",
             problem, ". A prefix of the value's tree is expected");
}

}  // namespace internal
}  // namespace tessera
