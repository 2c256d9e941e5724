"""Measures how long a translation unit that uses the SDK takes to compile, in processor time of the compiler:
examples/mlp.cc and examples/quickstart.cc, beside a unit that uses the standard library alone and never changes.

  python3 bench/translation_unit.py [--build FOLDER] [--rounds N] [--then FOLDER]...

The flags are those of the build folder's compile_commands.json. The units take turns, and the fastest of each counts.
`--then` gives a checkout of an earlier commit. The script then compiles examples/quickstart.cc of that checkout too,
with the headers of the checkout, and prints the ratio of the time of today's examples/mlp.cc to that time.
"""
import argparse
import json
import os
import pathlib
import resource
import shlex
import subprocess

# The unit to compare with. It uses what many programs use of the standard library.
REFERENCE = """
#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <regex>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

using Value = std::variant<bool, long, double, std::string, std::vector<long>, std::vector<std::string>>;

int main(int argc, char** argv) {
  std::map<std::string, std::vector<Value>> values;
  const std::regex number("([0-9]+)([.][0-9]*)?"), word("[a-z]+(-[a-z]+)*", std::regex::icase);
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    std::smatch match;
    if (std::regex_match(text, match, number)) {
      values["numbers"].push_back(std::stod(match[1].str()));
    } else {
      values["words"].push_back(std::regex_replace(text, word, "<$&>"));
    }
  }
  std::mt19937_64 random(1);
  for (auto& [name, list] : values) {
    std::shuffle(list.begin(), list.end(), random);
    std::sort(list.begin(), list.end());
    std::cout << name << " " << list.size() << "\\n";
  }
  const std::function<std::optional<Value>(const std::string&)> first = [values](const std::string& name) {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional(found->second.front());
  };
  return first("words").has_value() ? 0 : 1;
}
"""


def command_of(build, source):
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if pathlib.Path(entry["file"]) == source:
            words = shlex.split(entry["command"])
            at = words.index("-o")
            del words[at:at + 2]
            at = words.index("-c")
            del words[at:at + 2]
            return words + ["-o", os.devnull]
    raise SystemExit(f"{build}/compile_commands.json has no {source}; configure that folder, or give another --build")


def seconds(command, text):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, input=text, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=root / "build/dev")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--then", type=pathlib.Path, action="append", default=[])
    flags = parser.parse_args()

    def unit(tree, name):
        words = command_of(flags.build, root / name)
        here = [f"-I{tree}" if w == f"-I{root}" else w for w in words]
        return here + ["-c", str(tree / name)]

    quickstart, mlp = "examples/quickstart.cc", "examples/mlp.cc"
    units = {"the standard library's": (command_of(flags.build, root / mlp) + ["-x", "c++", "-c", "-"], REFERENCE)}
    units[quickstart] = (unit(root, quickstart), None)
    units[mlp] = (unit(root, mlp), None)
    then = {f"quickstart.cc in {tree.name}": tree.resolve() for tree in flags.then}
    for name, tree in then.items():
        units[name] = (unit(tree, quickstart), None)
    times = {name: [] for name in units}
    for _ in range(flags.rounds):
        for name, (command, text) in units.items():
            times[name].append(seconds(command, text))
    reference = min(times["the standard library's"])
    print(f"{'unit':32} {'seconds':>8} {'median':>8} {'of the first':>13}")
    for name, took in times.items():
        print(f"{name:32} {min(took):8.2f} {sorted(took)[len(took) // 2]:8.2f} {min(took) / reference:13.2f}")
    for name in then:
        print(f"{mlp} to {name}: {min(times[mlp]) / min(times[name]):.2f}")


if __name__ == "__main__":
    main()
