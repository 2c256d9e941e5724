// Parsers for the texts of GSPMD ("mhlo.sharding") and for the texts of Shardy in frontend
// attributes. Shardings (shardings.cc) calls them and translates the result to the axes of the
// program's mesh.
#include "ir/stablehlo/sharding_text.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_exception.h"
#include "ir/stablehlo/artifact.h"

namespace tessera::ir::stablehlo {
namespace {

constexpr size_t kTextMax = 65'536;
constexpr size_t kListMax = 65'536;
constexpr size_t kDimsMax = 64;

// A text that is read from its front.
class TextReader {
 public:
  TextReader(std::string_view text, std::string_view what)
      : whole_(text), rest_(text), what_(what) {
    if (text.size() > kTextMax) Fail("is too long");
  }

  [[noreturn]] void Fail(std::string_view problem) const {
    Throw(ErrorKind::kMalformedProgram,
          absl::StrCat("StableHLO: ", ToAbsl(what_), ": the sharding ", Quoted(whole_), " ",
                       ToAbsl(problem), ", at byte ", whole_.size() - rest_.size()));
  }
  [[noreturn]] void Refuse(std::string_view thing) const {
    Throw(ErrorKind::kNotImplemented, absl::StrCat("StableHLO: ", ToAbsl(what_), ": the sharding ",
                                                   Quoted(whole_), " ", ToAbsl(thing)));
  }

  // Skips spaces, then the token if it comes next. Returns whether it did.
  bool TryTake(std::string_view token) {
    SkipSpaces();
    if (rest_.substr(0, token.size()) != token) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  void Expect(std::string_view token) {
    if (!TryTake(token)) Fail(absl::StrCat("lacks ", Quoted(token)));
  }
  void ExpectEnd() {
    SkipSpaces();
    if (!rest_.empty()) Fail("goes on after its end");
  }
  // Calls `element` for each element of a list that ends with `end`.
  template <typename F>
  void ReadList(std::string_view end, F element) {
    size_t count = 0;
    if (TryTake(end)) return;
    do {
      if (++count > kListMax) Fail("has a list that is too long");
      element();
    } while (TryTake(","));
    Expect(end);
  }
  int64_t ReadInt() {
    SkipSpaces();
    const std::string_view digits = TakeWhile([](char c) { return absl::ascii_isdigit(c); });
    int64_t value = 0;
    if (digits.size() > 9 || !absl::SimpleAtoi(ToAbsl(digits), &value)) Fail("lacks a number");
    return value;
  }
  std::vector<int64_t> ReadInts(std::string_view end) {
    std::vector<int64_t> out;
    ReadList(end, [&] { out.push_back(ReadInt()); });
    return out;
  }
  std::string_view ReadWord() {
    SkipSpaces();
    return TakeWhile([](char c) { return absl::ascii_isalnum(c) || c == '_' || c == '.'; });
  }
  // Reads "x", or \"x\" in a text that was quoted again.
  std::string ReadName() {
    const bool escaped = TryTake("\\");
    Expect("\"");
    const std::string_view name = TakeWhile([](char c) { return c != '"' && c != '\\'; });
    if (escaped) Expect("\\");
    Expect("\"");
    if (name.empty()) Fail("has a name that is empty");
    return std::string(name);
  }

 private:
  void SkipSpaces() {
    while (!rest_.empty() && rest_[0] == ' ') rest_.remove_prefix(1);
  }
  template <typename F>
  std::string_view TakeWhile(F belongs) {
    size_t n = 0;
    while (n < rest_.size() && belongs(rest_[n])) ++n;
    const std::string_view front = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return front;
  }

  const std::string_view whole_;
  std::string_view rest_;
  const std::string_view what_;
};

// ---- Tiles. -------------------------------------------------------------------------------------
int64_t ProductOf(TextReader& in, const std::vector<int64_t>& sizes) {
  int64_t product = 1;
  for (const int64_t size : sizes) {
    if (size < 1) in.Fail("has a size of 0");
    if (size > kTiledDevicesMax / product)
      Throw(ErrorKind::kLimitExceeded,
            absl::StrCat("StableHLO: a sharding text of more than ", kTiledDevicesMax, " devices"));
    product *= size;
  }
  return product;
}

// Returns the devices of "<=[2,4]T(1,0)": row-major order over the sizes, with their dims permuted.
std::vector<int64_t> ReadIota(TextReader& in) {
  in.Expect("[");
  const std::vector<int64_t> sizes = in.ReadInts("]");
  const size_t rank = sizes.size();
  std::vector<int64_t> perm(rank), strides(rank, 1);
  std::iota(perm.begin(), perm.end(), 0);
  const int64_t count = ProductOf(in, sizes);
  if (rank > kDimsMax) in.Fail("has too many dims");
  if (in.TryTake("T(")) {
    std::vector<int64_t> given = in.ReadInts(")");
    if (!std::is_permutation(given.begin(), given.end(), perm.begin(), perm.end()))
      in.Fail("permutes dims that do not exist");
    perm = std::move(given);
  }
  for (size_t d = rank; d-- > 1;) strides[d - 1] = strides[d] * sizes[d];
  std::vector<int64_t> devices(count);
  for (int64_t i = 0; i < count; ++i) {
    int64_t left = i;
    for (size_t d = rank; d-- > 0;) {
      devices[i] += left % sizes[perm[d]] * strides[perm[d]];
      left /= sizes[perm[d]];
    }
  }
  return devices;
}

// Finds the axes along which the positions of a row lie, minor to major. Returns false if the
// positions do not lie along axes.
bool FindAxesOfRow(const std::vector<int64_t>& row, std::vector<AxisRange>* out) {
  for (size_t done = 1; done < row.size();) {
    const int64_t stride = row[done];
    size_t n = 1;
    while (n * done < row.size() && row[n * done] == static_cast<int64_t>(n) * stride) ++n;
    if (stride <= 0 || n < 2 || row.size() % (n * done) != 0) return false;
    for (size_t i = 0; i < n * done; ++i)
      if (row[i] != row[i % done] + static_cast<int64_t>(i / done) * stride) return false;
    out->push_back({stride, static_cast<int64_t>(n)});
    done *= n;
  }
  return true;
}

}  // namespace

bool FindGroupRanges(const std::vector<int64_t>& positions, std::vector<AxisRange>* out) {
  if (positions.empty()) return false;
  const auto [least, most] = std::minmax_element(positions.begin(), positions.end());
  if (*least < 0 || *most >= kTiledDevicesMax) return false;
  const auto along = [&](std::vector<int64_t> row) {
    std::vector<AxisRange> axes;
    const int64_t first = row[0];
    for (int64_t& position : row) position -= first;
    if (!FindAxesOfRow(row, &axes)) return false;
    *out = std::move(axes);
    return true;
  };
  if (along(positions)) return true;
  std::vector<int64_t> sorted = positions;
  std::sort(sorted.begin(), sorted.end());
  return along(std::move(sorted));
}

// Parses a sharding of GSPMD. A tiled one lists devices; to be expressed in axes, the list must be
// a product of strides along each dim. The devices along each single dim give the strides, and then
// the whole list is compared with them, so that any other order is refused and not misread.
TiledSharding ParseTiled(std::string_view text, std::string_view what) {
  TextReader in(text, what);
  TiledSharding out;
  in.Expect("{");
  if (in.TryTake("replicated")) {
    in.Expect("}");
  } else if (in.TryTake("manual")) {
    out.kind = TiledSharding::kManual;
    in.Expect("}");
  } else if (in.TryTake("maximal device=")) {
    out.kind = TiledSharding::kMaximal;
    in.ReadInt();
    in.Expect("}");
  } else if (in.TryTake("devices=[")) {
    out.kind = TiledSharding::kTiled;
    const std::vector<int64_t> tiles = in.ReadInts("]");
    if (tiles.size() > kDimsMax) in.Fail("has too many dims");
    out.devices = ProductOf(in, tiles);
    std::vector<int64_t> devices;
    if (in.TryTake("<=")) {
      devices = ReadIota(in);
    } else {
      do devices.push_back(in.ReadInt());
      while (devices.size() < kListMax && in.TryTake(","));
    }
    if (static_cast<int64_t>(devices.size()) != out.devices)
      in.Fail("has too few devices, or too many");
    std::vector<std::string_view> last;
    if (in.TryTake("last_tile_dim_replicate")) last = {"replicated"};
    if (in.TryTake("last_tile_dims={")) in.ReadList("}", [&] { last.push_back(in.ReadWord()); });
    if (last.size() > tiles.size()) in.Fail("has too few dims");
    if (!in.TryTake("}")) in.Refuse("says more than Tessera's shardings can; export with Shardy");
    // The positions along each dim, with the other dims at 0, show where its axes lie.
    if (devices[0] != 0)
      in.Refuse("begins at another device than the first; list the devices in the order of a mesh");
    const size_t dims = tiles.size() - last.size();
    std::vector<std::vector<int64_t>> rows(tiles.size());
    int64_t step = 1;
    for (size_t d = tiles.size(); d-- > 0; step *= tiles[d]) {
      for (int64_t i = 0; i < tiles[d]; ++i) rows[d].push_back(devices[i * step]);
      std::vector<AxisRange> axes;
      const bool is_tile = d < dims, is_manual = !is_tile && last[d - dims] == "manual";
      if (!is_tile && !is_manual) {
        if (last[d - dims] != "replicated") in.Refuse("has a subgroup that Tessera does not know");
        continue;
      }
      if (!FindAxesOfRow(rows[d], &axes))
        in.Refuse("has devices in an order that no mesh has; list them in the order of a mesh");
      std::reverse(axes.begin(), axes.end());
      if (is_manual) {
        out.manual.insert(out.manual.end(), axes.begin(), axes.end());
      } else {
        out.dims.insert(out.dims.begin(), std::move(axes));
      }
    }
    // Then all devices must agree with these axes.
    for (int64_t i = 0; i < out.devices; ++i) {
      int64_t left = i, device = 0;
      for (size_t d = tiles.size(); d-- > 0; left /= tiles[d]) device += rows[d][left % tiles[d]];
      if (device != devices[i])
        in.Refuse("has devices in an order that no mesh has; list them in the order of a mesh");
    }
  } else if (in.TryTake("{")) {
    in.Refuse("is for a tuple, but Tessera has no tuples; pass its parts");
  } else {
    in.Refuse("has a kind that Tessera does not know");
  }
  in.ExpectEnd();
  return out;
}

// ---- Shardy's. ----------------------------------------------------------------------------------
namespace {

// Reads "x", or "x":(1)2, a part of an axis.
AxisPart ReadAxis(TextReader& in) {
  AxisPart out;
  out.name = in.ReadName();
  if (!in.TryTake(":(")) return out;
  out.before = in.ReadInt();
  in.Expect(")");
  out.size = in.ReadInt();
  if (out.before < 1 || out.size < 1) in.Fail("has a part of an axis that is empty");
  return out;
}

// Reads <@mesh, [{"x"}, {"y", ?}], replicated={"z"}>.
NamedSharding ReadSharding(TextReader& in) {
  NamedSharding out;
  in.Expect("<");
  if (!in.TryTake("@"))
    in.Refuse("has a mesh of its own, which Tessera does not read; name one that is declared");
  out.mesh = std::string(in.ReadWord());
  in.Expect(",");
  in.Expect("[");
  in.ReadList("]", [&] {
    std::vector<AxisPart> axes;
    bool open = false;
    in.Expect("{");
    in.ReadList("}", [&] {
      if (in.TryTake("?")) {
        open = true;
      } else if (open) {
        in.Fail("has an axis after a '?'");
      } else {
        axes.push_back(ReadAxis(in));
      }
    });
    if (in.TryTake("p")) in.ReadInt();
    out.dims.push_back(std::move(axes));
    out.open.push_back(open);
  });
  while (in.TryTake(",")) {
    std::vector<AxisPart>& axes = in.TryTake("unreduced=") ? out.unreduced : out.replicated;
    if (&axes == &out.replicated) in.Expect("replicated=");
    in.Expect("{");
    in.ReadList("}", [&] { axes.push_back(ReadAxis(in)); });
  }
  in.Expect(">");
  return out;
}

}  // namespace

NamedSharding ParseSharding(std::string_view text, std::string_view what) {
  TextReader in(text, what);
  in.Expect("#sdy.sharding");
  NamedSharding out = ReadSharding(in);
  in.ExpectEnd();
  return out;
}

std::vector<NamedSharding> ParseShardingPerValue(std::string_view text, std::string_view what) {
  TextReader in(text, what);
  std::vector<NamedSharding> out;
  in.Expect("#sdy.sharding_per_value<[");
  in.ReadList("]", [&] { out.push_back(ReadSharding(in)); });
  in.Expect(">");
  in.ExpectEnd();
  return out;
}

AxisList ParseManualAxes(std::string_view text, std::string_view what) {
  TextReader in(text, what);
  AxisList out;
  in.Expect("#sdy<manual_axes{");
  in.ReadList("}", [&] { out.push_back(in.ReadName()); });
  in.Expect(">");
  in.ExpectEnd();
  return out;
}

// Parses the meshes of a module. This function only reads names, axes and device ids; Shardings
// checks that the meshes are valid.
std::vector<NamedMesh> ParseMeshes(std::string_view text, std::string_view what) {
  TextReader in(text, what);
  std::vector<NamedMesh> out;
  in.Expect("{");
  in.ReadList("}", [&] {
    NamedMesh mesh;
    mesh.name = std::string(in.ReadWord());
    in.Expect("=");
    in.Expect("#sdy.mesh<[");
    in.ReadList("]", [&] {
      MeshAxis axis;
      axis.name = in.ReadName();
      in.Expect("=");
      axis.size = in.ReadInt();
      mesh.axes.push_back(std::move(axis));
    });
    if (in.TryTake(",")) {
      in.Expect("device_ids=[");
      mesh.device_ids = in.ReadInts("]");
    }
    in.Expect(">");
    out.push_back(std::move(mesh));
  });
  in.ExpectEnd();
  return out;
}

}  // namespace tessera::ir::stablehlo
