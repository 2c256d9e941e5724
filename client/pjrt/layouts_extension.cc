// The layouts extension of the PJRT C API (plugin.cc puts it into the table). Through it the
// framework asks for the layouts of buffers, arguments and results.
#include "client/pjrt/layouts_extension.h"

#include <vector>

#include "client/pjrt/buffer.h"
#include "client/pjrt/executable.h"
#include "client/pjrt/layouts.h"

namespace tessera::pjrt {
namespace {

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
