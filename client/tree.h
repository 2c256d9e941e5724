// Trees: structs, vectors, maps, tuples and pairs with arrays at the leaves.
//
// All other leaves are static: part of the structure, compared by value, never traced. A user's
// struct becomes a tree by a macro with its fields, in the struct's namespace:
//
//   struct Params { Array w, b; int layers; };
//   TESSERA_TREE(Params, w, b, layers)
//
// A class template has TESSERA_TREE_MEMBERS among its members instead. An optional value is the
// tree of the value, or without one a tree without leaves.
//
// Code below these templates uses a TreeNode and a flat list of arrays. Values; thread-safe.
#pragma once
#include <array>
#include <cstdio>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <variant>
#include <vector>

#include "base/for_each.h"
#include "client/array.h"
#include "client/error.h"
#include "client/mesh.h"

namespace tessera {

// The structure of a tree.
struct TreeNode {
  enum Kind : uint8_t { kLeaf, kStatic, kNode } kind = kNode;
  std::string label;  // its path step from the parent: ".w", "[0]", "['key']"
  std::string text;   // a node's kind ("tuple", "Params"), a static leaf's value
  std::vector<TreeNode> children;

  int num_leaves() const;
  bool operator==(const TreeNode&) const = default;
};
// Key paths of the leaves, in order, each beginning with `root`: "params.w[0]".
std::vector<std::string> LeafPaths(const TreeNode& tree, std::string_view root);
// Where and how two structures differ, for errors; "" if they are equal.
std::string StructureDifference(const TreeNode& want, const TreeNode& got, std::string_view root);

namespace internal {
// Throws, with the difference after `message`, unless the structures are equal.
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
template <class T>
concept UserTree = requires(T& t, NullSink& s) {
  TesseraTreeWalk(t, s);
};
template <class T>
concept UserStatic = requires(const T& t) {
  { TesseraTreeStatic(t) } -> std::convertible_to<std::string>;
};

// The text of a static leaf, equal if and only if the values are equal.
template <class T>
std::string StaticText(const T& v) {
  if constexpr (UserStatic<T>) {
    return TesseraTreeStatic(v);
  } else if constexpr (std::is_same_v<T, std::string> || std::is_same_v<T, const char*> ||
                       std::is_same_v<T, std::string_view>) {
    return "\"" + std::string(v) + "\"";
  } else if constexpr (std::is_same_v<T, bool>) {
    return v ? "true" : "false";
  } else if constexpr (std::is_floating_point_v<T>) {
    char buffer[40];
    std::snprintf(buffer, sizeof(buffer), "%.17g", static_cast<double>(v));
    return buffer;
  } else if constexpr (std::is_integral_v<T>) {
    return std::to_string(v);
  } else if constexpr (std::is_enum_v<T>) {
    return std::to_string(static_cast<long long>(v));
  } else if constexpr (std::is_pointer_v<T>) {
    char buffer[40];
    std::snprintf(buffer, sizeof(buffer), "%p", reinterpret_cast<const void*>(v));
    return buffer;
  } else {
    static_assert(std::is_empty_v<T>,
                  "not a tree: give the struct TESSERA_TREE(Struct, fields...), or, for a static "
                  "leaf, a std::string TesseraTreeStatic(const T&) that tells values apart");
    return typeid(T).name();
  }
}

// Calls sink.Leaf(array), sink.Static(text) or, for inner nodes, sink.Enter(kind), then for each
// child sink.Child(label, child).
template <class T, class Sink>
void Walk(T& t, Sink& sink) {
  using U = std::remove_const_t<T>;
  if constexpr (std::is_same_v<U, Array>) {
    sink.Leaf(t);
  } else if constexpr (IsVector<U>::value) {
    sink.Enter("vector");
    size_t i = 0;
    for (auto& child : t) sink.Child("[" + std::to_string(i++) + "]", child);
  } else if constexpr (IsMap<U>::value) {
    sink.Enter("map");
    for (auto& [key, child] : t) sink.Child("['" + key + "']", child);
  } else if constexpr (IsTuple<U>::value) {
    sink.Enter("tuple");
    std::apply(
        [&](auto&... child) {
          size_t i = 0;
          (sink.Child("[" + std::to_string(i++) + "]", child), ...);
        },
        t);
  } else if constexpr (IsPair<U>::value) {
    sink.Enter("tuple");
    sink.Child("[0]", t.first);
    sink.Child("[1]", t.second);
  } else if constexpr (IsOptional<U>::value) {
    if (t) {
      Walk(*t, sink);
    } else {
      sink.Enter("none");
    }
  } else if constexpr (UserTree<T>) {
    sink.Enter(TesseraTreeName(static_cast<const U*>(nullptr)));
    auto field = [&](const char* name, auto& child) { sink.Child(std::string(".") + name, child); };
    TesseraTreeWalk(t, field);
  } else {
    sink.Static(StaticText<U>(t));
  }
}

// Calls `f` with each leaf.
template <class F>
struct LeafSink {
  F& f;
  template <class A>
  void Leaf(A& a) {
    f(a);
  }
  void Static(const std::string&) {}
  void Enter(std::string_view) {}
  template <class T>
  void Child(const std::string&, T& t) {
    Walk(t, *this);
  }
};

// Fills in `node` and appends its arrays to `leaves`.
struct FlattenSink {
  TreeNode* node;
  std::vector<Array>* leaves;
  void Leaf(const Array& a) {
    node->kind = TreeNode::kLeaf;
    leaves->push_back(a);
  }
  void Static(std::string text) {
    node->kind = TreeNode::kStatic;
    node->text = std::move(text);
  }
  void Enter(std::string_view kind) { node->text = kind; }
  template <class T>
  void Child(const std::string& label, const T& t) {
    TreeNode& child = node->children.emplace_back();
    child.label = label;
    FlattenSink sink{&child, leaves};
    Walk(t, sink);
  }
};

}  // namespace tree

struct Flat {
  TreeNode tree;
  std::vector<Array> leaves;
};
template <class T>
Flat flatten(const T& t) {
  Flat flat;
  tree::FlattenSink sink{&flat.tree, &flat.leaves};
  tree::Walk(t, sink);
  return flat;
}
template <class T, class F>
void for_each_leaf(T& t, F&& f) {
  tree::LeafSink<F> sink{f};
  tree::Walk(t, sink);
}
// `like` with its arrays replaced. Requires: as many arrays as leaves.
template <class T>
T unflatten(T like, const std::vector<Array>& leaves) {
  size_t i = 0;
  for_each_leaf(like, [&](Array& a) { a = leaves.at(i++); });
  return like;
}

namespace internal {
// An Array without a value is a hole: for transforms a tree without leaves, as None is in JAX, that
// comes out where it went in. `flat` without its holes.
Flat WithoutHoles(Flat flat);
template <class T>
Flat FlattenFilled(const T& t) {
  return WithoutHoles(flatten(t));
}
// `like` with its arrays replaced and its holes left. Requires: as many arrays as FlattenFilled
// gives.
template <class T>
T UnflattenFilled(T like, const std::vector<Array>& leaves) {
  size_t i = 0;
  for_each_leaf(like, [&](Array& a) {
    if (a.valid()) a = leaves.at(i++);
  });
  return like;
}
}  // namespace internal

// A tree with the structure of `first`, whose leaves are f(corresponding leaves of all trees). An
// Array without a value in `first` stays as it is.
template <class F, class T, class... Rest>
T tree_map(F&& f, T first, const Rest&... rest) {
  const std::vector<Flat> others = {flatten(rest)...};
  const TreeNode want = flatten(first).tree;
  for (const Flat& other : others) {
    internal::CheckSameStructure(want, other.tree, "tree", ErrorKind::kValueError,
                                 "tree_map: ", Site{});
  }
  size_t i = 0;
  for_each_leaf(first, [&](Array& a) {
    const size_t at = i++;
    if (!a.valid()) return;
    [&]<size_t... I>(std::index_sequence<I...>) { a = f(a, others[I].leaves[at]...); }
    (std::index_sequence_for<Rest...>{});
  });
  return first;
}

// A prefix of a tree: a leaf applies to the whole subtree at its position. The type of in_axes,
// out_axes, in_specs, out_specs and shardings.
template <class L>
struct Prefix {
  enum Kind : uint8_t { kUnset, kLeaf, kNone, kList, kNamed } kind = kUnset;
  std::optional<L> leaf;
  std::vector<std::pair<std::string, Prefix>> children;

  Prefix() = default;
  // NOLINTBEGIN(google-explicit-constructor): reads as the value
  Prefix(L value) : kind(kLeaf), leaf(std::move(value)) {}
  Prefix(NoneType) : kind(kNone) {}
  // NOLINTEND(google-explicit-constructor)
  // A list of one Prefix must be spelled out, as std::initializer_list<Prefix>{p}: clang takes
  // braces around one Prefix for the Prefix itself.
  Prefix(std::initializer_list<Prefix> list) : kind(kList) {
    for (const Prefix& p : list) children.emplace_back("", p);
  }
  // Children by field name or map key; all must be given.
  static Prefix Named(const std::map<std::string, Prefix>& fields) {
    Prefix p;
    p.kind = kNamed;
    p.children.assign(fields.begin(), fields.end());
    return p;
  }
  bool given() const { return kind != kUnset; }
};

namespace internal {

// The label without punctuation: "w" for ".w" and "['w']".
std::string PlainLabel(std::string_view label);
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
    // {} for no arguments, or a value without arrays.
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
                std::to_string(p.children.size()) + " are given, but the " + tree.text + " has " +
                    std::to_string(tree.children.size()) + " children",
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

// One entry per leaf of `tree`; nullopt if the prefix is None there.
template <class L>
std::vector<std::optional<L>> BroadcastPrefix(const Prefix<L>& p, const TreeNode& tree,
                                              std::string_view what, const Site& site) {
  std::vector<std::optional<L>> out;
  BroadcastInto(p, tree, what, std::string(what.substr(what.rfind(' ') + 1)), site, &out);
  return out;
}

}  // namespace internal
}  // namespace tessera

#define TESSERA_TREE_FIELD_(f) tree_sink(#f, tree_self.f);

// Makes Struct a tree of the named fields (at most 25). Use at namespace scope, next to Struct.
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

// The same as a member of a struct, which may be a class template:
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
