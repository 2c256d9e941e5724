// The part of jit that is no template. A call looks up the executable for its arguments; if there
// is none, it traces the function, compiles the program in the arguments' session, and keeps the
// executable. Inside a trace the function becomes a call in the outer program instead.
#include "client/transform/jit.h"

#include <algorithm>
#include <unordered_map>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "client/apply/apply.h"
#include "client/apply/operand.h"
#include "client/debug.h"
#include "client/sharding.h"
#include "client/trace/compile.h"
#include "client/trace/prints.h"
#include "ir/ops.h"

namespace tessera::internal {
namespace {

// Turns a path in a tree into the name of a value in a program. Long paths are truncated at the
// front.
std::string ValueName(const std::string& path) {
  const size_t over = path.size() > ir::kValueNameMax ? path.size() - ir::kValueNameMax + 2 : 0;
  std::string name = over > 0 ? ".." + path.substr(over) : path;
  for (char& c : name)
    if (c < 0x20 || c > 0x7e) c = '?';
  return name;
}

// A node of a tree, the first leaf below the node, and the number of leaves below it.
struct NodeRange {
  const TreeNode* node;
  int first, count;
};
// Appends the nodes that have the path `name`. The first step of the path may lack its punctuation.
void AppendNodesAtPath(const TreeNode& node, std::string_view name, bool is_first, int first_leaf,
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
      AppendNodesAtPath(child, rest, /*is_first=*/false, first_leaf, out);
      break;
    }
    first_leaf += child.num_leaves();
  }
}

// Appends the names that donate_argnames may have: names of arguments, and of fields and keys of an
// argument.
void AppendArgnames(const TreeNode& args, std::vector<std::string>* out) {
  for (const TreeNode& arg : args.children) {
    out->push_back("args" + arg.label);
    for (const TreeNode& child : arg.children)
      if (!child.label.starts_with('[') || child.label.starts_with("['"))
        out->push_back(PlainLabel(child.label));
  }
}

// Returns the leaves with the name `name`, which are to be donated. Throws unless exactly one part
// of the arguments has this name and holds arrays.
NodeRange NamedLeaves(const std::string& fn, const std::string& name, const TreeNode& args,
                      const Site& site) {
  std::vector<NodeRange> found;
  std::vector<std::string> owner_paths;
  const bool is_path = name.starts_with("args[");
  if (is_path) {
    AppendNodesAtPath(args, std::string_view(name).substr(4), /*is_first=*/false, 0, &found);
    owner_paths.resize(found.size(), name);
  } else if (!name.empty()) {
    int first_leaf = 0;
    for (const TreeNode& arg : args.children) {
      const size_t before = found.size();
      AppendNodesAtPath(arg, name, /*is_first=*/true, first_leaf, &found);
      if (found.size() > before) owner_paths.push_back("args" + arg.label);
      first_leaf += arg.num_leaves();
    }
  }
  if (found.empty()) {
    std::vector<std::string> names;
    AppendArgnames(args, &names);
    ThrowError(ErrorKind::kValueError, site, fn, ": jitted function has invalid argnames {'", name,
               "'} in donate_argnames. Function does not take these args: no argument has that "
               "name. ",
               names.empty()
                   ? std::string("The call has no arguments")
                   : absl::StrCat("Expected one of the names ", absl::StrJoin(names, ", "),
                                  ", or a path below one of them"));
  }
  if (found.size() > 1) {
    ThrowError(ErrorKind::kValueError, site, fn, ": donate_argnames names '", name,
               "', which several arguments have: ", absl::StrJoin(owner_paths, " and "),
               ". Name the argument by its path, which begins with one of these");
  }
  if (found[0].node->kind == TreeNode::kStatic) {
    ThrowError(ErrorKind::kValueError, site, fn, ": donate_argnames names '", name,
               "', which is static, the value ", found[0].node->text,
               "; arrays are expected. Leave it out");
  }
  return found[0];
}

// Returns for each leaf of the tuple `args` whether `argnums` or `argnames` donate it. Returns an
// empty list if both are empty.
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

// The options of a call that concern arguments, with one entry for each leaf of the arguments.
struct LeafOptions {
  std::vector<bool> donate;                                // empty if nothing is donated
  std::vector<std::optional<PartitionSpec>> in_shardings;  // empty if the arguments keep their own
};
LeafOptions LeafOptionsOf(const JitCall& call) {
  const JitOptions& options = call.options;
  LeafOptions leaf_options;
  leaf_options.donate = DonatedLeaves(options.name, options.donate_argnums, options.donate_argnames,
                                      call.args.tree, call.site);
  if (options.in_shardings.given()) {
    leaf_options.in_shardings =
        BroadcastPrefix(options.in_shardings, call.args.tree, "jit in_shardings", call.site);
  }
  return leaf_options;
}

TracedProgram TraceForJit(const JitCall& call, const LeafOptions& leaf_options) {
  const JitOptions& options = call.options;
  TracedProgram traced = TraceProgram(options.name, call.site, call.args.leaves, call.body);
  for (size_t i = 0; i < leaf_options.in_shardings.size(); ++i) {
    if (leaf_options.in_shardings[i]) traced.program.in_shardings[i] = leaf_options.in_shardings[i];
  }
  const TreeNode result_tree = call.result_tree();
  // The given out_shardings take precedence over the shardings of the types.
  std::vector<std::optional<PartitionSpec>> out;
  if (options.out_shardings.given())
    out = BroadcastPrefix(options.out_shardings, result_tree, "jit out_shardings", call.site);
  for (size_t i = 0; i < out.size(); ++i)
    if (!out[i] && i < traced.program.out_shardings.size())
      out[i] = traced.program.out_shardings[i];
  if (!out.empty()) traced.program.out_shardings = std::move(out);
  for (const std::string& path : call.args.paths())
    traced.program.in_names.push_back(ValueName(path));
  for (size_t i = 0; i < traced.captures.size(); ++i)
    traced.program.in_names.push_back(absl::StrCat("captured[", i, "]"));
  for (const std::string& path : LeafPaths(result_tree, "result"))
    traced.program.out_names.push_back(ValueName(path));
  return traced;
}

// Returns a hash that is quick to compute: it looks at shapes and dtypes alone. JitCache::Matches
// then decides whether an entry with the same hash fits the call.
size_t HashOf(const std::type_info& type, const std::vector<Array>& leaves) {
  size_t hash = type.hash_code();
  for (const Array& a : leaves) hash = absl::HashOf(hash, a.type().dtype, a.type().shape);
  return hash;
}

// Throws unless the arguments can be passed to a run.
void CheckArguments(const std::string& name, const FlatArgs& args, const Site& site) {
  for (size_t i = 0; i < args.leaves.size(); ++i) {
    const Array& a = args.leaves[i];
    const ConcreteState* concrete = a.valid() ? AsConcrete(a) : nullptr;
    if (!concrete && !(a.valid() && AsNumber(a))) {
      ThrowError(ErrorKind::kTypeError, site, name, ": ", args.path(i), " is ", a.to_string(),
                 ", but a concrete array is expected outside a trace");
    }
    if (concrete && concrete->deleted.load())
      ThrowDeleted(absl::StrCat(name, ": ", args.path(i)), a, site);
  }
}

}  // namespace

std::vector<Type> ResultTypes(const std::vector<Array>& args, FlatBody body) {
  const std::vector<Type> types = TypesOf(args);
  if (CurrentFrame())
    return TraceFlat(CurrentScope(), types, "eval_shape", Site{}, body).fn->result_types();
  std::vector<Array> abstract;
  for (const Type& type : types) abstract.push_back(abstract_of(type));
  return TraceProgram("eval_shape", Site{}, abstract, body, args).fn()->result_types();
}

class JitCache {
 public:
  std::vector<Array> Call(const JitCall& call);
  int64_t num_compiled() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // The part of the key that belongs to one argument. A number has no placement and no session.
  struct LeafKey {
    Type type;
    std::shared_ptr<const api::Placement> placement;
    const Session* session;
  };
  struct Entry {
    const std::type_info* type;                           // type of the tuple of arguments
    TreeNode tree;                                        // tree of the tuple of arguments
    Mesh context;                                         // context mesh of the call
    lax::Precision precision = lax::Precision::kDefault;  // value of default_matmul_precision
    bool auto_pcast = true;
    std::vector<LeafKey> leaves;

    std::shared_ptr<Session> session;
    std::shared_ptr<const Session::Executable> executable;
    std::vector<Array> captures;
    std::shared_ptr<const void> structure;  // structure of the results
  };
  static std::shared_ptr<const Entry> Compile(const JitCall& call, const LeafOptions& leaf_options);
  static bool Matches(const Entry& entry, const JitCall& call);
  // Returns null if no entry matches the call.
  std::shared_ptr<const Entry> Find(size_t hash, const JitCall& call) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable absl::Mutex mu_;
  // Keyed by a hash of the types for which the entry was compiled (HashOf).
  std::unordered_multimap<size_t, std::shared_ptr<const Entry>> entries_ ABSL_GUARDED_BY(mu_);
};

bool JitCache::Matches(const Entry& entry, const JitCall& call) {
  const FlatArgs& args = call.args;
  if (*entry.type != call.type || !(entry.tree == args.tree) ||
      !(entry.context == context_mesh()) || entry.precision != PrecisionOr({}) ||
      entry.auto_pcast != is_auto_pcast())
    return false;
  bool has_arrays = !entry.captures.empty();
  for (size_t i = 0; i < args.leaves.size(); ++i) {
    const LeafKey& key = entry.leaves[i];
    const ConcreteState* const concrete = AsConcrete(args.leaves[i]);
    has_arrays |= concrete != nullptr;
    if (!(key.type == args.leaves[i].type()) ||
        key.session != (concrete ? concrete->session.get() : nullptr) ||
        (concrete && key.placement != concrete->placement &&
         !(*key.placement == *concrete->placement)))
      return false;
  }
  return has_arrays || entry.session == Session::Default(Site{});
}

std::shared_ptr<const JitCache::Entry> JitCache::Find(size_t hash, const JitCall& call) const {
  const auto [first, last] = entries_.equal_range(hash);
  for (auto it = first; it != last; ++it)
    if (Matches(*it->second, call)) return it->second;
  return nullptr;
}

// Within a trace, `jit` is a call op, so that the planner sees the whole program. Outside a trace
// the entry is looked up under the lock but compiled without the lock, because compiling takes
// long. If two threads compile the same entry, the first one to finish is kept. Captured arrays are
// passed to every run after the arguments.
std::vector<Array> JitCache::Call(const JitCall& call) {
  const FlatArgs& args = call.args;
  const std::string& name = call.options.name;
  LeafOptions leaf_options = LeafOptionsOf(call);
  if (CurrentFrame()) {
    const TracedFunction n =
        TraceFlat(CurrentScope(), TypesOf(args.leaves), name, call.site, call.body);
    return Apply(
        "jit", call.site, Concat(args.leaves, n.captures),
        [&](ir::Builder& b, std::vector<ir::Value> in) { return ir::Call(b, n.fn, in, name); });
  }
  CheckArguments(name, args, call.site);
  if (DebugNans()) {
    const TracedProgram traced = TraceForJit(call, leaf_options);
    return RunCheckingNans(traced, Concat(args.leaves, traced.captures), name, call.site);
  }
  const size_t hash = HashOf(call.type, args.leaves);
  std::shared_ptr<const Entry> entry;
  {
    absl::MutexLock lock(&mu_);
    entry = Find(hash, call);
  }
  if (!entry) {
    entry = Compile(call, leaf_options);
    absl::MutexLock lock(&mu_);
    if (!Find(hash, call)) entries_.emplace(hash, entry);
  }
  *call.structure = entry->structure;
  std::vector<bool> donate = std::move(leaf_options.donate);
  if (!donate.empty()) donate.resize(args.leaves.size() + entry->captures.size(), false);
  std::vector<Array> all;
  if (!entry->captures.empty()) all = Concat(args.leaves, entry->captures);
  return entry->session->Run(*entry->executable, all.empty() ? args.leaves : all, std::move(donate),
                             call.site);
}

std::shared_ptr<const JitCache::Entry> JitCache::Compile(const JitCall& call,
                                                         const LeafOptions& leaf_options) {
  const FlatArgs& args = call.args;
  const TracedProgram traced = TraceForJit(call, leaf_options);
  auto entry = std::make_shared<Entry>();
  entry->type = &call.type;
  entry->tree = args.tree;
  entry->context = context_mesh();
  entry->precision = PrecisionOr({});
  entry->auto_pcast = is_auto_pcast();
  for (const Array& a : args.leaves) {
    const ConcreteState* const concrete = AsConcrete(a);
    entry->leaves.push_back({a.type(), concrete ? concrete->placement : nullptr,
                             concrete ? concrete->session.get() : nullptr});
  }
  entry->session = SessionOf(Concat(args.leaves, traced.captures), call.site);
  entry->executable =
      CompileTraced(*entry->session, traced, call.options.name, /*with_plan=*/false, call.site);
  entry->captures = traced.captures;
  entry->structure = *call.structure;
  return entry;
}

int64_t JitCache::num_compiled() const {
  absl::MutexLock lock(&mu_);
  return static_cast<int64_t>(entries_.size());
}

std::shared_ptr<JitCache> MakeJitCache() { return std::make_shared<JitCache>(); }

std::vector<Array> CallJitted(JitCache& cache, const JitCall& call) { return cache.Call(call); }

int64_t NumCompiled(const JitCache& cache) { return cache.num_compiled(); }

void BlankLeaf(Array& a) {
  if (a.valid()) a = abstract({});
}

// Traces and plans without running anything. For absent devices the server makes a plan that it
// does not keep. For devices of the cluster an executable is compiled, and its plan is returned.
api::CompileReply ExplainJitted(const JitCall& call, const AbsentDevices* absent) {
  const FlatArgs& args = call.args;
  const std::string& name = call.options.name;
  const LeafOptions leaf_options = LeafOptionsOf(call);
  if (CurrentFrame()) {
    ThrowError(
        ErrorKind::kTypeError, call.site,
        "explain: cannot be used in a function that is being traced; explain the outer function");
  }
  if (absent) {
    if (absent->memory_bytes <= 0 || absent->mesh.empty() || !absent->mesh.devices.empty()) {
      ThrowError(ErrorKind::kValueError, call.site,
                 "explain: a plan for absent devices needs a mesh without devices (abstract_mesh) "
                 "and memory_bytes above 0");
    }
    const set_mesh on(absent->mesh);
    const TracedProgram traced = TraceForJit(call, leaf_options);
    api::CompileReply plan = SessionOf(Concat(args.leaves, traced.captures), call.site)
                                 ->PlanForAbsent(SplitPrints(traced.program, call.site).program,
                                                 absent->memory_bytes, name, call.site);
    ReportInspections(traced, plan, call.site);
    return plan;
  }
  CheckArguments(name, args, call.site);
  const TracedProgram traced = TraceForJit(call, leaf_options);
  const std::shared_ptr<Session> session =
      SessionOf(Concat(args.leaves, traced.captures), call.site);
  return CompileTraced(*session, traced, name, /*with_plan=*/true, call.site)->reply;
}

// Traces the function for `stages::Lowered`. The session is only set if an array is concrete: a
// program that was lowered for abstract arrays can be compiled on any session.
std::shared_ptr<const LoweredCall> LowerJitted(const JitCall& call) {
  const FlatArgs& args = call.args;
  const std::string& name = call.options.name;
  LeafOptions leaf_options = LeafOptionsOf(call);
  if (CurrentFrame()) {
    ThrowError(
        ErrorKind::kTypeError, call.site, name,
        ": lower cannot be used in a function that is being traced; lower the outer function");
  }
  for (size_t i = 0; i < args.leaves.size(); ++i) {
    const Array& a = args.leaves[i];
    if (!a.valid() || AsTraced(a)) {
      ThrowError(ErrorKind::kTypeError, call.site, name, ": lower: ", args.path(i), " is ",
                 a.to_string(), ", but a concrete or an abstract array is expected");
    }
  }
  auto lowered = std::make_shared<LoweredCall>();
  lowered->name = name;
  lowered->site = call.site;
  lowered->traced = TraceForJit(call, leaf_options);
  lowered->tree = args.tree;
  lowered->paths = args.paths();
  lowered->types = TypesOf(args.leaves);
  lowered->donate = std::move(leaf_options.donate);
  const std::vector<Array> all = Concat(args.leaves, lowered->traced.captures);
  if (std::any_of(all.begin(), all.end(), [](const Array& a) { return AsConcrete(a); }))
    lowered->session = SessionOf(all, call.site);
  return lowered;
}

}  // namespace tessera::internal
