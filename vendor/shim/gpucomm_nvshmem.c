#include "gpucomm_nvshmem.h"

#include <non_abi/nvshmem_build_options.h>

#if GPUCOMM_NVSHMEM_VERSION >= 30800
#include <device/nvshmemx_collective_launch_apis.h>
#endif

/* What the Rust side takes for granted. */
_Static_assert(sizeof(nvshmemx_uniqueid_t) == 128, "nvshmemx_uniqueid_t has 128 bytes");
_Static_assert(sizeof(nvshmem_team_t) == 4, "nvshmem_team_t is a C int");
_Static_assert(GPUCOMM_NVSHMEM_VERSION >= 30200, "NVSHMEM 3.2 or newer");

void gpucommNvshmemUniqueIdInit(nvshmemx_uniqueid_t *id) {
  nvshmemx_uniqueid_t initial = NVSHMEMX_UNIQUEID_INITIALIZER;
  *id = initial;
}

void gpucommNvshmemAttrInit(nvshmemx_init_attr_t *attr) {
  nvshmemx_init_attr_t initial = NVSHMEMX_INIT_ATTR_INITIALIZER;
  *attr = initial;
}

void gpucommNvshmemTeamConfigInit(nvshmem_team_config_t *config) {
#if defined(NVSHMEM_TEAM_CONFIG_INITIALIZER)
  nvshmem_team_config_t initial = NVSHMEM_TEAM_CONFIG_INITIALIZER;
#else
  nvshmem_team_config_t initial = NVSHMEMI_TEAM_CONFIG_INITIALIZER;
#endif
  *config = initial;
}

/* Whether the library was built to have NCCL do what NCCL has. */
int gpucommNvshmemHasNccl(void) {
#if defined(NVSHMEM_USE_NCCL)
  return 1;
#else
  return 0;
#endif
}

/* A library that is older than the headers lacks functions. As with NCCL, weak references let the program start all the
 * same; these are bound in place of the functions of that name (build/nvshmem.rs, NEWER). */
#if GPUCOMM_NVSHMEM_VERSION >= 30300
#pragma weak nvshmemx_team_get_uniqueid
#pragma weak nvshmemx_team_init
#pragma weak nvshmemx_buffer_register_symmetric
#pragma weak nvshmemx_buffer_unregister_symmetric

int gpucomm_nvshmemx_team_get_uniqueid(nvshmemx_team_uniqueid_t *id);
int gpucomm_nvshmemx_team_get_uniqueid(nvshmemx_team_uniqueid_t *id) {
  return nvshmemx_team_get_uniqueid != NULL ? nvshmemx_team_get_uniqueid(id) : NVSHMEMX_ERROR_NOT_SUPPORTED;
}

int gpucomm_nvshmemx_team_init(nvshmem_team_t *team, nvshmem_team_config_t *config, long mask, int pes, int index);
int gpucomm_nvshmemx_team_init(nvshmem_team_t *team, nvshmem_team_config_t *config, long mask, int pes, int index) {
  return nvshmemx_team_init != NULL ? nvshmemx_team_init(team, config, mask, pes, index) : NVSHMEMX_ERROR_NOT_SUPPORTED;
}

void *gpucomm_nvshmemx_buffer_register_symmetric(void *buffer, size_t size, int flags);
void *gpucomm_nvshmemx_buffer_register_symmetric(void *buffer, size_t size, int flags) {
  return nvshmemx_buffer_register_symmetric != NULL ? nvshmemx_buffer_register_symmetric(buffer, size, flags) : NULL;
}

int gpucomm_nvshmemx_buffer_unregister_symmetric(void *buffer, size_t size);
int gpucomm_nvshmemx_buffer_unregister_symmetric(void *buffer, size_t size) {
  return nvshmemx_buffer_unregister_symmetric != NULL ? nvshmemx_buffer_unregister_symmetric(buffer, size)
                                                      : NVSHMEMX_ERROR_NOT_SUPPORTED;
}
#endif

/* A flush is the weaker half of quiet, which every version has. */
#if GPUCOMM_NVSHMEM_VERSION >= 30700
#pragma weak nvshmemx_flush
#pragma weak nvshmemx_flush_on_stream

void gpucomm_nvshmemx_flush(void);
void gpucomm_nvshmemx_flush(void) {
  if (nvshmemx_flush != NULL) nvshmemx_flush();
  else nvshmem_quiet();
}

void gpucomm_nvshmemx_flush_on_stream(cudaStream_t stream);
void gpucomm_nvshmemx_flush_on_stream(cudaStream_t stream) {
  if (nvshmemx_flush_on_stream != NULL) nvshmemx_flush_on_stream(stream);
  else nvshmemx_quiet_on_stream(stream);
}
#endif

/* To send in batches is a hint: a library that cannot does not. */
#if GPUCOMM_NVSHMEM_VERSION >= 30800
#pragma weak nvshmemx_region_start
#pragma weak nvshmemx_region_stop
#pragma weak nvshmemx_qp_create
#pragma weak nvshmemx_collective_launch
#pragma weak nvshmemx_collective_launch_attr
#pragma weak nvshmemx_collective_launch_query_gridsize

int gpucomm_nvshmemx_region_start(nvshmemx_region_handle_t *handle, const nvshmemx_region_attrs_t *attrs);
int gpucomm_nvshmemx_region_start(nvshmemx_region_handle_t *handle, const nvshmemx_region_attrs_t *attrs) {
  if (nvshmemx_region_start != NULL && nvshmemx_region_stop != NULL) return nvshmemx_region_start(handle, attrs);
  *handle = 0;
  return NVSHMEMX_SUCCESS;
}

int gpucomm_nvshmemx_region_stop(nvshmemx_region_handle_t handle);
int gpucomm_nvshmemx_region_stop(nvshmemx_region_handle_t handle) {
  if (nvshmemx_region_start != NULL && nvshmemx_region_stop != NULL) return nvshmemx_region_stop(handle);
  return NVSHMEMX_SUCCESS;
}

int gpucomm_nvshmemx_qp_create(int count, nvshmemx_qp_handle_t **handles);
int gpucomm_nvshmemx_qp_create(int count, nvshmemx_qp_handle_t **handles) {
  return nvshmemx_qp_create != NULL ? nvshmemx_qp_create(count, handles) : NVSHMEMX_ERROR_NOT_SUPPORTED;
}

static dim3 dimensions(const unsigned int *numbers) {
  dim3 all = {numbers[0], numbers[1], numbers[2]};
  return all;
}

int gpucommNvshmemCollectiveLaunch(const void *kernel, const unsigned int *grid, const unsigned int *block, void **args,
                                   size_t shared, cudaStream_t stream) {
  if (nvshmemx_collective_launch == NULL) return NVSHMEMX_ERROR_NOT_SUPPORTED;
  return nvshmemx_collective_launch(kernel, dimensions(grid), dimensions(block), args, shared, stream);
}

int gpucommNvshmemCollectiveLaunchConfig(const void *config, const void *kernel, void **args) {
  nvshmemx_collective_launch_attr_t attr;
  if (nvshmemx_collective_launch_attr == NULL) return NVSHMEMX_ERROR_NOT_SUPPORTED;
  attr.cuda_config = *(const cudaLaunchConfig_t *)config;
  return nvshmemx_collective_launch_attr(&attr, kernel, args);
}

int gpucommNvshmemCollectiveLaunchGrid(const void *kernel, const unsigned int *block, size_t shared, int *blocks) {
  if (nvshmemx_collective_launch_query_gridsize == NULL) return NVSHMEMX_ERROR_NOT_SUPPORTED;
  /* The arguments are not looked at. */
  return nvshmemx_collective_launch_query_gridsize(kernel, dimensions(block), NULL, shared, blocks);
}
#endif
