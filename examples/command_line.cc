// Reads the command lines of the examples and opens the session that their options name. Every
// example calls Main with its own function Run, which parses its options here and opens its
// cluster, so that an example's own file shows little besides its program. The release contains
// this file as source, and users compile it with the SDK alone. It therefore uses no library for
// command lines.
#include "examples/command_line.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace tessera::examples {
namespace {

template <class T, class Parse>
T ParsePositive(const std::string& name, const std::string& text, T least, Parse parse) {
  size_t used = 0;
  T value = 0;
  try {
    value = parse(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  if (used == 0 || used != text.size() || !(value >= least))
    throw UsageError(name + ": a number of 1 or more is expected, not '" + text + "'");
  return value;
}

struct SetOption {
  const std::string& name;
  const std::string& text;
  void operator()(std::string* to) const { *to = text; }
  void operator()(int64_t* to) const {
    *to = ParsePositive<int64_t>(
        name, text, 1, [](const std::string& s, size_t* used) { return std::stoll(s, used); });
  }
  void operator()(double* to) const {
    *to = ParsePositive<double>(
        name, text, 1, [](const std::string& s, size_t* used) { return std::stod(s, used); });
  }
  void operator()(bool* to) const { *to = true; }
};

}  // namespace

void ParseOptions(int argc, char** argv, const std::vector<Option>& options) {
  for (int i = 1; i < argc; ++i) {
    std::string name = argv[i], value;
    const size_t equals = name.find('=');
    const bool is_inline = equals != std::string::npos;
    if (is_inline) {
      value = name.substr(equals + 1);
      name.resize(equals);
    }
    if (name == "--help") throw UsageError("");
    const auto option = std::find_if(options.begin(), options.end(),
                                     [&](const Option& o) { return o.name == name; });
    if (option == options.end()) throw UsageError("unknown option '" + name + "'");
    if (std::holds_alternative<bool*>(option->value)) {
      if (is_inline) throw UsageError(name + " takes no value");
    } else if (!is_inline) {
      if (i + 1 == argc) throw UsageError(name + ": a value is expected");
      value = argv[++i];
    }
    std::visit(SetOption{name, value}, option->value);
  }
}

std::pair<int64_t, int64_t> ParseMesh(const std::string& text) {
  const size_t comma = text.find(',');
  if (text.rfind("data=", 0) != 0 || comma == std::string::npos ||
      text.compare(comma + 1, 6, "model=") != 0)
    throw UsageError("--mesh: data=D,model=M is expected, not '" + text + "'");
  std::pair<int64_t, int64_t> sizes;
  SetOption{"--mesh data", text.substr(5, comma - 5)}(&sizes.first);
  SetOption{"--mesh model", text.substr(comma + 7)}(&sizes.second);
  return sizes;
}

std::vector<Option> SessionFlags::Options() {
  return {{"--address", &address}, {"--embedded", &embedded}};
}

std::vector<Option> ClusterFlags::Options() {
  std::vector<Option> options = session.Options();
  options.push_back({"--mesh", &mesh});
  return options;
}

std::shared_ptr<Session> OpenSession(const SessionFlags& flags, int64_t devices,
                                     std::string* checkpoint) {
  std::string address = flags.address;
  if (const char* set = std::getenv("TESSERA_ADDRESS"); set && address.empty() && !flags.embedded)
    address = set;
  std::shared_ptr<Session> session;
  if (address.empty()) {
    EmbeddedOptions options{.devices = static_cast<int>(devices)};
    const size_t slash = checkpoint == nullptr ? std::string::npos : checkpoint->rfind('/');
    if (slash != std::string::npos) {
      options.files_dir = checkpoint->substr(0, std::max<size_t>(slash, 1));
      checkpoint->erase(0, slash + 1);
    }
    session = Session::Embedded(options);
  } else {
    ConnectOptions options;
    options.min_devices = static_cast<int>(devices);
    session = Session::Connect(address, options);
  }
  Session::SetDefault(session);
  return session;
}

Cluster OpenCluster(const ClusterFlags& flags, std::string* checkpoint) {
  const auto [data, model] = ParseMesh(flags.mesh);
  Cluster cluster;
  cluster.session = OpenSession(flags.session, data * model, checkpoint);
  cluster.mesh = make_mesh({data, model}, {"data", "model"}, {AxisType::kAuto, AxisType::kAuto});
  return cluster;
}

int Main(const char* name, const std::string& usage, int (*run)(int argc, char** argv), int argc,
         char** argv) {
  try {
    return run(argc, argv);
  } catch (const UsageError& e) {
    if (*e.what()) std::fprintf(stderr, "%s: %s\n", name, e.what());
    std::fputs(usage.c_str(), *e.what() ? stderr : stdout);
    return *e.what() ? 2 : 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s: %s\n", name, e.what());
    return 1;
  }
}

}  // namespace tessera::examples
