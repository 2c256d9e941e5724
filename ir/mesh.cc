// Meshes and partition specs: the numbering of devices, the text forms, and the check of a mesh.
// Everyone who needs the coordinates or the group of a device asks here, so that planner, evaluator
// and workers number devices in the same way.
#include "ir/mesh.h"

#include <algorithm>
#include <cctype>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"

namespace tessera::ir {
namespace {

bool IsIdentifier(const std::string& s) {
  if (s.empty() || s.size() > 64 || std::isdigit(static_cast<unsigned char>(s[0]))) return false;
  return std::all_of(s.begin(), s.end(),
                     [](unsigned char c) { return std::isalnum(c) || c == '_'; });
}

std::string EntryText(const AxisList& axes, bool open) {
  if (axes.empty()) return open ? "?" : "None";
  if (axes.size() == 1 && !open) return absl::StrCat("'", axes[0], "'");
  return absl::StrCat("('", absl::StrJoin(axes, "','"), open ? "',?)" : "')");
}

}  // namespace

std::string_view AxisTypeName(AxisType type) {
  constexpr std::string_view kNames[] = {"auto", "explicit", "manual"};
  return kNames[static_cast<int>(type)];
}

int64_t Mesh::num_devices() const {
  int64_t n = 1;
  for (const MeshAxis& a : axes) n *= a.size;
  return n;
}

int Mesh::IndexOf(std::string_view axis) const {
  for (size_t i = 0; i < axes.size(); ++i)
    if (axes[i].name == axis) return static_cast<int>(i);
  return -1;
}

int64_t Mesh::SizeOf(std::string_view axis) const { return axes.at(IndexOf(axis)).size; }
AxisType Mesh::TypeOf(std::string_view axis) const { return axes.at(IndexOf(axis)).type; }
int64_t Mesh::SizeOf(absl::Span<const std::string> names) const {
  int64_t n = 1;
  for (const std::string& a : names) n *= SizeOf(a);
  return n;
}

std::vector<std::string> Mesh::AxesOfType(AxisType type) const {
  std::vector<std::string> out;
  for (const MeshAxis& a : axes)
    if (a.type == type) out.push_back(a.name);
  return out;
}

Mesh Mesh::WithAxisType(absl::Span<const std::string> names, AxisType type) const {
  Mesh m = *this;
  for (const std::string& n : names)
    if (int i = IndexOf(n); i >= 0) m.axes[i].type = type;
  return m;
}

bool Mesh::SameShape(const Mesh& other) const {
  return std::equal(
      axes.begin(), axes.end(), other.axes.begin(), other.axes.end(),
      [](const MeshAxis& a, const MeshAxis& b) { return a.name == b.name && a.size == b.size; });
}

std::vector<int64_t> Mesh::Coordinates(int64_t device) const {
  std::vector<int64_t> c(axes.size());
  for (int i = static_cast<int>(axes.size()) - 1; i >= 0; --i) {
    c[i] = device % axes[i].size;
    device /= axes[i].size;
  }
  return c;
}

int64_t Mesh::DeviceAt(absl::Span<const int64_t> coordinates) const {
  int64_t d = 0;
  for (size_t i = 0; i < axes.size(); ++i) d = d * axes[i].size + coordinates[i];
  return d;
}

int64_t Mesh::IndexAlong(int64_t device, absl::Span<const std::string> names) const {
  const std::vector<int64_t> c = Coordinates(device);
  int64_t index = 0;
  for (const std::string& n : names) index = index * SizeOf(n) + c[IndexOf(n)];
  return index;
}

std::vector<int64_t> Mesh::GroupOf(int64_t device, absl::Span<const std::string> names) const {
  const int64_t n = SizeOf(names);
  std::vector<int64_t> group(n);
  std::vector<int64_t> c = Coordinates(device);
  for (int64_t k = 0; k < n; ++k) {
    int64_t rest = k;
    for (int i = static_cast<int>(names.size()) - 1; i >= 0; --i) {
      c[IndexOf(names[i])] = rest % SizeOf(names[i]);
      rest /= SizeOf(names[i]);
    }
    group[k] = DeviceAt(c);
  }
  return group;
}

std::string Mesh::ToString() const {
  return absl::StrCat("(",
                      absl::StrJoin(axes, ", ",
                                    [](std::string* out, const MeshAxis& a) {
                                      absl::StrAppend(out, a.name, "=", a.size);
                                      if (a.type != AxisType::kAuto)
                                        absl::StrAppend(out, ":", ToAbsl(AxisTypeName(a.type)));
                                    }),
                      ")");
}

absl::Status CheckMesh(const Mesh& mesh) {
  int64_t product = 1;
  for (size_t i = 0; i < mesh.axes.size(); ++i) {
    const MeshAxis& a = mesh.axes[i];
    if (!IsIdentifier(a.name))
      return MakeError(ErrorKind::kValueError,
                       absl::StrCat("mesh: axis name '", a.name, "' is not an identifier"));
    if (mesh.IndexOf(a.name) != static_cast<int>(i))
      return MakeError(ErrorKind::kValueError,
                       absl::StrCat("mesh: axis '", a.name, "' is named twice"));
    if (a.size < 1 || a.size > (int64_t{1} << 30) || (product *= a.size) >= (int64_t{1} << 31))
      return MakeError(ErrorKind::kValueError,
                       absl::StrCat("mesh: axis '", a.name, "' has size ", a.size,
                                    "; sizes are positive and their product below 2^31"));
  }
  return absl::OkStatus();
}

std::string PartitionSpec::ToString() const {
  std::vector<std::string> parts;
  for (size_t i = 0; i < dims.size(); ++i) parts.push_back(EntryText(dims[i], IsOpen(i)));
  auto set = [](const AxisList& a) { return absl::StrCat("{'", absl::StrJoin(a, "','"), "'}"); };
  if (!unreduced.empty()) parts.push_back(absl::StrCat("unreduced=", set(unreduced)));
  if (!reduced.empty()) parts.push_back(absl::StrCat("reduced=", set(reduced)));
  return absl::StrCat("P(", absl::StrJoin(parts, ", "), ")");
}

bool PartitionSpec::Mentions(std::string_view axis) const {
  auto in = [&](const AxisList& list) {
    return std::find(list.begin(), list.end(), axis) != list.end();
  };
  return std::any_of(dims.begin(), dims.end(), in) || in(unreduced) || in(reduced);
}

}  // namespace tessera::ir
