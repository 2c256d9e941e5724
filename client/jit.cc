#include "client/jit.h"

#include <algorithm>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "client/debug.h"
#include "client/operand.h"
#include "client/prints.h"
#include "client/sharding.h"
#include "ir/ops.h"

namespace tessera::internal {
namespace {

// A path in a tree as the name of a value; long paths are truncated at the front.
std::string ValueName(const std::string& path) {
  const size_t over = path.size() > ir::kValueNameMax ? path.size() - ir::kValueNameMax + 2 : 0;
  std::string name = over > 0 ? ".." + path.substr(over) : path;
  for (char& c : name)
    if (c < 0x20 || c > 0x7e) c = '?';
  return name;
}

TracedProgram TraceForJit(const FlatArgs& args, const JitCache::Options& options, const Site& site,
                          FlatBody body) {
  TracedProgram traced = TraceProgram(options.name, site, args.leaves, body);
  for (size_t i = 0; i < options.in_shardings.size(); ++i) {
    if (options.in_shardings[i]) traced.program.in_shardings[i] = options.in_shardings[i];
  }
  // What is given goes before the types' shardings.
  std::vector<std::optional<PartitionSpec>> given = options.out_shardings();
  for (size_t i = 0; i < given.size(); ++i)
    if (!given[i] && i < traced.program.out_shardings.size())
      given[i] = traced.program.out_shardings[i];
  if (!given.empty()) traced.program.out_shardings = std::move(given);
  for (const std::string& path : args.paths()) traced.program.in_names.push_back(ValueName(path));
  for (size_t i = 0; i < traced.captures.size(); ++i)
    traced.program.in_names.push_back(absl::StrCat("captured[", i, "]"));
  for (const std::string& path : options.out_paths())
    traced.program.out_names.push_back(ValueName(path));
  return traced;
}

// Different for most different calls, and quick: shapes and dtypes alone.
size_t HashOf(const std::type_info& type, const std::vector<Array>& leaves) {
  size_t hash = type.hash_code();
  for (const Array& a : leaves) hash = absl::HashOf(hash, a.type().dtype, a.type().shape);
  return hash;
}

// Throws unless the arguments can be passed to a run.
void CheckArguments(const std::string& name, const FlatArgs& args, const Site& site) {
  for (size_t i = 0; i < args.leaves.size(); ++i) {
    const Array& a = args.leaves[i];
    const ConcreteState* c = a.valid() ? AsConcrete(a) : nullptr;
    if (!c && !(a.valid() && AsNumber(a))) {
      ThrowError(ErrorKind::kTypeError, site, name, ": ", args.path(i), " is ", a.to_string(),
                 ", but a concrete array is expected outside a trace");
    }
    if (c && c->deleted.load()) ThrowDeleted(absl::StrCat(name, ": ", args.path(i)), a, site);
  }
}

// The first leaf below each node of a tree, and how many there are.
struct NodeRange {
  const TreeNode* node;
  int first, count;
};
// Appends the nodes at `name`, a path whose first step may lack its punctuation.
void AppendNamed(const TreeNode& node, std::string_view name, bool is_first, int first_leaf,
                 std::vector<NodeRange>* out) {
  if (name.empty()) {
    out->push_back({&node, first_leaf, node.num_leaves()});
    return;
  }
  for (const TreeNode& child : node.children) {
    const std::string plain = PlainLabel(child.label);
    for (const std::string_view step : {std::string_view(child.label), std::string_view(plain)}) {
      const bool is_plain = step.data() == plain.data();
      if (step.empty() || !name.starts_with(step) || (is_plain && !is_first)) continue;
      const std::string_view rest = name.substr(step.size());
      if (!rest.empty() && rest[0] != '.' && rest[0] != '[') continue;
      AppendNamed(child, rest, /*is_first=*/false, first_leaf, out);
      break;
    }
    first_leaf += child.num_leaves();
  }
}

// The names that donate_argnames may have: of arguments, or of the fields and keys of one.
void AppendNames(const TreeNode& args, std::vector<std::string>* out) {
  for (const TreeNode& arg : args.children) {
    out->push_back("args" + arg.label);
    for (const TreeNode& child : arg.children)
      if (!child.label.starts_with('[') || child.label.starts_with("['"))
        out->push_back(PlainLabel(child.label));
  }
}

// The leaves that `name` names, which are to be donated.
NodeRange NamedLeaves(const std::string& fn, const std::string& name, const TreeNode& args,
                      const Site& site) {
  std::vector<NodeRange> found;
  std::vector<std::string> where;
  const bool is_path = name.starts_with("args[");
  if (is_path) {
    AppendNamed(args, std::string_view(name).substr(4), /*is_first=*/false, 0, &found);
    where.resize(found.size(), name);
  } else if (!name.empty()) {
    int first_leaf = 0;
    for (const TreeNode& arg : args.children) {
      const size_t before = found.size();
      AppendNamed(arg, name, /*is_first=*/true, first_leaf, &found);
      if (found.size() > before) where.push_back("args" + arg.label);
      first_leaf += arg.num_leaves();
    }
  }
  if (found.empty()) {
    std::vector<std::string> names;
    AppendNames(args, &names);
    ThrowError(ErrorKind::kValueError, site, fn, ": jitted function has invalid argnames {'", name,
               "'} in donate_argnames. Function does not take these args: no argument has that "
               "name. ",
               names.empty() ? std::string("The call has no arguments")
                             : absl::StrCat("Expected is the name of one of ",
                                            absl::StrJoin(names, ", "), ", or a path below it"));
  }
  if (found.size() > 1) {
    ThrowError(ErrorKind::kValueError, site, fn, ": donate_argnames names '", name,
               "', which several arguments have: ", absl::StrJoin(where, " and "),
               ". Name it by its path, which begins with one of these");
  }
  if (found[0].node->kind == TreeNode::kStatic) {
    ThrowError(ErrorKind::kValueError, site, fn, ": donate_argnames names '", name,
               "', which is static, the value ", found[0].node->text,
               "; arrays are expected. Leave it out");
  }
  return found[0];
}

}  // namespace

std::vector<bool> DonatedLeaves(const std::string& name, const std::vector<int>& argnums,
                                const std::vector<std::string>& argnames, const TreeNode& args,
                                const Site& site) {
  if (argnums.empty() && argnames.empty()) return {};
  const auto refuse = [&](int argnum, const std::string& why) {
    ThrowError(ErrorKind::kValueError, site, name, ": donate_argnums {",
               absl::StrJoin(argnums, ", "), "} names argument ", argnum, ", ", why);
  };
  const int n = static_cast<int>(args.children.size());
  std::vector<bool> donated(n, false);
  for (int argnum : argnums) {
    if (argnum < -n || argnum >= n) {
      refuse(argnum, n == 0
                         ? "but the call has no arguments. Leave it out"
                         : absl::StrCat("but the call has ", n, n == 1 ? " argument" : " arguments",
                                        "; a number from ", -n, " to ", n - 1, " is expected"));
    }
    const int a = argnum < 0 ? argnum + n : argnum;
    if (args.children[a].kind == TreeNode::kStatic) {
      refuse(argnum, absl::StrCat("which is static, the value ", args.children[a].text,
                                  "; arrays are expected. Leave it out"));
    }
    donated[a] = true;
  }
  std::vector<bool> leaves;
  for (int a = 0; a < n; ++a) {
    leaves.insert(leaves.end(), args.children[a].num_leaves(), donated[a]);
  }
  for (const std::string& argname : argnames) {
    const NodeRange range = NamedLeaves(name, argname, args, site);
    std::fill_n(leaves.begin() + range.first, range.count, true);
  }
  return leaves;
}

std::vector<Type> ResultTypes(const std::vector<Array>& args, FlatBody body) {
  const std::vector<Type> types = TypesOf(args);
  if (CurrentFrame())
    return TraceFlat(CurrentScope(), types, "eval_shape", Site{}, body).fn->result_types();
  std::vector<Array> abstract;
  for (const Type& type : types) abstract.push_back(abstract_of(type));
  return TraceProgram("eval_shape", Site{}, abstract, body, args).fn()->result_types();
}

bool JitCache::Matches(const Entry& entry, const std::type_info& type, const FlatArgs& args) {
  if (*entry.type != type || !(entry.tree == args.tree) || !(entry.context == context_mesh()) ||
      entry.precision != PrecisionOr({}) || entry.auto_pcast != is_auto_pcast())
    return false;
  bool has_arrays = !entry.captures.empty();
  for (size_t i = 0; i < args.leaves.size(); ++i) {
    const LeafKey& key = entry.leaves[i];
    const ConcreteState* const c = AsConcrete(args.leaves[i]);
    has_arrays |= c != nullptr;
    if (!(key.type == args.leaves[i].type()) || key.session != (c ? c->session.get() : nullptr) ||
        (c && key.placement != c->placement && !(*key.placement == *c->placement)))
      return false;
  }
  return has_arrays || entry.session == Session::Default(Site{});
}

std::shared_ptr<const JitCache::Entry> JitCache::Find(size_t hash, const std::type_info& type,
                                                      const FlatArgs& args) const {
  const auto [first, last] = entries_.equal_range(hash);
  for (auto it = first; it != last; ++it)
    if (Matches(*it->second, type, args)) return it->second;
  return nullptr;
}

std::vector<Array> JitCache::Call(const std::type_info& type, const FlatArgs& args,
                                  const Options& options, const Site& site, FlatBody body,
                                  std::shared_ptr<const void>* like_out) {
  if (CurrentFrame()) {
    const Nested n = TraceFlat(CurrentScope(), TypesOf(args.leaves), options.name, site, body);
    return Apply("jit", site, Concat(args.leaves, n.captures),
                 [&](ir::Builder& b, std::vector<ir::Value> in) {
                   return ir::Call(b, n.fn, in, options.name);
                 });
  }
  CheckArguments(options.name, args, site);
  if (DebugNans()) {
    const TracedProgram traced = TraceForJit(args, options, site, body);
    return RunCheckingNans(traced, Concat(args.leaves, traced.captures), options.name, site);
  }
  const size_t hash = HashOf(type, args.leaves);
  std::shared_ptr<const Entry> entry;
  {
    absl::MutexLock lock(&mu_);
    entry = Find(hash, type, args);
  }
  if (!entry) {
    entry = Compile(type, args, options, site, body, like_out);
    absl::MutexLock lock(&mu_);
    if (!Find(hash, type, args)) entries_.emplace(hash, entry);
  }
  *like_out = entry->like_out;
  std::vector<bool> donate = options.donate;
  if (!donate.empty()) donate.resize(args.leaves.size() + entry->captures.size(), false);
  std::vector<Array> all;
  if (!entry->captures.empty()) all = Concat(args.leaves, entry->captures);
  return entry->session->Run(*entry->executable, all.empty() ? args.leaves : all, std::move(donate),
                             site);
}

std::shared_ptr<const JitCache::Entry> JitCache::Compile(const std::type_info& type,
                                                         const FlatArgs& args,
                                                         const Options& options, const Site& site,
                                                         FlatBody body,
                                                         std::shared_ptr<const void>* like_out) {
  const TracedProgram traced = TraceForJit(args, options, site, body);
  auto made = std::make_shared<Entry>();
  made->type = &type;
  made->tree = args.tree;
  made->context = context_mesh();
  made->precision = PrecisionOr({});
  made->auto_pcast = is_auto_pcast();
  for (const Array& a : args.leaves) {
    const ConcreteState* const c = AsConcrete(a);
    made->leaves.push_back({a.type(), c ? c->placement : nullptr, c ? c->session.get() : nullptr});
  }
  made->session = SessionOf(Concat(args.leaves, traced.captures), site);
  made->executable = CompileTraced(*made->session, traced, options.name, /*with_plan=*/false, site);
  made->captures = traced.captures;
  made->like_out = *like_out;
  return made;
}

api::CompileReply JitCache::Explain(const FlatArgs& args, const Options& options,
                                    const AbsentDevices* absent, const Site& site, FlatBody body) {
  if (CurrentFrame()) {
    ThrowError(ErrorKind::kTypeError, site,
               "explain: not while tracing; explain the outer function");
  }
  if (absent) {
    if (absent->memory_bytes <= 0 || absent->mesh.empty() || !absent->mesh.devices.empty()) {
      ThrowError(ErrorKind::kValueError, site,
                 "explain: absent devices want a mesh that names none (abstract_mesh) and "
                 "memory_bytes above 0");
    }
    const set_mesh on(absent->mesh);
    const TracedProgram traced = TraceForJit(args, options, site, body);
    api::CompileReply plan = SessionOf(Concat(args.leaves, traced.captures), site)
                                 ->PlanForAbsent(SplitPrints(traced.program, site).program,
                                                 absent->memory_bytes, options.name, site);
    TellInspections(traced, plan, site);
    return plan;
  }
  CheckArguments(options.name, args, site);
  const TracedProgram traced = TraceForJit(args, options, site, body);
  const std::shared_ptr<Session> session = SessionOf(Concat(args.leaves, traced.captures), site);
  return CompileTraced(*session, traced, options.name, /*with_plan=*/true, site)->reply;
}

std::shared_ptr<const LoweredCall> JitCache::Lower(const FlatArgs& args, const Options& options,
                                                   const Site& site, FlatBody body) {
  if (CurrentFrame()) {
    ThrowError(ErrorKind::kTypeError, site, options.name,
               ": lower is not for a function that is being traced; lower the outer one");
  }
  for (size_t i = 0; i < args.leaves.size(); ++i) {
    const Array& a = args.leaves[i];
    if (!a.valid() || AsTraced(a)) {
      ThrowError(ErrorKind::kTypeError, site, options.name, ": lower: ", args.path(i), " is ",
                 a.to_string(), ", but a concrete or an abstract array is expected");
    }
  }
  auto lowered = std::make_shared<LoweredCall>();
  lowered->name = options.name;
  lowered->site = site;
  lowered->traced = TraceForJit(args, options, site, body);
  lowered->tree = args.tree;
  lowered->paths = args.paths();
  lowered->types = TypesOf(args.leaves);
  lowered->donate = options.donate;
  const std::vector<Array> all = Concat(args.leaves, lowered->traced.captures);
  if (std::any_of(all.begin(), all.end(), [](const Array& a) { return AsConcrete(a); }))
    lowered->session = SessionOf(all, site);
  return lowered;
}

int64_t JitCache::num_compiled() const {
  absl::MutexLock lock(&mu_);
  return static_cast<int64_t>(entries_.size());
}

}  // namespace tessera::internal
