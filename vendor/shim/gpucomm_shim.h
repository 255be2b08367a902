/* What Rust cannot take from the headers alone: structs whose layout or initialiser changes with the version. */
#ifndef GPUCOMM_SHIM_H
#define GPUCOMM_SHIM_H

#include <cuda_runtime_api.h>
#if defined(GPUCOMM_NCCL)
#include <nccl.h>
#endif
#include <stddef.h>

#if defined(__cplusplus)
extern "C" {
#endif

/* The few properties of a device that no attribute gives. */
typedef struct gpucommDeviceInfo_t {
  char name[256];
  unsigned char uuid[16];
  size_t totalMemory;
} gpucommDeviceInfo_t;

cudaError_t gpucommDeviceInfo(gpucommDeviceInfo_t *info, int device);

/* What lies at an address: a cudaMemoryType (0 nothing that CUDA knows, 1 memory of the host, 2 of a device, 3 managed), and the
 * device that it belongs to; not a device where CUDA knows of none. */
typedef struct gpucommPointerInfo_t {
  int kind;
  int device;
} gpucommPointerInfo_t;

cudaError_t gpucommPointerInfo(gpucommPointerInfo_t *info, const void *ptr);

/* A pool of device memory that keeps what is freed into it and that every peer device may access. */
cudaError_t gpucommPoolCreate(cudaMemPool_t *pool, int device);

/* The driver function `symbol` as of CUDA `version` (12010 is 12.1), or null where the driver has none. */
cudaError_t gpucommDriverEntryPoint(void **function, const char *symbol, unsigned int version);

#if defined(GPUCOMM_NCCL)
/* What nccl_device.h, which is for compilers of CUDA, has in ncclCommProperties: as far as NCCL 2.29.7 has it. Numbers are 0 or 1 where it
 * says yes or no. */
typedef struct gpucommNcclProperties_t {
  int nvmlDev;
  int deviceApiSupport;
  int multimemSupport;
  int ginType;
  int nLsaTeams;
  int hostRmaSupport;
  int railedGinType;
} gpucommNcclProperties_t;

/* ncclCommQueryProperties; ncclInvalidUsage where the library has none. */
ncclResult_t gpucommNcclProperties(ncclComm_t comm, gpucommNcclProperties_t *properties);

#if NCCL_VERSION_CODE >= 22902
/* ncclGetLsaDevicePointer, ncclGetPeerDevicePointer and ncclGetLsaMultimemDevicePointer of nccl_device.h: where kernels of this rank reach a
 * window, on a rank that maps the same memory, on any rank, and through switches. ncclInvalidUsage where the library has none. */
ncclResult_t gpucommNcclLsaPointer(ncclWindow_t window, size_t offset, int lsaRank, void **address);
ncclResult_t gpucommNcclPeerPointer(ncclWindow_t window, size_t offset, int peer, void **address);
ncclResult_t gpucommNcclMultimemPointer(ncclWindow_t window, size_t offset, void **address);
#endif

/* NCCL_CONFIG_INITIALIZER. */
void gpucommNcclConfigInit(ncclConfig_t *config);
#if NCCL_VERSION_CODE >= 22203
/* NCCL_SIM_INFO_INITIALIZER. */
void gpucommNcclSimInfoInit(ncclSimInfo_t *info);
#endif
#if NCCL_VERSION_CODE >= 23100
/* NCCL_COLLCONFIG_INITIALIZER. */
void gpucommNcclCollConfigInit(ncclCollConfig_t *config);
#endif
#if NCCL_VERSION_CODE >= 23200
/* NCCL_ENCRYPTION_CONFIG_INITIALIZER. */
void gpucommNcclEncryptionConfigInit(ncclEncryptionConfig_t *config);
#endif
#endif

#if defined(__cplusplus)
}
#endif
#endif
