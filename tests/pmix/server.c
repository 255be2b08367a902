/* A launcher with PMIx for one node: `server N PROGRAM ARGUMENT...` starts N ranks and serves them. A rank that ends badly is told to
 * the others, which go on: no launcher does so by default, and some cannot. Ends with how many have ended badly, or with 99 where the server
 * was killed, which is the parent of the ranks. */
#define _GNU_SOURCE
#include <pmix.h>
#include <pmix_server.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST 16

extern char **environ;

static void text(pmix_info_t *info, const char *key, const char *value) { PMIX_INFO_LOAD(info, key, value, PMIX_STRING); }

static void number(pmix_info_t *info, const char *key, uint32_t value) { PMIX_INFO_LOAD(info, key, &value, PMIX_UINT32); }

static void check(const char *what, pmix_status_t status) {
  if (status == PMIX_SUCCESS || status == PMIX_OPERATION_SUCCEEDED) return;
  fprintf(stderr, "server: %s: %s\n", what, PMIx_Error_string(status));
  exit(100);
}

/* What ranks are told of a job that lies on this node. */
static void describe(const char *name, int size) {
  pmix_info_t *info;
  char host[256], peers[8 * MOST], *nodes, *ranks;
  int rank, at = 0, length = 0;
  gethostname(host, sizeof host);
  for (rank = 0; rank < size; rank++) length += sprintf(peers + length, rank == 0 ? "%d" : ",%d", rank);
  check("the nodes", PMIx_generate_regex(host, &nodes));
  check("the ranks", PMIx_generate_ppn(peers, &ranks));
  PMIX_INFO_CREATE(info, 6 + size);
  number(&info[at++], PMIX_UNIV_SIZE, size);
  number(&info[at++], PMIX_JOB_SIZE, size);
  number(&info[at++], PMIX_LOCAL_SIZE, size);
  text(&info[at++], PMIX_LOCAL_PEERS, peers);
  PMIX_INFO_LOAD(&info[at++], PMIX_NODE_MAP, nodes, PMIX_REGEX);
  PMIX_INFO_LOAD(&info[at++], PMIX_PROC_MAP, ranks, PMIX_REGEX);
  for (rank = 0; rank < size; rank++) {
    pmix_data_array_t *array;
    pmix_info_t *of;
    pmix_rank_t which = rank;
    uint16_t local = rank;
    PMIX_DATA_ARRAY_CREATE(array, 2, PMIX_INFO);
    of = array->array;
    PMIX_INFO_LOAD(&of[0], PMIX_RANK, &which, PMIX_PROC_RANK);
    PMIX_INFO_LOAD(&of[1], PMIX_LOCAL_RANK, &local, PMIX_UINT16);
    strcpy(info[at].key, PMIX_PROC_DATA);
    info[at].value.type = PMIX_DATA_ARRAY;
    info[at++].value.data.darray = array;
  }
  check("the job", PMIx_server_register_nspace(name, size, info, at, NULL, NULL));
}

static void tell(const pmix_proc_t *dead) {
  pmix_info_t info;
  PMIX_INFO_LOAD(&info, PMIX_EVENT_AFFECTED_PROC, dead, PMIX_PROC);
  check("an end", PMIx_Notify_event(PMIX_ERR_PROC_ABORTED, dead, PMIX_RANGE_SESSION, &info, 1, NULL, NULL));
}

/* Starts the ranks and serves them until all have ended: how many did so badly. */
static int serve(int size, char **program, const char *directory) {
  static pmix_server_module_t module;
  pmix_info_t info[2];
  pmix_proc_t process;
  pid_t ranks[MOST];
  int rank, left, bad = 0;
  text(&info[0], PMIX_SERVER_TMPDIR, directory);
  text(&info[1], PMIX_SYSTEM_TMPDIR, directory);
  check("start", PMIx_server_init(&module, info, 2));
  memset(&process, 0, sizeof process);
  strcpy(process.nspace, "gpucomm-test");
  describe(process.nspace, size);
  for (rank = 0; rank < size; rank++) {
    char **all = NULL;
    int at;
    for (at = 0; environ[at] != NULL; at++) {
      char **more = realloc(all, (at + 2) * sizeof *all);
      all = more;
      all[at] = strdup(environ[at]);
      all[at + 1] = NULL;
    }
    process.rank = rank;
    check("a rank", PMIx_server_register_client(&process, getuid(), getgid(), NULL, NULL, NULL));
    check("its environment", PMIx_server_setup_fork(&process, &all));
    ranks[rank] = fork();
    if (ranks[rank] == 0) {
      close_range(3, ~0U, 0);
      execve(program[0], program, all);
      _exit(127);
    }
  }
  for (left = size; left > 0; left--) {
    int status;
    pid_t ended = wait(&status);
    for (rank = 0; rank < size && ranks[rank] != ended; rank++) continue;
    if (rank == size || status == 0) continue;
    bad++;
    process.rank = rank;
    tell(&process);
  }
  PMIx_server_finalize();
  return bad;
}

int main(int count, char **arguments) {
  char directory[] = "/tmp/gpucomm-pmix.XXXXXX", remove[64];
  int size = count > 2 ? atoi(arguments[1]) : 0, status, result = 101;
  pid_t server, ended;
  if (size < 1 || size > MOST || mkdtemp(directory) == NULL) return 101;
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  server = fork();
  if (server == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(120);
    exit(serve(size, arguments + 2, directory));
  }
  while ((ended = wait(&status)) > 0) {
    if (ended == server) result = WIFEXITED(status) ? WEXITSTATUS(status) : 99;
  }
  snprintf(remove, sizeof remove, "rm -rf %s", directory);
  return system(remove) == 0 ? result : 102;
}
