// Trees: structs, vectors, maps, tuples and pairs with arrays at the leaves.
//
// All other leaves are static: they belong to the structure, are compared by value and are never
// traced. To make a struct of your own a tree, name its fields by the macro TESSERA_TREE, in the
// struct's namespace:
//
//   struct Params { Array w, b; int layers; };
//   TESSERA_TREE(Params, w, b, layers)
//
// A class template has TESSERA_TREE_MEMBERS among its members instead. A std::optional with a value
// is the tree of its value; an empty std::optional is a tree without leaves.
//
// The templates in this file turn each tree into a Flat: a TreeNode, which is the structure, and a
// flat list of arrays. The library behind the templates uses only this form. TreeNode, Flat and
// Prefix are values, so a copy is independent of the original; thread-compatible.
#pragma once
#include <array>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "base/for_each.h"
#include "client/array.h"
#include "client/error.h"
#include "client/mesh.h"

namespace tessera {

// The structure of a tree.
struct TreeNode {
  enum Kind : uint8_t { kLeaf, kStatic, kNode } kind = kNode;
  std::string label;  // path step from the parent: ".w", "[0]", "['key']"
  std::string text;   // name of a node's type ("tuple", "Params"), or value of a static leaf
  std::vector<TreeNode> children;

  TreeNode();
  TreeNode(const TreeNode&);
  TreeNode(TreeNode&&) noexcept;
  TreeNode& operator=(const TreeNode&);
  TreeNode& operator=(TreeNode&&) noexcept;
  ~TreeNode();
  // Returns the number of arrays in the tree. Static leaves do not count.
  int num_leaves() const;
  bool operator==(const TreeNode& other) const;
};
// Returns the key paths of the leaves, in order. Each begins with `root`: "params.w[0]".
std::vector<std::string> LeafPaths(const TreeNode& tree, std::string_view root);
// Describes, for errors, where and how two structures differ. Returns "" if they are equal.
std::string StructureDifference(const TreeNode& want, const TreeNode& got, std::string_view root);

namespace internal {
// Throws an error of kind `kind` unless the structures are equal. The message is `message`, then
// the difference.
void CheckSameStructure(const TreeNode& want, const TreeNode& got, std::string_view root,
                        ErrorKind kind, const std::string& message, const Site& site);
}  // namespace internal

namespace tree {

template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};
template <class T, size_t N>
struct IsVector<std::array<T, N>> : std::true_type {};
template <class T>
struct IsMap : std::false_type {};
template <class T>
struct IsMap<std::map<std::string, T>> : std::true_type {};
template <class T>
struct IsTuple : std::false_type {};
template <class... T>
struct IsTuple<std::tuple<T...>> : std::true_type {};
template <class T>
struct IsPair : std::false_type {};
template <class A, class B>
struct IsPair<std::pair<A, B>> : std::true_type {};
template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

struct NullSink {
  template <class A>
  void operator()(const char*, A&) {}
};
// A struct that TESSERA_TREE or TESSERA_TREE_MEMBERS makes a tree.
template <class T>
concept UserTree = requires(T& t, NullSink& s) {
  TesseraTreeWalk(t, s);
};
// A type whose values are static leaves. TesseraTreeStatic returns the text of a value.
template <class T>
concept UserStatic = requires(const T& t) {
  { TesseraTreeStatic(t) } -> std::convertible_to<std::string>;
};

// Return the texts of static leaves.
std::string TextOf(std::string_view text);
std::string TextOf(bool value);
std::string TextOf(double value);
std::string TextOf(long long value);
std::string TextOf(unsigned long long value);
std::string TextOf(const void* value);

// Returns the text of a static leaf. Two texts are equal if and only if the values are equal.
template <class T>
std::string StaticText(const T& v) {
  if constexpr (UserStatic<T>) {
    return TesseraTreeStatic(v);
  } else if constexpr (std::is_same_v<T, std::string> || std::is_same_v<T, const char*> ||
                       std::is_same_v<T, std::string_view>) {
    return TextOf(std::string_view(v));
  } else if constexpr (std::is_same_v<T, bool>) {
    return TextOf(v);
  } else if constexpr (std::is_floating_point_v<T>) {
    return TextOf(static_cast<double>(v));
  } else if constexpr (std::is_integral_v<T> && std::is_unsigned_v<T>) {
    return TextOf(static_cast<unsigned long long>(v));
  } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
    return TextOf(static_cast<long long>(v));
  } else if constexpr (std::is_pointer_v<T>) {
    return TextOf(reinterpret_cast<const void*>(v));
  } else {
    static_assert(
        std::is_empty_v<T>,
        "not a tree: to make a struct a tree, add TESSERA_TREE(Struct, fields...). To make "
        "it a static leaf, define std::string TesseraTreeStatic(const T&), which returns "
        "a different text for each value");
    return typeid(T).name();
  }
}

// Receives the parts of a tree from Walk. It is a single class without template members, so that
// each tree type is compiled once for all uses.
class Visitor {
 public:
  // Fills in `node`, and appends its arrays to `leaves`.
  Visitor(TreeNode* node, std::vector<Array>* leaves) : node_(node), leaves_(leaves) {}
  // Calls `f` with each array.
  explicit Visitor(const absl::FunctionRef<void(Array&)>* f) : f_(f) {}

  void Leaf(Array& a) const;
  bool wants_static() const { return node_ != nullptr; }
  void Static(std::string text) const;
  // Begins a node. `kind` is the name of the node's type: "tuple", "Params".
  void Enter(std::string_view kind) const;
  // Each returns the visitor for the next child: an element, the value of a key, or a field.
  Visitor Element(size_t i) const;
  Visitor Value(std::string_view key) const;
  Visitor Field(const char* name) const;

 private:
  Visitor Child(std::string label) const;

  TreeNode* node_ = nullptr;
  std::vector<Array>* leaves_ = nullptr;
  const absl::FunctionRef<void(Array&)>* f_ = nullptr;
};

// Reports `tree` to `visitor`. The visitor's function may change the arrays, even those of a const
// tree.
template <class T>
void Walk(const T& tree, const Visitor& visitor) {
  T& t = const_cast<T&>(tree);
  if constexpr (std::is_same_v<T, Array>) {
    visitor.Leaf(t);
  } else if constexpr (IsVector<T>::value) {
    visitor.Enter("vector");
    size_t i = 0;
    for (auto& child : t) Walk(child, visitor.Element(i++));
  } else if constexpr (IsMap<T>::value) {
    visitor.Enter("map");
    for (auto& [key, child] : t) Walk(child, visitor.Value(key));
  } else if constexpr (IsTuple<T>::value) {
    visitor.Enter("tuple");
    std::apply(
        [&](auto&... child) {
          size_t i = 0;
          (Walk(child, visitor.Element(i++)), ...);
        },
        t);
  } else if constexpr (IsPair<T>::value) {
    visitor.Enter("tuple");
    Walk(t.first, visitor.Element(0));
    Walk(t.second, visitor.Element(1));
  } else if constexpr (IsOptional<T>::value) {
    if (t) {
      Walk(*t, visitor);
    } else {
      visitor.Enter("none");
    }
  } else if constexpr (UserTree<T>) {
    visitor.Enter(TesseraTreeName(static_cast<const T*>(nullptr)));
    auto field = [&](const char* name, auto& child) { Walk(child, visitor.Field(name)); };
    TesseraTreeWalk(t, field);
  } else {
    if (visitor.wants_static()) visitor.Static(StaticText<T>(t));
  }
}
template <class T>
void WalkLeaves(T& t, absl::FunctionRef<void(Array&)> f) {
  Walk(t, Visitor(&f));
}

}  // namespace tree

// A tree as its structure and the list of its arrays.
struct Flat {
  TreeNode tree;
  std::vector<Array> leaves;
};
template <class T>
Flat flatten(const T& t) {
  Flat flat;
  tree::Walk(t, tree::Visitor(&flat.tree, &flat.leaves));
  return flat;
}
template <class T, class F>
void for_each_leaf(T& t, F&& f) {
  using Leaf = std::conditional_t<std::is_const_v<T>, const Array, Array>;
  tree::WalkLeaves(t, [&f](Array& a) { f(static_cast<Leaf&>(a)); });
}

namespace internal {
// Replaces arrays by the next ones of `from`. Requires that `from` has enough of them.
struct LeafReplacer {
  const std::vector<Array>& from;
  bool holes;  // if true, Arrays without a value are replaced as well
  size_t& next;
  void operator()(Array& a) const;
};
}  // namespace internal

// Returns `like` with its arrays replaced by `leaves`. Requires as many leaves as `like` has
// arrays.
template <class T>
T unflatten(T like, const std::vector<Array>& leaves) {
  size_t next = 0;
  tree::WalkLeaves(like, internal::LeafReplacer{leaves, /*holes=*/true, next});
  return like;
}

namespace internal {
// An Array without a value is a hole. Transforms treat a hole as a tree without leaves, as JAX
// treats None, and put it back at its position in the tree that they return.

// Returns `flat` without its holes.
Flat WithoutHoles(Flat flat);
// Flattens `t` and leaves its holes out.
template <class T>
Flat FlattenFilled(const T& t) {
  return WithoutHoles(flatten(t));
}
// Returns `like` with its arrays replaced by `leaves`, and with its holes unchanged. Requires as
// many leaves as FlattenFilled returns for `like`.
template <class T>
T UnflattenFilled(T like, const std::vector<Array>& leaves) {
  size_t next = 0;
  tree::WalkLeaves(like, LeafReplacer{leaves, /*holes=*/false, next});
  return like;
}
// Throws VALUE_ERROR unless all trees of a tree_map have the structure of the first.
void CheckMapped(const TreeNode& first, absl::Span<const Flat> others);
}  // namespace internal

// Returns a tree with the structure of `first`. Each leaf is f(corresponding leaves of all trees).
// An Array without a value in `first` stays unchanged.
template <class F, class T, class... Rest>
T tree_map(F&& f, T first, const Rest&... rest) {
  const std::array<Flat, sizeof...(Rest)> others = {flatten(rest)...};
  internal::CheckMapped(flatten(first).tree, others);
  size_t i = 0;
  tree::WalkLeaves(first, [&](Array& a) {
    const size_t at = i++;
    if (!a.valid()) return;
    [&]<size_t... I>(std::index_sequence<I...>) { a = f(a, others[I].leaves[at]...); }
    (std::index_sequence_for<Rest...>{});
  });
  return first;
}

// A prefix of a tree: a leaf applies to the whole subtree at its position. Prefix is the type of
// in_axes, out_axes, in_specs, out_specs and shardings.
template <class L>
struct Prefix {
  enum Kind : uint8_t { kUnset, kLeaf, kNone, kList, kNamed } kind = kUnset;
  std::optional<L> leaf;
  std::vector<std::pair<std::string, Prefix>> children;

  Prefix();
  Prefix(const Prefix&);
  Prefix(Prefix&&) noexcept;
  Prefix& operator=(const Prefix&);
  Prefix& operator=(Prefix&&) noexcept;
  ~Prefix();
  // NOLINTBEGIN(google-explicit-constructor): conversion is intended
  Prefix(L value) : kind(kLeaf), leaf(std::move(value)) {}
  Prefix(NoneType) : kind(kNone) {}
  // NOLINTEND(google-explicit-constructor)
  // A list of one Prefix must be spelled out, as std::initializer_list<Prefix>{p}: clang takes
  // braces around one Prefix for the Prefix itself.
  Prefix(std::initializer_list<Prefix> list);
  // Gives the children by field name or map key. Each child must be given.
  static Prefix Named(const std::map<std::string, Prefix>& fields);
  bool given() const { return kind != kUnset; }
};
template <class L>
Prefix<L>::Prefix() = default;
template <class L>
Prefix<L>::Prefix(const Prefix&) = default;
template <class L>
Prefix<L>::Prefix(Prefix&&) noexcept = default;
template <class L>
Prefix<L>& Prefix<L>::operator=(const Prefix&) = default;
template <class L>
Prefix<L>& Prefix<L>::operator=(Prefix&&) noexcept = default;
template <class L>
Prefix<L>::~Prefix() = default;
template <class L>
Prefix<L>::Prefix(std::initializer_list<Prefix> list) : kind(kList) {
  for (const Prefix& p : list) children.emplace_back("", p);
}
template <class L>
Prefix<L> Prefix<L>::Named(const std::map<std::string, Prefix>& fields) {
  Prefix p;
  p.kind = kNamed;
  p.children.assign(fields.begin(), fields.end());
  return p;
}
// These templates are compiled once, in tree.cc.
extern template struct Prefix<int>;
extern template struct Prefix<PartitionSpec>;

namespace internal {

// Returns the label without its punctuation: "w" for ".w" and "['w']".
std::string PlainLabel(std::string_view label);
// Throws VALUE_ERROR, because the prefix `what` does not fit the value's tree at `path`.
[[noreturn]] void ThrowPrefix(std::string_view what, const std::string& path,
                              const std::string& problem, const Site& site);

template <class L>
void BroadcastInto(const Prefix<L>& p, const TreeNode& tree, std::string_view what,
                   const std::string& path, const Site& site, std::vector<std::optional<L>>* out) {
  if (p.kind == Prefix<L>::kLeaf || p.kind == Prefix<L>::kNone) {
    for (int i = 0; i < tree.num_leaves(); ++i) out->push_back(p.leaf);
    return;
  }
  if (p.kind == Prefix<L>::kUnset) {
    // {} is right for no arguments, or for a value without arrays.
    if (tree.num_leaves() == 0) return;
    ThrowPrefix(what, path, "nothing is given there", site);
  }
  if (tree.kind != TreeNode::kNode) {
    ThrowPrefix(what, path,
                "a list of " + std::to_string(p.children.size()) + " is given, but the value " +
                    (tree.kind == TreeNode::kLeaf ? "is an array" : "is static"),
                site);
  }
  if (p.children.size() != tree.children.size()) {
    ThrowPrefix(what, path,
                std::to_string(p.children.size()) + " children are given, but the " + tree.text +
                    " has " + std::to_string(tree.children.size()) + " children",
                site);
  }
  for (size_t i = 0; i < tree.children.size(); ++i) {
    const TreeNode& child = tree.children[i];
    const Prefix<L>* chosen = &p.children[i].second;
    if (p.kind == Prefix<L>::kNamed) {
      chosen = nullptr;
      for (const auto& [name, q] : p.children) {
        if (name == PlainLabel(child.label)) chosen = &q;
      }
      if (!chosen) ThrowPrefix(what, path, "nothing is given for " + child.label, site);
    }
    BroadcastInto(*chosen, child, what, path + child.label, site, out);
  }
}

// Returns one entry for each array of `tree`; the entry is nullopt where the prefix is None. `what`
// describes the prefix in errors, and the last word of `what` is the root of the paths: if `what`
// is "vmap in_axes", a path is "in_axes[0]".
template <class L>
std::vector<std::optional<L>> BroadcastPrefix(const Prefix<L>& p, const TreeNode& tree,
                                              std::string_view what, const Site& site) {
  std::vector<std::optional<L>> out;
  BroadcastInto(p, tree, what, std::string(what.substr(what.rfind(' ') + 1)), site, &out);
  return out;
}
extern template std::vector<std::optional<int>> BroadcastPrefix(const Prefix<int>&, const TreeNode&,
                                                                std::string_view, const Site&);
extern template std::vector<std::optional<PartitionSpec>> BroadcastPrefix(
    const Prefix<PartitionSpec>&, const TreeNode&, std::string_view, const Site&);

}  // namespace internal
}  // namespace tessera

#define TESSERA_TREE_FIELD_(f) tree_sink(#f, tree_self.f);

// Makes Struct a tree of the named fields (at most 25). Use it at namespace scope, next to Struct.
#define TESSERA_TREE(Struct, ...)                                                                  \
  template <class TreeSink>                                                                        \
  void TesseraTreeWalk([[maybe_unused]] Struct& tree_self, [[maybe_unused]] TreeSink& tree_sink) { \
    TESSERA_FOR_EACH(TESSERA_TREE_FIELD_, __VA_ARGS__)                                             \
  }                                                                                                \
  template <class TreeSink>                                                                        \
  void TesseraTreeWalk([[maybe_unused]] const Struct& tree_self,                                   \
                       [[maybe_unused]] TreeSink& tree_sink) {                                     \
    TESSERA_FOR_EACH(TESSERA_TREE_FIELD_, __VA_ARGS__)                                             \
  }                                                                                                \
  inline const char* TesseraTreeName(const Struct*) { return #Struct; }

// Like TESSERA_TREE, but used inside a struct, which may be a class template:
//   template <class Params>
//   struct Training {
//     Params params;
//     Array step;
//     TESSERA_TREE_MEMBERS(Training, params, step)
//   };
#define TESSERA_TREE_MEMBERS(Struct, ...)                               \
  template <class TreeSink>                                             \
  friend void TesseraTreeWalk([[maybe_unused]] Struct& tree_self,       \
                              [[maybe_unused]] TreeSink& tree_sink) {   \
    TESSERA_FOR_EACH(TESSERA_TREE_FIELD_, __VA_ARGS__)                  \
  }                                                                     \
  template <class TreeSink>                                             \
  friend void TesseraTreeWalk([[maybe_unused]] const Struct& tree_self, \
                              [[maybe_unused]] TreeSink& tree_sink) {   \
    TESSERA_FOR_EACH(TESSERA_TREE_FIELD_, __VA_ARGS__)                  \
  }                                                                     \
  friend const char* TesseraTreeName(const Struct*) { return #Struct; }
