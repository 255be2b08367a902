/* What this crate does with PMIx, in plain types of C: the structs of PMIx differ between its versions, so none of them is bound.
 * src/sys/pmix.rs declares the same; tests/pmix compares the two.
 *
 * Results are 0, a code of PMIx, which is negative, or one of ours, which is positive; gpucommPmixError says what it means. */
#ifndef GPUCOMM_PMIX_H
#define GPUCOMM_PMIX_H

#include <stddef.h>
#include <stdint.h>

/* What gpucommPmixGet says of a value that is not there yet. */
#define GPUCOMM_PMIX_NOT_YET 1

/* What is said of a value that is longer than there is room for. */
#define GPUCOMM_PMIX_TOO_LONG 2

/* What gpucommPmixDeath names where it is not one rank of this job that has ended, but the server that would say so. */
#define GPUCOMM_PMIX_SERVER UINT32_MAX

/* PMIx_Init: the rank of this process. From then on, who ends is noted. Once a process. */
int gpucommPmixInit(uint32_t *rank);

/* PMIx_Finalize. */
int gpucommPmixFinalize(void);

/* PMIx_Get: how many ranks the job has; how many of them share this node; which one of these this is. */
int gpucommPmixSize(uint32_t *size);
int gpucommPmixLocalSize(uint32_t *size);
int gpucommPmixLocalRank(uint32_t *rank);

/* PMIx_Get: the ranks of this node, with commas between, as text that ends with 0; GPUCOMM_PMIX_TOO_LONG where it has more than `size` bytes. */
int gpucommPmixLocalPeers(char *text, size_t size);

/* PMIx_Put and PMIx_Commit: tells all ranks of the job something of this one. */
int gpucommPmixPut(const char *key, const void *bytes, size_t size);

/* PMIx_Get: what `rank` has told, once it has; GPUCOMM_PMIX_NOT_YET after some seconds, GPUCOMM_PMIX_TOO_LONG where it has more than `size` bytes. */
int gpucommPmixGet(uint32_t rank, const char *key, int seconds, void *bytes, size_t size, size_t *told);

/* Whether a rank of this job, or the server, is known to have ended: 1, which one, and the code of PMIx for how. Can be called at any time. */
int gpucommPmixDeath(uint32_t *rank, int *how);

/* PMIx_Error_string: lasts as long as the process. */
const char *gpucommPmixError(int code);

#endif
