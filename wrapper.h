#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#include "gpucomm_shim.h"
