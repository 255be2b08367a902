/* What nccl_device.h declares of ncclCommQueryProperties, as of NCCL 2.29.7, under a name of our own for the struct. */
#ifndef GPUCOMM_PROPERTIES_H
#define GPUCOMM_PROPERTIES_H

#include <nccl.h>
#include <stdbool.h>
#include <stddef.h>

/* ncclGinType_t is an enumeration, of which C takes an int. */
struct gpucommCommProperties {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int rank;
  int nRanks;
  int cudaDev;
  int nvmlDev;
  bool deviceApiSupport;
  bool multimemSupport;
  int ginType;
  int nLsaTeams;
  bool hostRmaSupport;
  int railedGinType;
};

#if !defined(GPUCOMM_PROPERTIES_PROOF)
#if defined(__cplusplus)
extern "C"
#endif
ncclResult_t ncclCommQueryProperties(ncclComm_t comm, struct gpucommCommProperties *properties);
#endif
#endif
