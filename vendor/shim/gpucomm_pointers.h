/* What nccl_device.h declares of addresses of windows, as of NCCL 2.29.2. */
#ifndef GPUCOMM_POINTERS_H
#define GPUCOMM_POINTERS_H

#include <nccl.h>
#include <stddef.h>

#if defined(__cplusplus)
extern "C" {
#endif

ncclResult_t ncclGetLsaDevicePointer(ncclWindow_t window, size_t offset, int lsaRank, void **outPtr);
ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t window, size_t offset, int peer, void **outPtr);
ncclResult_t ncclGetLsaMultimemDevicePointer(ncclWindow_t window, size_t offset, void **outPtr);

#if defined(__cplusplus)
}
#endif
#endif
