// The layouts extension of the PJRT C API (plugin.cc puts it into the table). Through it the
// framework asks for the layouts of buffers, arguments and results.
#include "client/pjrt/layouts_extension.h"

#include <vector>

#include "client/pjrt/buffer.h"
#include "client/pjrt/executable.h"
#include "client/pjrt/layouts.h"

namespace tessera::pjrt {
namespace {

Error* DestroyLayout(Layout_Destroy_Args*) { return nullptr; }

Error* SerializeLayout(Layout_Serialize_Args* args) {
  args->serialized_bytes = args->layout->text.data();
  args->serialized_bytes_size = args->layout->text.size();
  args->serialized_layout = nullptr;
  args->serialized_layout_deleter = [](LayoutText*) {};
  return nullptr;
}

template <class Args>
Error* DefaultLayout(Args* args) {
  args->layout = RowMajorLayout(args->num_dims);
  return nullptr;
}

Error* LayoutOfBuffer(Buffer_Layout_Args* args) {
  args->layout = RowMajorLayout(args->buffer->dims.size());
  return nullptr;
}

Error* LayoutsOfOutputs(Executable_Layouts_Args* args) {
  const std::vector<Layout*>& layouts = args->executable->compiled->out_layouts;
  args->num_layouts = layouts.size();
  args->layouts = layouts.data();
  return nullptr;
}

Error* LayoutsOfParameters(Executable_Layouts_Args* args) {
  const std::vector<Layout*>& layouts = args->executable->compiled->in_layouts;
  args->num_layouts = layouts.size();
  args->layouts = layouts.data();
  return nullptr;
}

}  // namespace

const LayoutsExtension kLayouts = {
    {sizeof(LayoutsExtension), kLayoutsExtension, nullptr},
    DestroyLayout,
    SerializeLayout,
    DefaultLayout<Client_GetDefaultLayout_Args>,
    LayoutOfBuffer,
    DefaultLayout<Topology_GetDefaultLayout_Args>,
    LayoutsOfOutputs,
    LayoutsOfParameters,
};

}  // namespace tessera::pjrt
