#include "gpucomm_shim.h"

#include <string.h>
#if CUDART_VERSION >= 12010
#include <cudaTypedefs.h>
#endif

/* What the Rust side takes for granted. */
_Static_assert(sizeof(cudaError_t) == 4, "cudaError_t is a C int");
_Static_assert(sizeof(enum cudaDeviceAttr) == 4, "cudaDeviceAttr is a C int");
_Static_assert(sizeof(cudaStream_t) == sizeof(void *), "cudaStream_t is a pointer");
_Static_assert(sizeof(cudaUUID_t) == sizeof(((gpucommDeviceInfo_t *)0)->uuid), "a UUID has 16 bytes");
_Static_assert(sizeof(((struct cudaDeviceProp *)0)->name) <= sizeof(((gpucommDeviceInfo_t *)0)->name), "names fit");
_Static_assert(cudaMemoryTypeUnregistered == 0 && cudaMemoryTypeHost == 1, "cudaMemoryType");
_Static_assert(cudaMemoryTypeDevice == 2 && cudaMemoryTypeManaged == 3, "cudaMemoryType");
/* What crates/gpucomm-abi/src/multicast.rs declares by hand. */
#if CUDART_VERSION >= 12010
_Static_assert(sizeof(CUmulticastObjectProp) == 32, "CUmulticastObjectProp has 32 bytes");
_Static_assert(offsetof(CUmulticastObjectProp, numDevices) == 0, "numDevices");
_Static_assert(offsetof(CUmulticastObjectProp, size) == 8, "size");
_Static_assert(offsetof(CUmulticastObjectProp, handleTypes) == 16, "handleTypes");
_Static_assert(offsetof(CUmulticastObjectProp, flags) == 24, "flags");
_Static_assert(CU_MULTICAST_GRANULARITY_MINIMUM == 0 && CU_MULTICAST_GRANULARITY_RECOMMENDED == 1, "granularities");
_Static_assert(CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED == 132, "the attribute");
_Static_assert(sizeof(CUmulticastGranularity_flags) == 4 && sizeof(CUdevice) == 4 && sizeof(CUresult) == 4, "C ints");
#if defined(__GNUC__)
#define GPUCOMM_IS(name, ...) \
  _Static_assert(__builtin_types_compatible_p(PFN_##name, CUresult(CUDAAPI *)(__VA_ARGS__)), #name)
GPUCOMM_IS(cuMulticastGetGranularity_v12010, size_t *, const CUmulticastObjectProp *, CUmulticastGranularity_flags);
GPUCOMM_IS(cuMulticastCreate_v12010, unsigned long long *, const CUmulticastObjectProp *);
GPUCOMM_IS(cuMulticastAddDevice_v12010, unsigned long long, int);
GPUCOMM_IS(cuMulticastBindMem_v12010, unsigned long long, size_t, unsigned long long, size_t, size_t, unsigned long long);
GPUCOMM_IS(cuMulticastBindAddr_v12010, unsigned long long, size_t, unsigned long long, size_t, unsigned long long);
GPUCOMM_IS(cuMulticastUnbind_v12010, unsigned long long, int, size_t, size_t);
#if CUDART_VERSION >= 13010
GPUCOMM_IS(cuMulticastBindMem_v13010, unsigned long long, int, size_t, unsigned long long, size_t, size_t, unsigned long long);
GPUCOMM_IS(cuMulticastBindAddr_v13010, unsigned long long, int, size_t, unsigned long long, size_t, unsigned long long);
#endif
#endif
#endif
#if defined(GPUCOMM_NCCL)
_Static_assert(sizeof(ncclUniqueId) == 128, "ncclUniqueId has 128 bytes");
_Static_assert(sizeof(ncclResult_t) == 4, "ncclResult_t is a C int");
_Static_assert(sizeof(ncclDataType_t) == 4, "ncclDataType_t is a C int");
_Static_assert(sizeof(ncclRedOp_t) == 4, "ncclRedOp_t is a C int");
_Static_assert(sizeof(ncclComm_t) == sizeof(void *), "ncclComm_t is a pointer");
_Static_assert(NCCL_VERSION_CODE >= 21900, "NCCL 2.19 or newer");
#endif

/* A library that is older than the headers lacks functions. Weak references let the program start all the same: then the
 * Rust side compares versions and says which one is needed. An archive is complete, and weak references would not pull
 * its members in. */
#if !defined(GPUCOMM_CUDA_STATIC) && CUDART_VERSION >= 12050 && CUDART_VERSION < 13000
#pragma weak cudaGetDriverEntryPointByVersion
#endif

cudaError_t gpucommDeviceInfo(gpucommDeviceInfo_t *info, int device) {
  struct cudaDeviceProp prop;
  cudaError_t error = cudaGetDeviceProperties(&prop, device);
  if (error != cudaSuccess) return error;
  memset(info, 0, sizeof(*info));
  memcpy(info->name, prop.name, sizeof(prop.name));
  info->name[sizeof(info->name) - 1] = 0;
  memcpy(info->uuid, prop.uuid.bytes, sizeof(info->uuid));
  info->totalMemory = prop.totalGlobalMem;
  return cudaSuccess;
}

/* CUDA 13 made the struct longer. */
cudaError_t gpucommPointerInfo(gpucommPointerInfo_t *info, const void *ptr) {
  struct cudaPointerAttributes attributes;
  cudaError_t error = cudaPointerGetAttributes(&attributes, ptr);
  if (error != cudaSuccess) return error;
  info->kind = (int)attributes.type;
  info->device = attributes.device;
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
#if CUDART_VERSION >= 13000
  error = cudaGetDriverEntryPointByVersion(symbol, function, version, cudaEnableDefault, &found);
#elif CUDART_VERSION >= 12050
  if (cudaGetDriverEntryPointByVersion != NULL)
    error = cudaGetDriverEntryPointByVersion(symbol, function, version, cudaEnableDefault, &found);
  else
    error = cudaGetDriverEntryPoint(symbol, function, cudaEnableDefault, &found);
#else
  (void)version;
  error = cudaGetDriverEntryPoint(symbol, function, cudaEnableDefault, &found);
#endif
  if (error == cudaSuccess && found != cudaDriverEntryPointSuccess) *function = NULL;
  return error;
}

#if defined(GPUCOMM_NCCL)
void gpucommNcclConfigInit(ncclConfig_t *config) {
  ncclConfig_t initial = NCCL_CONFIG_INITIALIZER;
  *config = initial;
}

#if NCCL_VERSION_CODE >= 22907
/* What nccl_device.h declares, in the same words: tests/abi compares the two. The library is told that this is of 2.29.7. */
#include "gpucomm_properties.h"
#if !defined(GPUCOMM_NCCL_STATIC)
#pragma weak ncclCommQueryProperties
#endif

ncclResult_t gpucommNcclProperties(ncclComm_t comm, gpucommNcclProperties_t *properties) {
  struct gpucommCommProperties found;
  ncclResult_t result;
  memset(properties, 0, sizeof(*properties));
  memset(&found, 0, sizeof(found));
#if !defined(GPUCOMM_NCCL_STATIC)
  if (ncclCommQueryProperties == NULL) return ncclInvalidUsage;
#endif
  found.size = sizeof(found);
  found.magic = 0xcafebeef;
  found.version = 22907;
  result = ncclCommQueryProperties(comm, &found);
  properties->nvmlDev = found.nvmlDev;
  properties->deviceApiSupport = found.deviceApiSupport;
  properties->multimemSupport = found.multimemSupport;
  properties->ginType = found.ginType;
  properties->nLsaTeams = found.nLsaTeams;
  properties->hostRmaSupport = found.hostRmaSupport;
  properties->railedGinType = found.railedGinType;
  return result;
}
#else
ncclResult_t gpucommNcclProperties(ncclComm_t comm, gpucommNcclProperties_t *properties) {
  (void)comm;
  memset(properties, 0, sizeof(*properties));
  return ncclInvalidUsage;
}
#endif

#if NCCL_VERSION_CODE >= 22902
/* As with properties. */
#include "gpucomm_pointers.h"
#if !defined(GPUCOMM_NCCL_STATIC)
#pragma weak ncclGetLsaDevicePointer
#pragma weak ncclGetPeerDevicePointer
#pragma weak ncclGetLsaMultimemDevicePointer
#endif

ncclResult_t gpucommNcclLsaPointer(ncclWindow_t window, size_t offset, int lsaRank, void **address) {
#if !defined(GPUCOMM_NCCL_STATIC)
  if (ncclGetLsaDevicePointer == NULL) return ncclInvalidUsage;
#endif
  return ncclGetLsaDevicePointer(window, offset, lsaRank, address);
}

ncclResult_t gpucommNcclPeerPointer(ncclWindow_t window, size_t offset, int peer, void **address) {
#if !defined(GPUCOMM_NCCL_STATIC)
  if (ncclGetPeerDevicePointer == NULL) return ncclInvalidUsage;
#endif
  return ncclGetPeerDevicePointer(window, offset, peer, address);
}

ncclResult_t gpucommNcclMultimemPointer(ncclWindow_t window, size_t offset, void **address) {
#if !defined(GPUCOMM_NCCL_STATIC)
  if (ncclGetLsaMultimemDevicePointer == NULL) return ncclInvalidUsage;
#endif
  return ncclGetLsaMultimemDevicePointer(window, offset, address);
}
#endif

/* Bound in place of the functions of that name (build/bind.rs, NEWER). */
#define GPUCOMM_NEWER(name, parameters, arguments) \
  ncclResult_t gpucomm_##name parameters; \
  ncclResult_t gpucomm_##name parameters { return name != NULL ? name arguments : ncclInvalidUsage; }

#if NCCL_VERSION_CODE >= 22203
void gpucommNcclSimInfoInit(ncclSimInfo_t *info) {
  ncclSimInfo_t initial = NCCL_SIM_INFO_INITIALIZER;
  *info = initial;
}

#if !defined(GPUCOMM_NCCL_STATIC)
#pragma weak ncclGroupSimulateEnd
#endif
GPUCOMM_NEWER(ncclGroupSimulateEnd, (ncclSimInfo_t *info), (info))
#endif

#if NCCL_VERSION_CODE >= 22304
#if !defined(GPUCOMM_NCCL_STATIC)
#pragma weak ncclCommInitRankScalable
#endif
GPUCOMM_NEWER(ncclCommInitRankScalable,
              (ncclComm_t *comm, int ranks, int rank, int count, ncclUniqueId *ids, ncclConfig_t *config),
              (comm, ranks, rank, count, ids, config))
#endif

#if NCCL_VERSION_CODE >= 22700
#if !defined(GPUCOMM_NCCL_STATIC)
#pragma weak ncclCommWindowRegister
#pragma weak ncclCommWindowDeregister
#pragma weak ncclCommShrink
#endif
GPUCOMM_NEWER(ncclCommWindowRegister,
              (ncclComm_t comm, void *buffer, size_t size, ncclWindow_t *window, int flags),
              (comm, buffer, size, window, flags))
GPUCOMM_NEWER(ncclCommWindowDeregister, (ncclComm_t comm, ncclWindow_t window), (comm, window))
GPUCOMM_NEWER(ncclCommShrink,
              (ncclComm_t comm, int *excluded, int count, ncclComm_t *rest, ncclConfig_t *config, int flags),
              (comm, excluded, count, rest, config, flags))
#endif

#if NCCL_VERSION_CODE >= 22800
#if !defined(GPUCOMM_NCCL_STATIC)
#pragma weak ncclAlltoAll
#pragma weak ncclGather
#pragma weak ncclScatter
#endif
GPUCOMM_NEWER(ncclAlltoAll,
              (const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream),
              (send, recv, count, type, comm, stream))
GPUCOMM_NEWER(ncclGather,
              (const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream),
              (send, recv, count, type, root, comm, stream))
GPUCOMM_NEWER(ncclScatter,
              (const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream),
              (send, recv, count, type, root, comm, stream))
#endif

#if NCCL_VERSION_CODE >= 22807
#if !defined(GPUCOMM_NCCL_STATIC)
#pragma weak ncclCommRevoke
#endif
GPUCOMM_NEWER(ncclCommRevoke, (ncclComm_t comm, int flags), (comm, flags))
#endif

#if NCCL_VERSION_CODE >= 22900
#if !defined(GPUCOMM_NCCL_STATIC)
#pragma weak ncclCommGetUniqueId
#pragma weak ncclCommGrow
#pragma weak ncclPutSignal
#pragma weak ncclSignal
#pragma weak ncclWaitSignal
#pragma weak ncclWinGetUserPtr
#endif
GPUCOMM_NEWER(ncclCommGetUniqueId, (ncclComm_t comm, ncclUniqueId *id), (comm, id))
GPUCOMM_NEWER(ncclCommGrow,
              (ncclComm_t comm, int ranks, const ncclUniqueId *id, int rank, ncclComm_t *grown, ncclConfig_t *config),
              (comm, ranks, id, rank, grown, config))
GPUCOMM_NEWER(ncclPutSignal,
              (const void *local, size_t count, ncclDataType_t type, int peer, ncclWindow_t window, size_t offset, int signal,
               int context, unsigned int flags, ncclComm_t comm, cudaStream_t stream),
              (local, count, type, peer, window, offset, signal, context, flags, comm, stream))
GPUCOMM_NEWER(ncclSignal,
              (int peer, int signal, int context, unsigned int flags, ncclComm_t comm, cudaStream_t stream),
              (peer, signal, context, flags, comm, stream))
GPUCOMM_NEWER(ncclWaitSignal,
              (int count, ncclWaitSignalDesc_t *signals, ncclComm_t comm, cudaStream_t stream),
              (count, signals, comm, stream))
GPUCOMM_NEWER(ncclWinGetUserPtr, (ncclComm_t comm, ncclWindow_t window, void **pointer), (comm, window, pointer))
#endif

#if NCCL_VERSION_CODE >= 22907
#if !defined(GPUCOMM_NCCL_STATIC)
#pragma weak ncclCommSuspend
#pragma weak ncclCommResume
#pragma weak ncclCommMemStats
#endif
GPUCOMM_NEWER(ncclCommSuspend, (ncclComm_t comm, int flags), (comm, flags))
GPUCOMM_NEWER(ncclCommResume, (ncclComm_t comm), (comm))
GPUCOMM_NEWER(ncclCommMemStats, (ncclComm_t comm, ncclCommMemStat_t stat, uint64_t *value), (comm, stat, value))
#endif

#if NCCL_VERSION_CODE >= 23004
#if !defined(GPUCOMM_NCCL_STATIC)
#pragma weak ncclParamBind
#pragma weak ncclParamGetI8
#pragma weak ncclParamGetI16
#pragma weak ncclParamGetI32
#pragma weak ncclParamGetI64
#pragma weak ncclParamGetU8
#pragma weak ncclParamGetU16
#pragma weak ncclParamGetU32
#pragma weak ncclParamGetU64
#pragma weak ncclParamGetStr
#pragma weak ncclParamGet
#pragma weak ncclParamGetParameter
#pragma weak ncclParamGetAllParameterKeys
#endif
GPUCOMM_NEWER(ncclParamBind, (ncclParamHandle_t *handle, const char *key), (handle, key))
GPUCOMM_NEWER(ncclParamGetI8, (ncclParamHandle_t handle, int8_t *out), (handle, out))
GPUCOMM_NEWER(ncclParamGetI16, (ncclParamHandle_t handle, int16_t *out), (handle, out))
GPUCOMM_NEWER(ncclParamGetI32, (ncclParamHandle_t handle, int32_t *out), (handle, out))
GPUCOMM_NEWER(ncclParamGetI64, (ncclParamHandle_t handle, int64_t *out), (handle, out))
GPUCOMM_NEWER(ncclParamGetU8, (ncclParamHandle_t handle, uint8_t *out), (handle, out))
GPUCOMM_NEWER(ncclParamGetU16, (ncclParamHandle_t handle, uint16_t *out), (handle, out))
GPUCOMM_NEWER(ncclParamGetU32, (ncclParamHandle_t handle, uint32_t *out), (handle, out))
GPUCOMM_NEWER(ncclParamGetU64, (ncclParamHandle_t handle, uint64_t *out), (handle, out))
GPUCOMM_NEWER(ncclParamGetStr, (ncclParamHandle_t handle, const char **out), (handle, out))
GPUCOMM_NEWER(ncclParamGet, (ncclParamHandle_t handle, void *out, int longest, int *length), (handle, out, longest, length))
GPUCOMM_NEWER(ncclParamGetParameter, (const char *key, const char **value, int *length), (key, value, length))
GPUCOMM_NEWER(ncclParamGetAllParameterKeys, (const char ***table, int *length), (table, length))
#endif

#if NCCL_VERSION_CODE >= 23100
void gpucommNcclCollConfigInit(ncclCollConfig_t *config) {
  ncclCollConfig_t initial = NCCL_COLLCONFIG_INITIALIZER;
  *config = initial;
}

#if !defined(GPUCOMM_NCCL_STATIC)
#pragma weak ncclAllReduceConfig
#pragma weak ncclBroadcastConfig
#pragma weak ncclReduceConfig
#pragma weak ncclAllGatherConfig
#pragma weak ncclReduceScatterConfig
#pragma weak ncclAlltoAllConfig
#pragma weak ncclGatherConfig
#pragma weak ncclScatterConfig
#endif
GPUCOMM_NEWER(ncclAllReduceConfig,
              (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream,
               const ncclCollConfig_t *config),
              (send, recv, count, type, op, comm, stream, config))
GPUCOMM_NEWER(ncclBroadcastConfig,
              (const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream,
               const ncclCollConfig_t *config),
              (send, recv, count, type, root, comm, stream, config))
GPUCOMM_NEWER(ncclReduceConfig,
              (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream,
               const ncclCollConfig_t *config),
              (send, recv, count, type, op, root, comm, stream, config))
GPUCOMM_NEWER(ncclAllGatherConfig,
              (const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream,
               const ncclCollConfig_t *config),
              (send, recv, count, type, comm, stream, config))
GPUCOMM_NEWER(ncclReduceScatterConfig,
              (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream,
               const ncclCollConfig_t *config),
              (send, recv, count, type, op, comm, stream, config))
GPUCOMM_NEWER(ncclAlltoAllConfig,
              (const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream,
               const ncclCollConfig_t *config),
              (send, recv, count, type, comm, stream, config))
GPUCOMM_NEWER(ncclGatherConfig,
              (const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream,
               const ncclCollConfig_t *config),
              (send, recv, count, type, root, comm, stream, config))
GPUCOMM_NEWER(ncclScatterConfig,
              (const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream,
               const ncclCollConfig_t *config),
              (send, recv, count, type, root, comm, stream, config))
#endif

#if NCCL_VERSION_CODE >= 23200
void gpucommNcclEncryptionConfigInit(ncclEncryptionConfig_t *config) {
  ncclEncryptionConfig_t initial = NCCL_ENCRYPTION_CONFIG_INITIALIZER;
  *config = initial;
}

#if !defined(GPUCOMM_NCCL_STATIC)
#pragma weak ncclSetEncryption
#endif
GPUCOMM_NEWER(ncclSetEncryption, (const ncclEncryptionConfig_t *config), (config))
#endif
#endif
