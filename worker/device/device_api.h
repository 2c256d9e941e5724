/* The devices of one kind as a table of C functions, which a plugin for an accelerator provides.
 *
 * A plugin is a shared library with one entry, tessera_device_api, which returns a table that lives
 * as long as the library. worker/cuda makes libtessera_cuda.so; docs/another_accelerator.md says
 * how to make another plugin. Nothing of the accelerator's own interface passes through here, so a
 * worker links none of it.
 *
 * A call returns 0 or a TESSERA_* code. After an error, `error_text` on the same thread says what
 * happened. A context belongs to one process and one device. Any thread may call any function, but
 * calls on the same stream, communicator, graph or matmul must come from one thread at a time.
 * Handles are opaque. The caller owns them, and destroys them by the function that is named for
 * it. Destroying a handle with work under way is safe and waits for nothing.
 *
 * TESSERA_STICKY means that the device's context is lost (by an illegal address, an ECC error, or a
 * launch that never ends). Every later call fails, and the process must end. No other code is
 * fatal.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TESSERA_DEVICE_API_VERSION 5

enum {
  TESSERA_OK = 0,
  TESSERA_NOT_READY = 1, /* no error: the event is not reached, or a communicator's call goes on */
  TESSERA_OUT_OF_MEMORY = 2,
  TESSERA_UNAVAILABLE = 3, /* no device, no driver or no library: use another backend */
  TESSERA_UNSUPPORTED = 4, /* this device or library version cannot do it */
  TESSERA_INVALID = 5,     /* the call is wrong: our bug */
  TESSERA_PEER = 6,        /* a communicator's peer is lost, or the communicator was aborted */
  TESSERA_STICKY = 7
};

/* Element types. A bool is a byte of 0 or 1. TESSERA_C* are complex numbers of two floats. */
typedef int32_t tessera_dtype;
enum {
  TESSERA_BOOL = 0,
  TESSERA_S8 = 1,
  TESSERA_S16 = 2,
  TESSERA_S32 = 3,
  TESSERA_S64 = 4,
  TESSERA_U8 = 5,
  TESSERA_U16 = 6,
  TESSERA_U32 = 7,
  TESSERA_U64 = 8,
  TESSERA_F16 = 9,
  TESSERA_BF16 = 10,
  TESSERA_F32 = 11,
  TESSERA_F64 = 12,
  TESSERA_C64 = 13,
  TESSERA_C128 = 14,
  TESSERA_F8E4M3FN = 15,
  TESSERA_F8E5M2 = 16
};

/* The operation by which collectives combine blocks. */
typedef int32_t tessera_reduce;
enum {
  TESSERA_SUM = 0,
  TESSERA_MAX = 1,
  TESSERA_MIN = 2,
  TESSERA_PROD = 3,
  TESSERA_AND = 4,
  TESSERA_OR = 5
};

/* Collectives of n ranks. Each block has tessera_collective::elements elements. The blocks of n
 * ranks are in the order of the group's positions, tessera_collective::order. */
typedef int32_t tessera_collective_kind;
enum {
  TESSERA_ALL_REDUCE = 0,     /* in: a block; out: the combination of all ranks' blocks */
  TESSERA_ALL_GATHER = 1,     /* in: a block; out: the blocks of all n ranks */
  TESSERA_REDUCE_SCATTER = 2, /* in: n blocks; out: all ranks' blocks for this rank, combined */
  TESSERA_ALL_TO_ALL = 3,     /* in: a block for each rank; out: a block from each rank */
  /* sends `in` to position `target`, and receives `out` from position `source`; -1 means none */
  TESSERA_PERMUTE = 4
};

typedef struct tessera_context tessera_context;
typedef struct tessera_stream tessera_stream;
typedef struct tessera_event tessera_event;
typedef struct tessera_module tessera_module;
typedef struct tessera_graph tessera_graph;
typedef struct tessera_matmul tessera_matmul;
typedef struct tessera_comm tessera_comm;
typedef struct tessera_monitor tessera_monitor;

typedef struct tessera_device_info {
  char name[64];        /* for example "NVIDIA H200" */
  char target[32];      /* the target to compile code for: "nvptx-sm_90", "simt-host" */
  int64_t memory_bytes; /* memory of the device */
  int64_t free_bytes;   /* memory that is free now */
  int32_t num_cores;    /* multiprocessors */
  int32_t warp_size;
  int32_t max_threads_per_block;
  int32_t shared_bytes_per_block;
} tessera_device_info;

/* The product C[b] = A[b] B[b]. Matrices are row-major, with strides in elements, and one of the
 * last two strides is 1. With allow_tf32, A and B may be rounded to TF32 (10 bits of mantissa), and
 * sums are made in f32. allow_tf32 is 0 unless `in` and `out` are TESSERA_F32; a device without
 * TF32 ignores it. */
typedef struct tessera_matmul_shape {
  int64_t batch, m, n, k;
  int64_t a_strides[3], b_strides[3], c_strides[3];
  tessera_dtype in, out;
  int32_t allow_tf32;
} tessera_matmul_shape;

typedef struct tessera_comm_id {
  char bytes[128];
} tessera_comm_id;

typedef struct tessera_collective {
  tessera_collective_kind kind;
  tessera_dtype dtype;
  tessera_reduce reduce;  /* for TESSERA_ALL_REDUCE and TESSERA_REDUCE_SCATTER */
  int32_t source, target; /* for TESSERA_PERMUTE */
  uint64_t in, out;       /* addresses; they may be the same for TESSERA_ALL_REDUCE */
  int64_t elements;       /* number of elements of a block */
  /* The rank at each position of the group, or null if rank i is at position i. Each rank is at one
   * position, and all ranks pass the same order. */
  const int32_t* order;
} tessera_collective;

/* The state of a device as a monitor reads it. Each figure is -1 if it is unknown. Figures that
 * count start at 0 when the driver is loaded. */
typedef struct tessera_device_reading {
  double utilization; /* fraction of the last sampling period in which a kernel ran: 0 to 1 */
  double memory_total_bytes;
  double memory_used_bytes;   /* by all processes and the driver */
  double memory_worker_bytes; /* by the processes of the caller's worker; -1 if it has none */
  double memory_others_bytes; /* by all other processes; -1 if the worker has none */
  double power_watts;
  double power_limit_watts;
  double temperature_celsius;
  double memory_temperature_celsius;
  double clock_hertz;
  double memory_clock_hertz;
  /* 1 while the clocks are lower than they could be for this reason, otherwise 0 */
  double throttled_by_power;       /* the power limit */
  double throttled_by_temperature; /* the temperature of the GPU or its memory */
  double throttled_by_power_brake; /* the machine's power supply asks for it */
  double throttled_by_hardware;    /* another protection of the hardware */
  double ecc_corrected;            /* number of memory errors that ECC has corrected */
  double ecc_uncorrected;          /* number of memory errors that ECC could not correct */
  double rows_pending;             /* 1 if rows of memory wait for a reset to be remapped */
  double rows_failed;              /* 1 if a row of memory could not be remapped */
  double link_sent_bytes;          /* data that the links between GPUs have sent */
  double link_received_bytes;
  double link_errors; /* number of retransmissions and recoveries of these links */
} tessera_device_reading;

typedef struct tessera_device_api {
  uint32_t version; /* TESSERA_DEVICE_API_VERSION */
  const char* kind; /* "gpu" */

  /* Returns the error message of the last call that failed on this thread. The text is valid until
   * the thread's next call. */
  const char* (*error_text)(void);

  /* Counts the machine's devices. Returns TESSERA_UNAVAILABLE, with the reason in error_text, if
   * there is none. */
  int (*device_count)(int32_t* count);
  /* Writes the id of a device, which no other device has and which stays the same when other
   * devices come or go: "GPU-" and a UUID. `size` is at least 64. */
  int (*device_id)(int32_t device, char* id, int32_t size);
  int (*open)(int32_t device, tessera_context** context);
  void (*close)(tessera_context* context);
  int (*info)(tessera_context* context, tessera_device_info* info);
  /* Opens the libraries that programs may need, and writes one line for display: their versions
   * and, for each library that is missing, what cannot be done without it. */
  void (*describe_libraries)(tessera_context* context, char* text, int32_t size);

  /* Allocate and free memory of the device, which is aligned to 256 bytes, and pinned memory of the
   * host, for copies. */
  int (*allocate)(tessera_context* context, int64_t bytes, uint64_t* address);
  int (*free)(tessera_context* context, uint64_t address);
  int (*allocate_host)(tessera_context* context, int64_t bytes, void** address);
  int (*free_host)(tessera_context* context, void* address);

  /* Streams run their work in order; different streams run at the same time. */
  int (*stream_create)(tessera_context* context, int32_t high_priority, tessera_stream** stream);
  void (*stream_destroy)(tessera_stream* stream);
  /* An event marks a point of a stream. It is reached when all work enqueued before has ended. */
  int (*event_create)(tessera_context* context, tessera_event** event);
  void (*event_destroy)(tessera_event* event);
  int (*event_record)(tessera_event* event, tessera_stream* stream);
  int (*stream_wait)(tessera_stream* stream, tessera_event* event);
  /* Returns TESSERA_OK once the event is reached, and TESSERA_NOT_READY before. */
  int (*event_query)(tessera_event* event);

  /* Copy between device memory and pinned host memory, or within the device. `bytes` may be 0. The
   * memory may be reused once an event that is recorded after the copy is reached. */
  int (*copy_to_device)(tessera_stream* stream, uint64_t to, const void* from, int64_t bytes);
  int (*copy_to_host)(tessera_stream* stream, void* to, uint64_t from, int64_t bytes);
  int (*copy)(tessera_stream* stream, uint64_t to, uint64_t from, int64_t bytes);
  int (*fill_zero)(tessera_stream* stream, uint64_t to, int64_t bytes);

  /* Loads code that was compiled for info.target: PTX text or, for the emulator "simt-host", which
   * the fake driver of the tests runs, an object file. */
  int (*module_load)(tessera_context* context, const void* image, int64_t bytes,
                     tessera_module** module);
  void (*module_unload)(tessera_module* module);
  /* Runs `function` of the module. `args` are 8 bytes each. */
  int (*launch)(tessera_stream* stream, tessera_module* module, const char* function,
                const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
                const uint64_t* args, int32_t num_args);

  /* Records the work that is enqueued on `stream` instead of running it, until graph_end. The graph
   * can then be launched any number of times. Returns TESSERA_UNSUPPORTED if the work cannot be
   * recorded. */
  int (*graph_begin)(tessera_stream* stream);
  int (*graph_end)(tessera_stream* stream, tessera_graph** graph);
  void (*graph_destroy)(tessera_graph* graph);
  int (*graph_launch)(tessera_stream* stream, tessera_graph* graph);

  /* A matmul is planned once, which chooses its algorithm and scratch memory. Returns
   * TESSERA_UNSUPPORTED if the library has no algorithm for the dtypes. a, b and c are aligned to
   * 16 bytes, and scratch to 256. */
  int (*matmul_plan)(tessera_context* context, const tessera_matmul_shape* shape,
                     tessera_matmul** matmul, int64_t* scratch_bytes);
  void (*matmul_destroy)(tessera_matmul* matmul);
  int (*matmul_run)(tessera_stream* stream, tessera_matmul* matmul, uint64_t a, uint64_t b,
                    uint64_t c, uint64_t scratch);

  /* Communicators. One rank makes an id, and the caller carries it to the other ranks. comm_create,
   * and every call on a communicator, may return TESSERA_NOT_READY. The caller then polls
   * comm_ready, up to a deadline of its own, before it enqueues anything else on the stream or the
   * communicator. All ranks make the same calls in the same order. A plugin has all reductions of
   * bools. Of the other dtypes, except s16, u16 and f8, it has sums and, of integers, max and min.
   * For all other reductions it may return TESSERA_UNSUPPORTED. */
  int (*comm_id)(tessera_comm_id* id);
  int (*comm_create)(tessera_context* context, const tessera_comm_id* id, int32_t num_ranks,
                     int32_t rank, tessera_comm** comm);
  int (*comm_ready)(tessera_comm* comm);
  /* Returns the failure in which the communicator has ended, or TESSERA_OK if there is none yet. A
   * collective that has been enqueued may fail at any time while it runs. This function and
   * comm_abort are the only ones that may be called while another call on the communicator is in
   * progress. */
  int (*comm_error)(tessera_comm* comm);
  /* Aborts the collectives in progress on this rank. It may block, and the caller bounds it by
   * ending the process. */
  int (*comm_abort)(tessera_comm* comm);
  void (*comm_destroy)(tessera_comm* comm);
  int (*collective)(tessera_comm* comm, tessera_stream* stream, const tessera_collective* what);

  /* A monitor reads the state of devices, which `ids` name, without using them. It needs no context
   * and no other function of this table. A call may block for as long as a broken device does, so
   * the caller makes these calls in a process of their own. monitor_open returns
   * TESSERA_UNAVAILABLE, with the reason, if the devices cannot be monitored. */
  int (*monitor_open)(const char* const* ids, int32_t num_devices, tessera_monitor** monitor);
  void (*monitor_close)(tessera_monitor* monitor);
  /* Reads the state of `ids`[device]. `is_ours` says whether a process belongs to the caller's
   * worker. Returns TESSERA_STICKY, with the reason, if the device is lost or needs a reset. */
  int (*monitor_read)(tessera_monitor* monitor, int32_t device, int (*is_ours)(int32_t pid),
                      tessera_device_reading* reading);
  /* Waits for an error that the driver reports about a device (for NVIDIA, an Xid). Returns
   * TESSERA_NOT_READY if there is none within the timeout. */
  int (*monitor_wait)(tessera_monitor* monitor, int32_t timeout_ms, int32_t* device, int64_t* code);
} tessera_device_api;

/* Returns the table, or null if this library does not speak `version`. This is the type of the
 * symbol "tessera_device_api". */
typedef const tessera_device_api* (*tessera_device_api_fn)(uint32_t version);

#ifdef __cplusplus
}
#endif
