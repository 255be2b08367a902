#include "gpucomm_shim.h"

#include <string.h>

cudaError_t gpucommDeviceInfo(gpucommDeviceInfo_t *info, int device) {
  struct cudaDeviceProp prop;
  cudaError_t error = cudaGetDeviceProperties(&prop, device);
  if (error != cudaSuccess) return error;
  memset(info, 0, sizeof(*info));
  strncpy(info->name, prop.name, sizeof(info->name) - 1);
  memcpy(info->uuid, prop.uuid.bytes, sizeof(info->uuid));
  info->totalMemory = prop.totalGlobalMem;
  return cudaSuccess;
}

cudaError_t gpucommPoolCreate(cudaMemPool_t *pool, int device) {
  struct cudaMemPoolProps props;
  struct cudaMemAccessDesc access;
  unsigned long long keep = ~0ull;
  int count = 0;
  int peer;
  cudaError_t error;

  memset(&props, 0, sizeof(props));
  props.allocType = cudaMemAllocationTypePinned;
  props.handleTypes = cudaMemHandleTypeNone;
  props.location.type = cudaMemLocationTypeDevice;
  props.location.id = device;
  error = cudaMemPoolCreate(pool, &props);
  if (error != cudaSuccess) return error;

  error = cudaMemPoolSetAttribute(*pool, cudaMemPoolAttrReleaseThreshold, &keep);
  if (error == cudaSuccess) error = cudaGetDeviceCount(&count);
  for (peer = 0; peer < count && error == cudaSuccess; peer++) {
    int can = 0;
    if (peer == device) continue;
    error = cudaDeviceCanAccessPeer(&can, peer, device);
    if (error != cudaSuccess || !can) continue;
    memset(&access, 0, sizeof(access));
    access.location.type = cudaMemLocationTypeDevice;
    access.location.id = peer;
    access.flags = cudaMemAccessFlagsProtReadWrite;
    error = cudaMemPoolSetAccess(*pool, &access, 1);
  }
  if (error != cudaSuccess) (void)cudaMemPoolDestroy(*pool);
  return error;
}

cudaError_t gpucommDriverEntryPoint(void **function, const char *symbol, unsigned int version) {
  enum cudaDriverEntryPointQueryResult found;
  cudaError_t error;
  *function = NULL;
#if CUDART_VERSION >= 12050
  error = cudaGetDriverEntryPointByVersion(symbol, function, version, cudaEnableDefault, &found);
#else
  (void)version;
  error = cudaGetDriverEntryPoint(symbol, function, cudaEnableDefault, &found);
#endif
  if (error == cudaSuccess && found != cudaDriverEntryPointSuccess) *function = NULL;
  return error;
}

void gpucommNcclConfigInit(ncclConfig_t *config) {
  ncclConfig_t initial = NCCL_CONFIG_INITIALIZER;
  *config = initial;
}
