#include "gpucomm_pmix.h"

#include <stdatomic.h>
#include <string.h>

#include <pmix.h>

/* PMIx 3 has several codes for it. */
#if !defined(PMIX_ERR_LOST_CONNECTION)
#define PMIX_ERR_LOST_CONNECTION PMIX_ERR_LOST_CONNECTION_TO_SERVER
#endif

_Static_assert(sizeof(pmix_rank_t) == sizeof(uint32_t), "a rank has 32 bits");

/* Set by PMIx_Init, and not changed after that. */
static pmix_proc_t me;

/* The first end of a rank, or of the server, that was told: `how` is 0 until then. Written by PMIx's own thread alone. */
static _Atomic uint32_t who;
static _Atomic int how;

/* Codes that mean that a process, or the way to the server, has ended. Versions of PMIx have some of them. */
static pmix_status_t ends[] = {
    PMIX_ERR_LOST_CONNECTION,
#if defined(PMIX_ERR_PROC_ABORTED)
    PMIX_ERR_PROC_ABORTED,
#endif
#if defined(PMIX_ERR_PROC_ABORTED_BY_SIG)
    PMIX_ERR_PROC_ABORTED_BY_SIG,
#endif
#if defined(PMIX_ERR_PROC_TERM_WO_SYNC)
    PMIX_ERR_PROC_TERM_WO_SYNC,
#endif
#if defined(PMIX_ERR_PROC_KILLED_BY_CMD)
    PMIX_ERR_PROC_KILLED_BY_CMD,
#endif
#if defined(PMIX_ERR_EXIT_NONZERO_TERM)
    PMIX_ERR_EXIT_NONZERO_TERM,
#endif
#if defined(PMIX_EVENT_PROC_TERMINATED)
    PMIX_EVENT_PROC_TERMINATED,
#elif defined(PMIX_PROC_TERMINATED)
    PMIX_PROC_TERMINATED,
#endif
#if defined(PMIX_EVENT_NODE_DOWN)
    PMIX_EVENT_NODE_DOWN,
#elif defined(PMIX_ERR_NODE_DOWN)
    PMIX_ERR_NODE_DOWN,
#endif
};

/* Whether `process` is another rank of this job. */
static int is_peer(const pmix_proc_t *process) {
  return strncmp(process->nspace, me.nspace, PMIX_MAX_NSLEN) == 0 && process->rank <= PMIX_RANK_VALID && process->rank != me.rank;
}

static void ended(uint32_t rank, pmix_status_t status) {
  if (atomic_load(&how) != 0) return;
  atomic_store(&who, rank);
  atomic_store(&how, status);
}

/* Called by a thread of PMIx: it notes, and neither waits nor calls back. */
static void on_end(size_t id, pmix_status_t status, const pmix_proc_t *source, pmix_info_t info[], size_t infos, pmix_info_t *results,
                   size_t count, pmix_event_notification_cbfunc_fn_t done, void *token) {
  const pmix_proc_t *affected = source;
  size_t at;
  (void)id;
  (void)results;
  (void)count;
  for (at = 0; at < infos; at++) {
    if (strncmp(info[at].key, PMIX_EVENT_AFFECTED_PROC, PMIX_MAX_KEYLEN) == 0 && info[at].value.type == PMIX_PROC) {
      affected = info[at].value.data.proc;
    }
  }
  if (affected != NULL && is_peer(affected)) {
    ended(affected->rank, status);
  } else if (status == PMIX_ERR_LOST_CONNECTION && affected != NULL && strncmp(affected->nspace, me.nspace, PMIX_MAX_NSLEN) != 0) {
    ended(GPUCOMM_PMIX_SERVER, status);
  }
  if (done != NULL) done(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, token);
}

int gpucommPmixInit(uint32_t *rank) {
  size_t at;
  int status = PMIx_Init(&me, NULL, 0);
  if (status != PMIX_SUCCESS) return status;
  *rank = me.rank;
  /* One at a time: a server that has no events of nodes refuses all that come with them. Without any, deadlines are left. */
  for (at = 0; at < sizeof ends / sizeof *ends; at++) {
    (void)PMIx_Register_event_handler(&ends[at], 1, NULL, 0, on_end, NULL, NULL);
  }
  return 0;
}

int gpucommPmixFinalize(void) { return PMIx_Finalize(NULL, 0); }

/* The process that facts of the whole job are asked of, or one rank of it. */
static pmix_proc_t process(pmix_rank_t rank) {
  pmix_proc_t all = me;
  all.rank = rank;
  return all;
}

/* PMIx takes a whole array for a key. */
static pmix_status_t get(pmix_rank_t rank, const char *key, const pmix_info_t *limit, pmix_value_t **value) {
  pmix_proc_t of = process(rank);
  pmix_key_t name = {0};
  strncpy(name, key, PMIX_MAX_KEYLEN);
  return PMIx_Get(&of, name, limit, limit != NULL, value);
}

/* A number of any width. */
static int number(pmix_rank_t rank, const char *key, uint32_t *into) {
  pmix_value_t *value = NULL;
  int status = get(rank, key, NULL, &value);
  if (status != PMIX_SUCCESS) return status;
  switch (value->type) {
    case PMIX_UINT8: *into = value->data.uint8; break;
    case PMIX_UINT16: *into = value->data.uint16; break;
    case PMIX_UINT32: *into = value->data.uint32; break;
    case PMIX_UINT64: *into = (uint32_t)value->data.uint64; break;
    case PMIX_INT: *into = (uint32_t)value->data.integer; break;
    case PMIX_INT32: *into = (uint32_t)value->data.int32; break;
    case PMIX_UINT: *into = value->data.uint; break;
    case PMIX_SIZE: *into = (uint32_t)value->data.size; break;
    case PMIX_PROC_RANK: *into = value->data.rank; break;
    default: status = PMIX_ERR_TYPE_MISMATCH;
  }
  PMIX_VALUE_RELEASE(value);
  return status;
}

int gpucommPmixSize(uint32_t *size) { return number(PMIX_RANK_WILDCARD, PMIX_JOB_SIZE, size); }

int gpucommPmixLocalSize(uint32_t *size) { return number(PMIX_RANK_WILDCARD, PMIX_LOCAL_SIZE, size); }

int gpucommPmixLocalRank(uint32_t *rank) { return number(me.rank, PMIX_LOCAL_RANK, rank); }

int gpucommPmixLocalPeers(char *text, size_t size) {
  pmix_value_t *value = NULL;
  int status = get(PMIX_RANK_WILDCARD, PMIX_LOCAL_PEERS, NULL, &value);
  if (status != PMIX_SUCCESS) return status;
  if (value->type != PMIX_STRING || value->data.string == NULL) {
    status = PMIX_ERR_TYPE_MISMATCH;
  } else if (strlen(value->data.string) >= size) {
    status = GPUCOMM_PMIX_TOO_LONG;
  } else {
    strcpy(text, value->data.string);
  }
  PMIX_VALUE_RELEASE(value);
  return status;
}

int gpucommPmixPut(const char *key, const void *bytes, size_t size) {
  pmix_value_t value;
  pmix_key_t name = {0};
  int status;
  strncpy(name, key, PMIX_MAX_KEYLEN);
  memset(&value, 0, sizeof value);
  value.type = PMIX_BYTE_OBJECT;
  /* It is copied. */
  value.data.bo.bytes = (char *)(uintptr_t)bytes;
  value.data.bo.size = size;
  status = PMIx_Put(PMIX_GLOBAL, name, &value);
  return status == PMIX_SUCCESS ? PMIx_Commit() : status;
}

int gpucommPmixGet(uint32_t rank, const char *key, int seconds, void *bytes, size_t size, size_t *told) {
  pmix_value_t *value = NULL;
  pmix_info_t limit;
  int status;
  memset(&limit, 0, sizeof limit);
  strcpy(limit.key, PMIX_TIMEOUT);
  limit.value.type = PMIX_INT;
  limit.value.data.integer = seconds;
  status = get(rank, key, &limit, &value);
  if (status == PMIX_ERR_TIMEOUT || status == PMIX_ERR_NOT_FOUND) return GPUCOMM_PMIX_NOT_YET;
  if (status != PMIX_SUCCESS) return status;
  if (value->type != PMIX_BYTE_OBJECT) {
    status = PMIX_ERR_TYPE_MISMATCH;
  } else if (value->data.bo.size > size) {
    status = GPUCOMM_PMIX_TOO_LONG;
  } else {
    if (value->data.bo.size > 0) memcpy(bytes, value->data.bo.bytes, value->data.bo.size);
    *told = value->data.bo.size;
  }
  PMIX_VALUE_RELEASE(value);
  return status;
}

int gpucommPmixDeath(uint32_t *rank, int *code) {
  int status = atomic_load(&how);
  if (status == 0) return 0;
  *rank = atomic_load(&who);
  *code = status;
  return 1;
}

const char *gpucommPmixError(int code) {
  return code == GPUCOMM_PMIX_TOO_LONG ? "longer than expected" : PMIx_Error_string(code);
}
