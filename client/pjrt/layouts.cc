// The layouts extension of the PJRT C API (plugin.cc puts it into the table). Through it the
// framework asks for the layouts of buffers, arguments and results.
#include "client/pjrt/layouts.h"

#include <deque>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "client/pjrt/buffer.h"
#include "client/pjrt/executable.h"

namespace tessera::pjrt {

struct Layout {
  std::string text;
};

namespace {

// The layouts of all ranks up to the highest that was asked for. They are in a deque, because the
// elements of a deque stay where they are when it grows.
struct Layouts {
  absl::Mutex mu;
  std::deque<Layout> by_rank ABSL_GUARDED_BY(mu);
};

Error* Destroy(Layout_Destroy_Args*) { return nullptr; }

Error* Serialize(Layout_Serialize_Args* args) {
  args->serialized_bytes = args->layout->text.data();
  args->serialized_bytes_size = args->layout->text.size();
  args->serialized_layout = nullptr;
  args->serialized_layout_deleter = [](LayoutText*) {};
  return nullptr;
}

template <class Args>
Error* Default(Args* args) {
  args->layout = RowMajor(args->num_dims);
  return nullptr;
}

Error* OfBuffer(Buffer_Layout_Args* args) {
  args->layout = RowMajor(args->buffer->dims.size());
  return nullptr;
}

Error* OfOutputs(Executable_Layouts_Args* args) {
  const std::vector<Layout*>& layouts = args->executable->compiled->out_layouts;
  args->num_layouts = layouts.size();
  args->layouts = layouts.data();
  return nullptr;
}

Error* OfParameters(Executable_Layouts_Args* args) {
  const std::vector<Layout*>& layouts = args->executable->compiled->in_layouts;
  args->num_layouts = layouts.size();
  args->layouts = layouts.data();
  return nullptr;
}

}  // namespace

Layout* RowMajor(size_t rank) {
  static auto* const layouts = new Layouts;
  absl::MutexLock lock(&layouts->mu);
  while (layouts->by_rank.size() <= rank) {
    std::string text = "{";
    for (size_t d = layouts->by_rank.size(); d > 0; --d)
      absl::StrAppend(&text, d - 1, d > 1 ? "," : "");
    layouts->by_rank.push_back({absl::StrCat(text, "}")});
  }
  return &layouts->by_rank[rank];
}

const LayoutsExtension kLayouts = {
    {sizeof(LayoutsExtension), kLayoutsExtension, nullptr},
    Destroy,
    Serialize,
    Default<Client_GetDefaultLayout_Args>,
    OfBuffer,
    Default<Topology_GetDefaultLayout_Args>,
    OfOutputs,
    OfParameters,
};

}  // namespace tessera::pjrt
