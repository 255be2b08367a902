/* The part of NVSHMEM's host interface that gpucomm binds, as of NVSHMEM 3.8.0. */
#ifndef GPUCOMM_VENDOR_NVSHMEM_HOST_H
#define GPUCOMM_VENDOR_NVSHMEM_HOST_H

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <non_abi/nvshmem_version.h>
#include <stddef.h>
#include <stdint.h>

#define NVSHMEM_MAJOR_VERSION 1
#define NVSHMEM_MINOR_VERSION 3
#define NVSHMEM_MAX_NAME_LEN 256
#define NVSHMEM_TEAM_CONFIG_MASK_NUM_CONTEXTS 0x1
#define NVSHMEM_TEAM_CONFIG_MASK_UNIQUEID 0x2

#if defined(__cplusplus)
extern "C" {
#endif

enum gpucommInitFlags { NVSHMEMX_INIT_WITH_UNIQUEID = 8 };
enum gpucommInitStatus {
  NVSHMEM_STATUS_NOT_INITIALIZED = 0,
  NVSHMEM_STATUS_IS_BOOTSTRAPPED = 1,
  NVSHMEM_STATUS_IS_INITIALIZED = 2,
  NVSHMEM_STATUS_LIMITED_MPG = 3,
  NVSHMEM_STATUS_FULL_MPG = 4
};
enum gpucommThreads {
  NVSHMEM_THREAD_SINGLE = 0,
  NVSHMEM_THREAD_FUNNELED = 1,
  NVSHMEM_THREAD_SERIALIZED = 2,
  NVSHMEM_THREAD_MULTIPLE = 3
};
enum gpucommTeams {
  NVSHMEM_TEAM_INVALID = -1,
  NVSHMEM_TEAM_WORLD = 0,
  NVSHMEM_TEAM_SHARED = 1,
  NVSHMEMX_TEAM_NODE = 2,
  NVSHMEMX_TEAM_SAME_MYPE_NODE = 3,
  NVSHMEM_TEAM_MC_SHARED = 6
};
enum gpucommComparisons {
  NVSHMEM_CMP_EQ = 0,
  NVSHMEM_CMP_NE = 1,
  NVSHMEM_CMP_GT = 2,
  NVSHMEM_CMP_LE = 3,
  NVSHMEM_CMP_LT = 4,
  NVSHMEM_CMP_GE = 5
};
enum gpucommSignals { NVSHMEM_SIGNAL_SET = 9, NVSHMEM_SIGNAL_ADD = 10 };
enum gpucommErrors {
  NVSHMEMX_SUCCESS = 0,
  NVSHMEMX_ERROR_INVALID_VALUE = 1,
  NVSHMEMX_ERROR_OUT_OF_MEMORY = 2,
  NVSHMEMX_ERROR_NOT_SUPPORTED = 3,
  NVSHMEMX_ERROR_SYMMETRY = 4,
  NVSHMEMX_ERROR_GPU_NOT_SELECTED = 5,
  NVSHMEMX_ERROR_COLLECTIVE_LAUNCH_FAILED = 6,
  NVSHMEMX_ERROR_INTERNAL = 7
};

typedef int32_t nvshmem_team_t;
typedef uint64_t nvshmemx_team_uniqueid_t;

typedef struct {
  int version;
  char internal[124];
} nvshmemx_uniqueid_v1;
typedef nvshmemx_uniqueid_v1 nvshmemx_uniqueid_t;

typedef struct {
  int version;
  nvshmemx_uniqueid_v1 *id;
  int myrank;
  int nranks;
} nvshmemx_uniqueid_args_v1;
typedef nvshmemx_uniqueid_args_v1 nvshmemx_uniqueid_args_t;

typedef struct {
  int version;
  nvshmemx_uniqueid_args_t uid_args;
  int cuda_device_id;
  char content[92];
} nvshmemx_init_args_v2;
typedef nvshmemx_init_args_v2 nvshmemx_init_args_t;

typedef struct {
  int version;
  void *mpi_comm;
  nvshmemx_init_args_t args;
} nvshmemx_init_attr_v2;
typedef nvshmemx_init_attr_v2 nvshmemx_init_attr_t;

typedef struct {
  int version;
  int num_contexts;
  nvshmemx_team_uniqueid_t uniqueid;
  char padding[48];
} nvshmem_team_config_v2;
typedef nvshmem_team_config_v2 nvshmem_team_config_t;

/* Start and end. */
int nvshmemx_get_uniqueid(nvshmemx_uniqueid_t *uniqueid);
int nvshmemx_set_attr_uniqueid_args(const int myrank, const int nranks, const nvshmemx_uniqueid_t *uniqueid, nvshmemx_init_attr_t *attr);
int nvshmemx_hostlib_init_attr(unsigned int flags, nvshmemx_init_attr_t *attr);
int nvshmemx_init_status(void);
void nvshmemx_hostlib_finalize(void);
void nvshmem_query_thread(int *provided);
void nvshmem_global_exit(int status);

/* Who and what. */
int nvshmem_my_pe(void);
int nvshmem_n_pes(void);
void nvshmem_info_get_version(int *major, int *minor);
void nvshmem_info_get_name(char *name);
void nvshmemx_vendor_get_version_info(int *major, int *minor, int *patch);

/* Memory. */
void *nvshmem_malloc(size_t size);
void *nvshmem_calloc(size_t count, size_t size);
void *nvshmem_align(size_t alignment, size_t size);
void nvshmem_free(void *ptr);
void *nvshmem_ptr(const void *ptr, int pe);
void *nvshmemx_mc_ptr(nvshmem_team_t team, const void *ptr);
int nvshmemx_buffer_register(void *addr, size_t length);
int nvshmemx_buffer_unregister(void *addr);
void nvshmemx_buffer_unregister_all(void);
void *nvshmemx_buffer_register_symmetric(void *buf_ptr, size_t size, int flags);
int nvshmemx_buffer_unregister_symmetric(void *mmap_ptr, size_t size);

/* Teams. */
int nvshmem_team_my_pe(nvshmem_team_t team);
int nvshmem_team_n_pes(nvshmem_team_t team);
void nvshmem_team_get_config(nvshmem_team_t team, nvshmem_team_config_t *config);
int nvshmem_team_translate_pe(nvshmem_team_t src_team, int src_pe, nvshmem_team_t dest_team);
int nvshmem_team_split_strided(nvshmem_team_t parent, int start, int stride, int size, const nvshmem_team_config_t *config, long mask, nvshmem_team_t *team);
int nvshmem_team_split_2d(nvshmem_team_t parent, int xrange, const nvshmem_team_config_t *xconfig, long xmask, nvshmem_team_t *xteam, const nvshmem_team_config_t *yconfig, long ymask, nvshmem_team_t *yteam);
void nvshmem_team_destroy(nvshmem_team_t team);
int nvshmemx_team_get_uniqueid(nvshmemx_team_uniqueid_t *uniqueid);
int nvshmemx_team_init(nvshmem_team_t *team, nvshmem_team_config_t *config, long mask, int npes, int index);

/* Order. */
int nvshmem_barrier(nvshmem_team_t team);
void nvshmem_barrier_all(void);
int nvshmem_team_sync(nvshmem_team_t team);
void nvshmem_sync_all(void);
void nvshmem_fence(void);
void nvshmem_quiet(void);
void nvshmemx_flush(void);
int nvshmemx_barrier_on_stream(nvshmem_team_t team, cudaStream_t stream);
void nvshmemx_barrier_all_on_stream(cudaStream_t stream);
int nvshmemx_team_sync_on_stream(nvshmem_team_t team, cudaStream_t stream);
void nvshmemx_sync_all_on_stream(cudaStream_t stream);
void nvshmemx_quiet_on_stream(cudaStream_t stream);
void nvshmemx_flush_on_stream(cudaStream_t stream);

/* Bytes from one to another. */
void nvshmem_putmem(void *dest, const void *source, size_t bytes, int pe);
void nvshmem_putmem_nbi(void *dest, const void *source, size_t bytes, int pe);
void nvshmem_getmem(void *dest, const void *source, size_t bytes, int pe);
void nvshmem_getmem_nbi(void *dest, const void *source, size_t bytes, int pe);
void nvshmemx_putmem_on_stream(void *dest, const void *source, size_t bytes, int pe, cudaStream_t stream);
void nvshmemx_putmem_nbi_on_stream(void *dest, const void *source, size_t bytes, int pe, cudaStream_t stream);
void nvshmemx_getmem_on_stream(void *dest, const void *source, size_t bytes, int pe, cudaStream_t stream);
void nvshmemx_getmem_nbi_on_stream(void *dest, const void *source, size_t bytes, int pe, cudaStream_t stream);

/* Single elements, by their width. */
#define GPUCOMM_ELEMENT(name, type) \
  void nvshmem_##name##_p(type *dest, const type value, int pe); \
  type nvshmem_##name##_g(const type *src, int pe); \
  void nvshmemx_##name##_p_on_stream(type *dest, const type value, int pe, cudaStream_t stream);
GPUCOMM_ELEMENT(uint8, uint8_t)
GPUCOMM_ELEMENT(uint16, uint16_t)
GPUCOMM_ELEMENT(uint32, uint32_t)
GPUCOMM_ELEMENT(uint64, uint64_t)
#undef GPUCOMM_ELEMENT

/* Elements at distances, by their bits. */
#define GPUCOMM_STRIDED(bits) \
  void nvshmem_iput##bits(void *dest, const void *source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems, int pe); \
  void nvshmem_iget##bits(void *dest, const void *source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems, int pe); \
  void nvshmemx_iput##bits##_on_stream(void *dest, const void *source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems, int pe, cudaStream_t stream); \
  void nvshmemx_iget##bits##_on_stream(void *dest, const void *source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems, int pe, cudaStream_t stream);
GPUCOMM_STRIDED(8)
GPUCOMM_STRIDED(16)
GPUCOMM_STRIDED(32)
GPUCOMM_STRIDED(64)
GPUCOMM_STRIDED(128)
#undef GPUCOMM_STRIDED

/* Waits for values in memory of this PE. */
#define GPUCOMM_WAIT(name, type) \
  void nvshmemx_##name##_wait_until_on_stream(type *ivar, int cmp, type cmp_value, cudaStream_t stream); \
  void nvshmemx_##name##_wait_until_all_on_stream(type *ivars, size_t nelems, const int *status, int cmp, type cmp_value, cudaStream_t stream); \
  void nvshmemx_##name##_wait_until_all_vector_on_stream(type *ivars, size_t nelems, const int *status, int cmp, type *cmp_value, cudaStream_t stream);
GPUCOMM_WAIT(int32, int32_t)
GPUCOMM_WAIT(int64, int64_t)
GPUCOMM_WAIT(uint32, uint32_t)
GPUCOMM_WAIT(uint64, uint64_t)
#undef GPUCOMM_WAIT

/* Signals. */
uint64_t nvshmem_signal_fetch(uint64_t *sig_addr);
void nvshmemx_putmem_signal_on_stream(void *dest, const void *source, size_t bytes, uint64_t *sig_addr, uint64_t signal, int sig_op, int pe, cudaStream_t stream);
void nvshmemx_putmem_signal_nbi_on_stream(void *dest, const void *source, size_t bytes, uint64_t *sig_addr, uint64_t signal, int sig_op, int pe, cudaStream_t stream);
void nvshmemx_signal_op_on_stream(uint64_t *sig_addr, uint64_t signal, int sig_op, int pe, cudaStream_t stream);
void nvshmemx_signal_wait_until_on_stream(uint64_t *sig_addr, int cmp, uint64_t cmp_value, cudaStream_t stream);

/* Regions in which transfers are sent in batches. */
typedef uint64_t nvshmemx_region_handle_t;
typedef struct nvshmemx_region_attrs {
  uint32_t hints;
  char reserved[60];
} nvshmemx_region_attrs_t;
enum gpucommRegionHints { NVSHMEMX_REGION_HINT_NONE = 0, NVSHMEMX_REGION_HINT_BATCH_RMA = 1 };
int nvshmemx_region_start(nvshmemx_region_handle_t *handle, const nvshmemx_region_attrs_t *attrs);
int nvshmemx_region_stop(nvshmemx_region_handle_t handle);

/* Queue pairs of the network, for kernels. */
typedef int nvshmemx_qp_handle_t;
int nvshmemx_qp_create(int num_qps, nvshmemx_qp_handle_t **out_qp_array);

/* Modules with kernels that use NVSHMEM. */
int nvshmemx_cumodule_init(CUmodule module);
int nvshmemx_cumodule_finalize(CUmodule module);
int nvshmemx_culibrary_init(CUlibrary library);
int nvshmemx_culibrary_finalize(CUlibrary library);

/* Collectives. */
int nvshmem_alltoallmem(nvshmem_team_t team, void *dest, const void *src, size_t nelems);
int nvshmem_broadcastmem(nvshmem_team_t team, void *dest, const void *src, size_t nelems, int root);
int nvshmem_fcollectmem(nvshmem_team_t team, void *dest, const void *src, size_t nelems);
int nvshmemx_alltoallmem_on_stream(nvshmem_team_t team, void *dest, const void *src, size_t nelem, cudaStream_t stream);
int nvshmemx_broadcastmem_on_stream(nvshmem_team_t team, void *dest, const void *src, size_t nelem, int root, cudaStream_t stream);
int nvshmemx_fcollectmem_on_stream(nvshmem_team_t team, void *dest, const void *src, size_t nelem, cudaStream_t stream);

#define GPUCOMM_REDUCE(name, type, op) \
  int nvshmemx_##name##_##op##_reduce_on_stream(nvshmem_team_t team, type *dest, const type *src, size_t nreduce, cudaStream_t stream); \
  int nvshmemx_##name##_##op##_reducescatter_on_stream(nvshmem_team_t team, type *dest, const type *src, size_t nreduce, cudaStream_t stream);
#define GPUCOMM_ARITHMETIC(name, type) \
  GPUCOMM_REDUCE(name, type, sum) GPUCOMM_REDUCE(name, type, prod) GPUCOMM_REDUCE(name, type, min) GPUCOMM_REDUCE(name, type, max)
#define GPUCOMM_INTEGER(name, type) \
  GPUCOMM_ARITHMETIC(name, type) \
  GPUCOMM_REDUCE(name, type, and) GPUCOMM_REDUCE(name, type, or) GPUCOMM_REDUCE(name, type, xor)
GPUCOMM_INTEGER(int8, int8_t)
GPUCOMM_INTEGER(int16, int16_t)
GPUCOMM_INTEGER(int32, int32_t)
GPUCOMM_INTEGER(int64, int64_t)
GPUCOMM_INTEGER(uint8, uint8_t)
GPUCOMM_INTEGER(uint16, uint16_t)
GPUCOMM_INTEGER(uint32, uint32_t)
GPUCOMM_INTEGER(uint64, uint64_t)
GPUCOMM_ARITHMETIC(half, half)
GPUCOMM_ARITHMETIC(bfloat16, __nv_bfloat16)
GPUCOMM_ARITHMETIC(float, float)
GPUCOMM_ARITHMETIC(double, double)
#undef GPUCOMM_INTEGER
#undef GPUCOMM_ARITHMETIC
#undef GPUCOMM_REDUCE

#if defined(__cplusplus)
}
#endif
#endif
