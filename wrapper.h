#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#if defined(GPUCOMM_NCCL)
#include <nccl.h>
#endif

#include "gpucomm_shim.h"
