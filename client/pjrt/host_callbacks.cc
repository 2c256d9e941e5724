// Keeps the two C functions of the host, and converts arrays to the values that the first one
// takes. plugin.cc lets the framework's process set the functions, and make_calls.cc makes the
// calls.
#include "client/pjrt/host_callbacks.h"

#include <atomic>
#include <cstddef>
#include <utility>

#include "client/pjrt/types.h"

namespace tessera::pjrt {
namespace {

constexpr size_t kErrorSize = 16 << 10;  // room for the error text of a call that fails

std::atomic<HostCallback> host_callback{nullptr};
std::atomic<HoldCallback> hold_callback{nullptr};

void Hold(const std::vector<std::string>& names, bool held) {
  const HoldCallback hold = hold_callback.load();
  if (hold == nullptr) return;
  for (const std::string& name : names) hold(name.c_str(), held);
}

HostValue ValueOf(const ir::Array& a, void* data) {
  return {data, PjrtTypeOfDType(a.dtype()), a.shape().data(), a.shape().size()};
}

}  // namespace

absl::Status CallHost(const std::string& id, absl::Span<const ir::Array> arrays,
                      absl::Span<ir::Array> results) {
  std::vector<HostValue> values, wanted;
  for (const ir::Array& a : arrays) values.push_back(ValueOf(a, const_cast<std::byte*>(a.data())));
  for (ir::Array& a : results) {
    std::byte* const data = a.MutableData();
    wanted.push_back(ValueOf(a, data));
  }
  std::vector<char> error(kErrorSize, '\0');
  const HostCallback callback = host_callback.load();
  if (callback == nullptr) {
    if (results.empty()) return absl::OkStatus();
    return absl::InternalError("the process has already dropped the functions that programs call");
  }
  if (callback(id.c_str(), values.size(), values.data(), wanted.size(), wanted.data(), error.data(),
               error.size()) == 0)
    return absl::OkStatus();
  error.back() = '\0';
  return absl::InternalError(error.data());
}

void SetHostCallbacks(HostCallback callback, HoldCallback hold) {
  host_callback.store(callback);
  hold_callback.store(hold);
}

HeldCallbacks::HeldCallbacks(std::vector<std::string> names) : names_(std::move(names)) {
  Hold(names_, /*held=*/true);
}
HeldCallbacks::~HeldCallbacks() { Hold(names_, /*held=*/false); }

}  // namespace tessera::pjrt
