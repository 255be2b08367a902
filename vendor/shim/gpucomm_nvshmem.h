/* NVSHMEM's host interface, for bindgen, for gpucomm_nvshmem.c, and for the comparison with the committed bindings, which reads it
 * as C++.
 *
 * The headers are written for C++; what they lack as C is declared first. The two types of 16 bits take the place of those
 * of cuda_fp16.h and cuda_bf16.h, which need CCCL: host functions take pointers to them only. */
#ifndef GPUCOMM_NVSHMEM_H
#define GPUCOMM_NVSHMEM_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef unsigned short half;
typedef unsigned short __half;
typedef unsigned short __nv_bfloat16;

/* Which version something came with. */
#include <non_abi/nvshmem_version.h>
#define GPUCOMM_NVSHMEM_VERSION \
  (NVSHMEM_VENDOR_MAJOR_VERSION * 10000 + NVSHMEM_VENDOR_MINOR_VERSION * 100 + NVSHMEM_VENDOR_PATCH_VERSION)

#if GPUCOMM_NVSHMEM_VERSION >= 30300
#include <nvshmem_host.h>
#else
#include <host/nvshmem_api.h>
#include <host/nvshmemx_api.h>
#endif

/* Constants, as the type of the parameters and results that they are for: NVSHMEM has them in enumerations whose names
 * change, and which no function takes. The bindings drop the prefix. */
#define GPUCOMM_CONSTANT(type, name) static const type gpucomm_##name = name
GPUCOMM_CONSTANT(unsigned int, NVSHMEMX_INIT_WITH_UNIQUEID);
GPUCOMM_CONSTANT(int, NVSHMEM_STATUS_NOT_INITIALIZED);
GPUCOMM_CONSTANT(int, NVSHMEM_STATUS_IS_BOOTSTRAPPED);
GPUCOMM_CONSTANT(int, NVSHMEM_STATUS_IS_INITIALIZED);
GPUCOMM_CONSTANT(int, NVSHMEM_STATUS_LIMITED_MPG);
GPUCOMM_CONSTANT(int, NVSHMEM_STATUS_FULL_MPG);
GPUCOMM_CONSTANT(int, NVSHMEM_THREAD_SINGLE);
GPUCOMM_CONSTANT(int, NVSHMEM_THREAD_FUNNELED);
GPUCOMM_CONSTANT(int, NVSHMEM_THREAD_SERIALIZED);
GPUCOMM_CONSTANT(int, NVSHMEM_THREAD_MULTIPLE);
GPUCOMM_CONSTANT(nvshmem_team_t, NVSHMEM_TEAM_INVALID);
GPUCOMM_CONSTANT(nvshmem_team_t, NVSHMEM_TEAM_WORLD);
GPUCOMM_CONSTANT(nvshmem_team_t, NVSHMEM_TEAM_SHARED);
GPUCOMM_CONSTANT(nvshmem_team_t, NVSHMEMX_TEAM_NODE);
GPUCOMM_CONSTANT(nvshmem_team_t, NVSHMEMX_TEAM_SAME_MYPE_NODE);
GPUCOMM_CONSTANT(int, NVSHMEM_CMP_EQ);
GPUCOMM_CONSTANT(int, NVSHMEM_CMP_NE);
GPUCOMM_CONSTANT(int, NVSHMEM_CMP_GT);
GPUCOMM_CONSTANT(int, NVSHMEM_CMP_LE);
GPUCOMM_CONSTANT(int, NVSHMEM_CMP_LT);
GPUCOMM_CONSTANT(int, NVSHMEM_CMP_GE);
GPUCOMM_CONSTANT(int, NVSHMEM_SIGNAL_SET);
GPUCOMM_CONSTANT(int, NVSHMEM_SIGNAL_ADD);
GPUCOMM_CONSTANT(int, NVSHMEMX_SUCCESS);
GPUCOMM_CONSTANT(int, NVSHMEMX_ERROR_INVALID_VALUE);
GPUCOMM_CONSTANT(int, NVSHMEMX_ERROR_OUT_OF_MEMORY);
GPUCOMM_CONSTANT(int, NVSHMEMX_ERROR_NOT_SUPPORTED);
GPUCOMM_CONSTANT(int, NVSHMEMX_ERROR_SYMMETRY);
GPUCOMM_CONSTANT(int, NVSHMEMX_ERROR_GPU_NOT_SELECTED);
GPUCOMM_CONSTANT(int, NVSHMEMX_ERROR_COLLECTIVE_LAUNCH_FAILED);
GPUCOMM_CONSTANT(int, NVSHMEMX_ERROR_INTERNAL);
#if GPUCOMM_NVSHMEM_VERSION >= 30300
GPUCOMM_CONSTANT(long, NVSHMEM_TEAM_CONFIG_MASK_NUM_CONTEXTS);
GPUCOMM_CONSTANT(long, NVSHMEM_TEAM_CONFIG_MASK_UNIQUEID);
#endif
#if GPUCOMM_NVSHMEM_VERSION >= 30800
GPUCOMM_CONSTANT(nvshmem_team_t, NVSHMEM_TEAM_MC_SHARED);
GPUCOMM_CONSTANT(unsigned int, NVSHMEMX_REGION_HINT_NONE);
GPUCOMM_CONSTANT(unsigned int, NVSHMEMX_REGION_HINT_BATCH_RMA);
#endif
#undef GPUCOMM_CONSTANT

#if defined(__cplusplus)
extern "C" {
#endif

/* The initialisers of the headers, which bindgen cannot read: NVSHMEMX_UNIQUEID_INITIALIZER, NVSHMEMX_INIT_ATTR_INITIALIZER
 * and NVSHMEM_TEAM_CONFIG_INITIALIZER. Each states the version of its struct. */
void gpucommNvshmemUniqueIdInit(nvshmemx_uniqueid_t *id);
void gpucommNvshmemAttrInit(nvshmemx_init_attr_t *attr);
void gpucommNvshmemTeamConfigInit(nvshmem_team_config_t *config);
int gpucommNvshmemHasNccl(void);

#if GPUCOMM_NVSHMEM_VERSION >= 30800
/* nvshmemx_collective_launch, _attr and _query_gridsize, without the types of their headers, which are written for C++:
 * `grid` and `block` have three numbers each, and `config` is a cudaLaunchConfig_t. */
int gpucommNvshmemCollectiveLaunch(const void *kernel, const unsigned int *grid, const unsigned int *block, void **args, size_t shared, cudaStream_t stream);
int gpucommNvshmemCollectiveLaunchConfig(const void *config, const void *kernel, void **args);
int gpucommNvshmemCollectiveLaunchGrid(const void *kernel, const unsigned int *block, size_t shared, int *blocks);
#endif

#if defined(__cplusplus)
}
#endif
#endif
