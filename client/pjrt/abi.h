// The PJRT C API in the version that the plugin implements: the structs that its functions take,
// and its function table.
//
// Each argument is a struct that begins with its own size, as its caller knows it. A caller of
// another version may know fewer fields or more. The functions of the table (plugin.cc) always see
// all fields that are declared here.
//
// Source: the layout of version 0.114 (openxla/xla, xla/pjrt/c/pjrt_c_api.h). The structs and
// fields have the names that they have there. "<" marks a field that the function fills in.
#pragma once
#include <cstddef>
#include <cstdint>

namespace tessera::pjrt {

struct Buffer;
struct Client;
struct Device;
struct DeviceDescription;
struct Error;
struct Event;
struct Executable;
struct LoadedExecutable;
struct Memory;
struct Topology;

inline constexpr int kMajor = 0, kMinor = 114;

struct Header {
  size_t struct_size;
  void* extension_start;
};

// ---- Values. -----------------------------------------------------------------------------------
enum NamedValueType : int { kString = 0, kInt64 = 1, kInt64List = 2, kFloat = 3, kBool = 4 };
struct NamedValue : Header {
  const char* name;
  size_t name_size;
  NamedValueType type;
  union {
    const char* string_value;
    int64_t int64_value;
    const int64_t* int64_array_value;
    float float_value;
    bool bool_value;
  };
  size_t value_size;  // length of a string or a list; 1 for other types
};

struct ProgramBytes : Header {
  char* code;
  size_t code_size;
  const char* format;
  size_t format_size;
};

enum LayoutType : int { kTiled = 0, kStrides = 1 };
struct TiledLayout : Header {
  const int64_t* minor_to_major;
  size_t minor_to_major_size;
  const int64_t* tile_dims;
  const size_t* tile_dim_sizes;
  size_t num_tiles;
};
struct StridedLayout : Header {
  const int64_t* byte_strides;
  size_t num_byte_strides;
};
struct MemoryLayout : Header {
  union {
    TiledLayout tiled;
    StridedLayout strides;
  };
  LayoutType type;
};

struct LogicalDeviceIds {
  int replica;
  int partition;
};

enum HostBufferSemantics : int {
  kImmutableOnlyDuringCall = 0,
  kImmutableUntilTransferCompletes = 1,
  kImmutableZeroCopy = 2,
  kMutableZeroCopy = 3,
};

struct ExecuteOptions : Header {
  void* send_callbacks;
  void* recv_callbacks;
  size_t num_send_ops;
  size_t num_recv_ops;
  int launch_id;
  const int64_t* non_donatable_input_indices;
  size_t num_non_donatable_input_indices;
  // The API has more fields, which the plugin does not use.
};

// Receives an error and owns it, or null if there is none.
using OnReadyCallback = void (*)(Error*, void* user_arg);
using PayloadVisitor = void (*)(const char* key, size_t key_size, const char* value,
                                size_t value_size, void* user_arg);

// ---- Errors. -----------------------------------------------------------------------------------
struct Error_Destroy_Args : Header {
  Error* error;
};
struct Error_Message_Args : Header {
  const Error* error;
  const char* message;  // <
  size_t message_size;  // <
};
struct Error_GetCode_Args : Header {
  const Error* error;
  int code;  // <
};
struct Error_ForEachPayload_Args : Header {
  const Error* error;
  PayloadVisitor visitor;
  void* user_arg;
};

// ---- The plugin. -------------------------------------------------------------------------------
struct Plugin_Initialize_Args : Header {};
struct Plugin_Attributes_Args : Header {
  const NamedValue* attributes;  // <
  size_t num_attributes;         // <
};

// ---- Events. -----------------------------------------------------------------------------------
struct Event_Destroy_Args : Header {
  Event* event;
};
struct Event_IsReady_Args : Header {
  Event* event;
  bool is_ready;  // <
};
struct Event_Error_Args : Header {
  Event* event;
};
struct Event_Await_Args : Header {
  Event* event;
};
struct Event_OnReady_Args : Header {
  Event* event;
  OnReadyCallback callback;
  void* user_arg;
};
struct Event_Create_Args : Header {
  Event* event;  // <
};
struct Event_Set_Args : Header {
  Event* event;
  int error_code;
  const char* error_message;
  size_t error_message_size;
};

// ---- Clients. ----------------------------------------------------------------------------------
struct Client_Create_Args : Header {
  const NamedValue* create_options;
  size_t num_options;
  void* kv_get_callback;
  void* kv_get_user_arg;
  void* kv_put_callback;
  void* kv_put_user_arg;
  Client* client;  // <
};
struct Client_Destroy_Args : Header {
  Client* client;
};
struct Client_PlatformName_Args : Header {
  Client* client;
  const char* platform_name;  // <
  size_t platform_name_size;  // <
};
struct Client_ProcessIndex_Args : Header {
  Client* client;
  int process_index;  // <
};
struct Client_PlatformVersion_Args : Header {
  Client* client;
  const char* platform_version;  // <
  size_t platform_version_size;  // <
};
struct Client_Devices_Args : Header {
  Client* client;
  Device* const* devices;  // <
  size_t num_devices;      // <
};
struct Client_AddressableDevices_Args : Header {
  Client* client;
  Device* const* addressable_devices;  // <
  size_t num_addressable_devices;      // <
};
struct Client_LookupDevice_Args : Header {
  Client* client;
  int id;
  Device* device;  // <
};
struct Client_LookupAddressableDevice_Args : Header {
  Client* client;
  int local_hardware_id;
  Device* addressable_device;  // <
};
struct Client_AddressableMemories_Args : Header {
  Client* client;
  Memory* const* addressable_memories;  // <
  size_t num_addressable_memories;      // <
};
struct Client_Compile_Args : Header {
  Client* client;
  const ProgramBytes* program;
  const char* compile_options;
  size_t compile_options_size;
  LoadedExecutable* executable;  // <
};
struct Client_DefaultDeviceAssignment_Args : Header {
  Client* client;
  int num_replicas;
  int num_partitions;
  size_t default_assignment_size;
  int* default_assignment;  // <
};
struct Client_BufferFromHostBuffer_Args : Header {
  Client* client;
  const void* data;
  int type;
  const int64_t* dims;
  size_t num_dims;
  const int64_t* byte_strides;
  size_t num_byte_strides;
  HostBufferSemantics host_buffer_semantics;
  Device* device;
  Memory* memory;
  MemoryLayout* device_layout;
  Event* done_with_host_buffer;  // <
  Buffer* buffer;                // <
};
struct Client_TopologyDescription_Args : Header {
  Client* client;
  Topology* topology;  // <
};

// ---- Devices and memories. ---------------------------------------------------------------------
struct DeviceDescription_Id_Args : Header {
  DeviceDescription* device_description;
  int id;  // <
};
struct DeviceDescription_ProcessIndex_Args : Header {
  DeviceDescription* device_description;
  int process_index;  // <
};
struct DeviceDescription_Attributes_Args : Header {
  DeviceDescription* device_description;
  size_t num_attributes;         // <
  const NamedValue* attributes;  // <
};
struct DeviceDescription_Kind_Args : Header {
  DeviceDescription* device_description;
  const char* device_kind;  // <
  size_t device_kind_size;  // <
};
struct DeviceDescription_DebugString_Args : Header {
  DeviceDescription* device_description;
  const char* debug_string;  // <
  size_t debug_string_size;  // <
};
struct DeviceDescription_ToString_Args : Header {
  DeviceDescription* device_description;
  const char* to_string;  // <
  size_t to_string_size;  // <
};
struct Device_GetDescription_Args : Header {
  Device* device;
  DeviceDescription* device_description;  // <
};
struct Device_IsAddressable_Args : Header {
  Device* device;
  bool is_addressable;  // <
};
struct Device_LocalHardwareId_Args : Header {
  Device* device;
  int local_hardware_id;  // <
};
struct Device_AddressableMemories_Args : Header {
  Device* device;
  Memory* const* memories;  // <
  size_t num_memories;      // <
};
struct Device_DefaultMemory_Args : Header {
  Device* device;
  Memory* memory;  // <
};
struct Device_GetAttributes_Args : Header {
  Device* device;
  const NamedValue* attributes;                  // <
  size_t num_attributes;                         // <
  void* device_attributes;                       // < argument for `attributes_deleter`
  void (*attributes_deleter)(void* attributes);  // <
};
struct Memory_Id_Args : Header {
  Memory* memory;
  int id;  // <
};
struct Memory_Kind_Args : Header {
  Memory* memory;
  const char* kind;  // <
  size_t kind_size;  // <
};
struct Memory_Kind_Id_Args : Header {
  Memory* memory;
  int kind_id;  // <
};
struct Memory_DebugString_Args : Header {
  Memory* memory;
  const char* debug_string;  // <
  size_t debug_string_size;  // <
};
struct Memory_ToString_Args : Header {
  Memory* memory;
  const char* to_string;  // <
  size_t to_string_size;  // <
};
struct Memory_AddressableByDevices_Args : Header {
  Memory* memory;
  Device* const* devices;  // <
  size_t num_devices;      // <
};

// ---- Executables. ------------------------------------------------------------------------------
struct Executable_Destroy_Args : Header {
  Executable* executable;
};
struct Executable_Name_Args : Header {
  Executable* executable;
  const char* executable_name;  // <
  size_t executable_name_size;  // <
};
struct Executable_NumReplicas_Args : Header {
  Executable* executable;
  size_t num_replicas;  // <
};
struct Executable_NumPartitions_Args : Header {
  Executable* executable;
  size_t num_partitions;  // <
};
struct Executable_NumOutputs_Args : Header {
  Executable* executable;
  size_t num_outputs;  // <
};
struct Executable_SizeOfGeneratedCodeInBytes_Args : Header {
  Executable* executable;
  int64_t size_in_bytes;  // <
};
struct Executable_GetCostAnalysis_Args : Header {
  Executable* executable;
  size_t num_properties;         // <
  const NamedValue* properties;  // <
};
struct Executable_OutputMemoryKinds_Args : Header {
  Executable* executable;
  size_t num_outputs;
  const char* const* memory_kinds;  // <
  const size_t* memory_kind_sizes;  // <
};
struct Executable_Serialize_Args : Header {
  const Executable* executable;
  const char* serialized_bytes;                             // <
  size_t serialized_bytes_size;                             // <
  void* serialized_executable;                              // < argument for the deleter
  void (*serialized_executable_deleter)(void* executable);  // <
};
struct Executable_OutputElementTypes_Args : Header {
  Executable* executable;
  int* output_types;        // <
  size_t num_output_types;  // <
};
struct Executable_OutputDimensions_Args : Header {
  Executable* executable;
  size_t num_outputs;
  const int64_t* dims;      // < dims of all outputs, one output after the other
  const size_t* dim_sizes;  // < number of dims of each output
};
struct Executable_Fingerprint_Args : Header {
  Executable* executable;
  const char* executable_fingerprint;  // <
  size_t executable_fingerprint_size;  // <
};
struct Executable_GetCompiledMemoryStats_Args : Header {
  Executable* executable;
  int64_t generated_code_size_in_bytes;       // <
  int64_t argument_size_in_bytes;             // <
  int64_t output_size_in_bytes;               // <
  int64_t alias_size_in_bytes;                // <
  int64_t temp_size_in_bytes;                 // <
  int64_t host_generated_code_size_in_bytes;  // <
  int64_t host_argument_size_in_bytes;        // <
  int64_t host_output_size_in_bytes;          // <
  int64_t host_alias_size_in_bytes;           // <
  int64_t host_temp_size_in_bytes;            // <
  int64_t peak_memory_in_bytes;               // <
  int64_t total_size_in_bytes;                // <
};
struct LoadedExecutable_Destroy_Args : Header {
  LoadedExecutable* executable;
};
struct LoadedExecutable_GetExecutable_Args : Header {
  LoadedExecutable* loaded_executable;
  Executable* executable;  // <
};
struct LoadedExecutable_AddressableDevices_Args : Header {
  LoadedExecutable* executable;
  Device* const* addressable_devices;  // <
  size_t num_addressable_devices;      // <
};
struct LoadedExecutable_AddressableDeviceLogicalIds_Args : Header {
  LoadedExecutable* executable;
  LogicalDeviceIds* addressable_device_logical_ids;  // <
  size_t num_addressable_device_logical_ids;         // <
};
struct LoadedExecutable_Delete_Args : Header {
  LoadedExecutable* executable;
};
struct LoadedExecutable_IsDeleted_Args : Header {
  LoadedExecutable* executable;
  bool is_deleted;  // <
};
struct LoadedExecutable_GetDeviceAssignment_Args : Header {
  LoadedExecutable* executable;
  const char* serialized_bytes;                                    // <
  size_t serialized_bytes_size;                                    // <
  void* serialized_device_assignment;                              // < argument for the deleter
  void (*serialized_device_assignment_deleter)(void* assignment);  // <
};
struct LoadedExecutable_Execute_Args : Header {
  LoadedExecutable* executable;
  ExecuteOptions* options;
  Buffer* const* const* argument_lists;  // by device, then by argument
  size_t num_devices;
  size_t num_args;
  Buffer** const* output_lists;    // < by device, then by output
  Event** device_complete_events;  // < by device; null if the caller wants no events
  Device* execute_device;
};
struct Executable_DeserializeAndLoad_Args : Header {
  Client* client;
  const char* serialized_executable;
  size_t serialized_executable_size;
  LoadedExecutable* loaded_executable;  // <
  const char* overridden_serialized_compile_options;
  size_t overridden_serialized_compile_options_size;
};

// ---- Buffers. ----------------------------------------------------------------------------------
struct Buffer_Destroy_Args : Header {
  Buffer* buffer;
};
struct Buffer_ElementType_Args : Header {
  Buffer* buffer;
  int type;  // <
};
struct Buffer_Dimensions_Args : Header {
  Buffer* buffer;
  const int64_t* dims;  // <
  size_t num_dims;      // <
};
struct Buffer_UnpaddedDimensions_Args : Header {
  Buffer* buffer;
  const int64_t* unpadded_dims;  // <
  size_t num_dims;               // <
};
struct Buffer_DynamicDimensionIndices_Args : Header {
  Buffer* buffer;
  const size_t* dynamic_dim_indices;  // <
  size_t num_dynamic_dims;            // <
};
struct Buffer_OnDeviceSizeInBytes_Args : Header {
  Buffer* buffer;
  size_t on_device_size_in_bytes;  // <
};
struct Buffer_Device_Args : Header {
  Buffer* buffer;
  Device* device;  // <
};
struct Buffer_Memory_Args : Header {
  Buffer* buffer;
  Memory* memory;  // <
};
struct Buffer_Delete_Args : Header {
  Buffer* buffer;
};
struct Buffer_IsDeleted_Args : Header {
  Buffer* buffer;
  bool is_deleted;  // <
};
struct Buffer_ToHostBuffer_Args : Header {
  Buffer* src;
  MemoryLayout* host_layout;  // null for row-major
  void* dst;                  // null to ask for the size only
  size_t dst_size;            // <
  Event* event;               // <
};
struct Buffer_IsOnCpu_Args : Header {
  Buffer* buffer;
  bool is_on_cpu;  // <
};
struct Buffer_ReadyEvent_Args : Header {
  Buffer* buffer;
  Event* event;  // <
};
struct Buffer_CopyToMemory_Args : Header {
  Buffer* buffer;
  Memory* dst_memory;
  Buffer* dst_buffer;  // <
};

// ---- Topologies. -------------------------------------------------------------------------------
struct TopologyDescription_PlatformName_Args : Header {
  Topology* topology;
  const char* platform_name;  // <
  size_t platform_name_size;  // <
};
struct TopologyDescription_PlatformVersion_Args : Header {
  Topology* topology;
  const char* platform_version;  // <
  size_t platform_version_size;  // <
};
struct TopologyDescription_GetDeviceDescriptions_Args : Header {
  Topology* topology;
  DeviceDescription* const* descriptions;  // <
  size_t num_descriptions;                 // <
};
struct TopologyDescription_Attributes_Args : Header {
  Topology* topology;
  const NamedValue* attributes;  // <
  size_t num_attributes;         // <
};

// ---- Extensions. -------------------------------------------------------------------------------

// A node of the linked list that begins at the table's extension_start.
struct Extension {
  size_t struct_size;
  int type;
  Extension* next;
};
inline constexpr int kShardingsExtension = 19;
struct Shardings_Args : Header {
  Executable* executable;
  size_t num_shardings;          // <
  const char* const* shardings;  // < a serialized OpSharding per value
  const size_t* sharding_sizes;  // <
};
struct ShardingsExtension : Extension {
  Error* (*parameter_shardings)(Shardings_Args*);
  Error* (*output_shardings)(Shardings_Args*);
};

// How values lie in memory. The text of a layout is in XLA's notation, which lists minor dims
// first: "{1,0}" is row-major.
inline constexpr int kLayoutsExtension = 4;
struct Layout;
struct LayoutText;
struct Layout_Destroy_Args : Header {
  Layout* layout;
};
struct Layout_Serialize_Args : Header {
  Layout* layout;
  const char* serialized_bytes;                         // <
  size_t serialized_bytes_size;                         // <
  LayoutText* serialized_layout;                        // < argument for the deleter
  void (*serialized_layout_deleter)(LayoutText* text);  // <
};
struct Client_GetDefaultLayout_Args : Header {
  Client* client;
  int type;
  const int64_t* dims;
  size_t num_dims;
  Layout* layout;  // <
};
struct Buffer_Layout_Args : Header {
  Buffer* buffer;
  Layout* layout;  // <
};
struct Topology_GetDefaultLayout_Args : Header {
  Topology* topology;
  int type;
  const int64_t* dims;
  size_t num_dims;
  Layout* layout;  // <
};
struct Executable_Layouts_Args : Header {
  Executable* executable;
  size_t num_layouts;      // <
  Layout* const* layouts;  // < owned by the executable
};
struct LayoutsExtension : Extension {
  Error* (*destroy)(Layout_Destroy_Args*);
  Error* (*serialize)(Layout_Serialize_Args*);
  Error* (*client_default)(Client_GetDefaultLayout_Args*);
  Error* (*buffer_layout)(Buffer_Layout_Args*);
  Error* (*topology_default)(Topology_GetDefaultLayout_Args*);
  Error* (*output_layouts)(Executable_Layouts_Args*);
  Error* (*parameter_layouts)(Executable_Layouts_Args*);
};

// The extension of Tessera, for its Python package tessera_jax.
inline constexpr int kTesseraExtension = 7471;
// An array of a call of the host. The caller owns the memory that the pointers point to, and keeps
// it until the call returns.
struct HostValue {
  void* data;  // row-major
  int type;
  const int64_t* dims;
  size_t num_dims;
};
// A host function. `id` is the backend_config of the custom call "tessera.host_callback". The
// function writes its results into the memory that `results` gives. If there are no results, it is
// called for its effects, or to fail. Returns 0 if it succeeds. If it fails, it writes the reason
// into `error`, as a text that ends with a zero, and returns another value.
using HostCallback = int (*)(const char* id, size_t num_values, const HostValue* values,
                             size_t num_results, const HostValue* results, char* error,
                             size_t error_size);
// Called when an executable that calls `id` has been made (`held` is true), and when the executable
// is gone and will not call `id` any more (`held` is false).
using HoldCallback = void (*)(const char* id, bool held);
// Returns whether SIGINT is to end what the main thread does, so that the runs that it waits for
// are cancelled.
using InterruptFilter = bool (*)();
struct TesseraExtension : Extension {
  // Sets the functions to call. They may be called on any thread, and a call before a run may
  // overlap with calls after an earlier run. Must be called before a program with calls of the host
  // is compiled.
  void (*set_callbacks)(HostCallback callback, HoldCallback hold);
  // Lets SIGINT cancel the runs that the main thread waits for, whenever `filter` returns true. It
  // is called on any thread. Null lets SIGINT cancel nothing.
  void (*set_interrupt_filter)(InterruptFilter filter);
  // Cancels all runs of this process that have not ended, and returns their number. If that fails,
  // writes the reason into `error`, as a text that ends with a zero, and returns -1.
  int64_t (*cancel_runs)(char* error, size_t error_size);
  // Writes the state of a device (NameOf in device_states.h) and its reason, as texts that end with
  // a zero. Waits for the coordinator for at most a second.
  void (*device_state)(int64_t device, char* state, size_t state_size, char* why, size_t why_size);
};

// ---- The table. --------------------------------------------------------------------------------

// A function of the table, which takes a pointer to one of the structs above. Some functions of the
// API return nothing. Here they have the same type, and their callers ignore the error.
using AnyFunction = Error* (*)(Header*);
struct ApiVersion : Header {
  int major_version;
  int minor_version;
};
inline constexpr int kNumFunctions = 138;
struct Api : Header {
  ApiVersion version;
  AnyFunction functions[kNumFunctions];
};

}  // namespace tessera::pjrt

// Returns the function table. The framework looks this symbol up when it loads the plugin.
extern "C" const tessera::pjrt::Api* GetPjrtApi();
