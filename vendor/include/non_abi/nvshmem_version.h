/* The version of NVSHMEM that nvshmem_host.h beside this directory is of. */
#ifndef GPUCOMM_VENDOR_NVSHMEM_VERSION_H
#define GPUCOMM_VENDOR_NVSHMEM_VERSION_H

#define NVSHMEM_VENDOR_MAJOR_VERSION 3
#define NVSHMEM_VENDOR_MINOR_VERSION 8
#define NVSHMEM_VENDOR_PATCH_VERSION 0

#endif
