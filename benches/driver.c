// What the driver and NCCL do behind a collective that a peer never joins; for docs/measurements. Needs two GPUs.
//
//   gcc -O2 -o driver benches/driver.c -I$NCCL/include -I$CUDA/include -L$NCCL/lib -l:libnccl.so.2 -L$CUDA/lib64 -lcudart -lpthread
//   driver hung CALL@DEVICE        does CALL return while the collective on device 0 waits?
//   driver behind CALL@DEVICE      the same, while another thread is in cudaFreeHost as well
//   driver queue KIND STREAMS      how many of KIND can be enqueued on so many streams that wait for the collective?
//   driver first LIMIT CALL...     how long does each CALL take beside a host function of 2 s? LIMIT: cudaLimitStackSize, or 0
//   driver abort DEPTH COUNT [revoke]   DEPTH all-reduces of COUNT floats on device 0 alone, then both ranks are aborted at once
#define _GNU_SOURCE
#include <cuda_runtime.h>
#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CUDA(call)                                                                          \
  do {                                                                                      \
    cudaError_t error_ = (call);                                                            \
    if (error_ != cudaSuccess) printf("  %s: %s\n", #call, cudaGetErrorString(error_));     \
  } while (0)
#define NCCL(call)                                                                          \
  do {                                                                                      \
    ncclResult_t result_ = (call);                                                          \
    if (result_ != ncclSuccess) printf("  %s: %s\n", #call, ncclGetErrorString(result_));   \
  } while (0)

enum { RANKS = 2, MANY = 64, PINNED = 4096, MEMORY = 64 << 20 };

static ncclComm_t comms[RANKS];
static cudaStream_t streams[RANKS], spare[RANKS], many[MANY];
static float *buffers[RANKS];
static void *memory[RANKS], *nccl_memory[RANKS], *pinned[2];
static cudaMemPool_t pools[RANKS];
static cudaEvent_t event, spare_event;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

static void nothing(void *data) { (void)data; }

static void all_reduce(int rank, float *data, size_t count) {
  NCCL(ncclAllReduce(data, data, count, ncclFloat, ncclSum, comms[rank], streams[rank]));
}

static void set_up(void) {
  int devices[RANKS] = {0, 1};
  NCCL(ncclCommInitAll(comms, RANKS, devices));
  for (int rank = RANKS - 1; rank >= 0; rank--) {
    cudaSetDevice(rank);
    CUDA(cudaStreamCreateWithFlags(&streams[rank], cudaStreamNonBlocking));
    CUDA(cudaStreamCreateWithFlags(&spare[rank], cudaStreamNonBlocking));
    CUDA(cudaMalloc((void **)&buffers[rank], MEMORY));
    CUDA(cudaMalloc(&memory[rank], MEMORY));
    NCCL(ncclMemAlloc(&nccl_memory[rank], MEMORY));
    struct cudaMemPoolProps properties = {.allocType = cudaMemAllocationTypePinned,
                                          .location = {.type = cudaMemLocationTypeDevice, .id = rank}};
    CUDA(cudaMemPoolCreate(&pools[rank], &properties));
    CUDA(cudaHostAlloc(&pinned[rank], PINNED, cudaHostAllocPortable));
  }
  CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  CUDA(cudaEventCreateWithFlags(&spare_event, cudaEventDisableTiming));
}

static void all_reduce_once(void) {
  NCCL(ncclGroupStart());
  for (int rank = 0; rank < RANKS; rank++) all_reduce(rank, buffers[rank], 1024);
  NCCL(ncclGroupEnd());
  for (int rank = RANKS - 1; rank >= 0; rank--) {
    cudaSetDevice(rank);
    CUDA(cudaDeviceSynchronize());
  }
}

// Leaves a collective on device 0 that waits for rank 1.
static void hang(void) {
  all_reduce(0, buffers[0], 1024);
  CUDA(cudaEventRecord(event, streams[0]));
  usleep(50000);
}

struct attempt {
  const char *call;
  int device;
  double took;
  atomic_int done;
};

static void *make(void *argument) {
  struct attempt *attempt = argument;
  const char *call = attempt->call;
  const int device = attempt->device;
  void *p;
  size_t free, total;
  int least, greatest;
  cudaSetDevice(device);
  const double start = now();
#define IS(name) else if (!strcmp(call, #name))
  if (!strcmp(call, "nothing")) {}
  IS(cudaFreeHost) CUDA(cudaFreeHost(pinned[device]));
  IS(cudaHostAlloc) CUDA(cudaHostAlloc(&p, PINNED, cudaHostAllocPortable));
  IS(cudaHostAlloc64M) CUDA(cudaHostAlloc(&p, MEMORY, cudaHostAllocPortable));
  IS(cudaMalloc) CUDA(cudaMalloc(&p, MEMORY));
  IS(cudaFree) CUDA(cudaFree(memory[device]));
  IS(cudaMallocFromPoolAsync) CUDA(cudaMallocFromPoolAsync(&p, 2UL << 30, pools[device], spare[device]));
  IS(cudaMemPoolTrimTo) CUDA(cudaMemPoolTrimTo(pools[device], 0));
  IS(ncclMemAlloc) NCCL(ncclMemAlloc(&p, MEMORY));
  IS(ncclMemFree) NCCL(ncclMemFree(nccl_memory[device]));
  IS(cudaStreamCreate) CUDA(cudaStreamCreateWithPriority((cudaStream_t *)&p, cudaStreamNonBlocking, 0));
  IS(cudaStreamDestroy) CUDA(cudaStreamDestroy(spare[device]));
  IS(cudaStreamQuery) cudaStreamQuery(spare[device]);
  IS(cudaEventCreate) CUDA(cudaEventCreateWithFlags((cudaEvent_t *)&p, cudaEventDisableTiming));
  IS(cudaEventDestroy) CUDA(cudaEventDestroy(spare_event));
  IS(cudaEventRecord) CUDA(cudaEventRecord(device == 0 ? spare_event : event, spare[0]));
  IS(cudaEventQuery) cudaEventQuery(spare_event);
  IS(cudaStreamWaitEvent) CUDA(cudaStreamWaitEvent(spare[device], event, 0));
  IS(cudaLaunchHostFunc) CUDA(cudaLaunchHostFunc(spare[device], nothing, 0));
  IS(cudaMemsetAsync) CUDA(cudaMemsetAsync(buffers[device], 0, 64, spare[device]));
  IS(cudaMemcpyAsync) CUDA(cudaMemcpyAsync(buffers[device], memory[device], 64, cudaMemcpyDeviceToDevice, spare[device]));
  IS(cudaMemGetInfo) CUDA(cudaMemGetInfo(&free, &total));
  IS(cudaDeviceGetStreamPriorityRange) CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  IS(ncclAllReduce) all_reduce(1, buffers[1], 1024);
  IS(ncclCommAbort) NCCL(ncclCommAbort(comms[device]));
  else printf("unknown call %s\n", call);
  attempt->took = now() - start;
  attempt->done = 1;
  return NULL;
}

static void start(struct attempt *attempt) {
  pthread_t thread;
  pthread_create(&thread, NULL, make, attempt);
}

static int wait_for(struct attempt *attempt, double seconds) {
  const double until = now() + seconds;
  while (!attempt->done && now() < until) usleep(500);
  return attempt->done;
}

static struct attempt named(char *text) {
  char *at = strchr(text, '@');
  struct attempt attempt = {.call = text, .device = at ? atoi(at + 1) : 0};
  if (at) *at = 0;
  return attempt;
}

static void try_call(char *name, int behind) {
  struct attempt freeing = {.call = "cudaFreeHost"}, tried = named(name), peer = {.call = "ncclAllReduce", .device = 1};
  hang();
  if (behind) {
    start(&freeing);
    usleep(100000);
  }
  start(&tried);
  const int returned = wait_for(&tried, 2);
  start(&peer);
  const int launched = wait_for(&peer, 3), ended = wait_for(&tried, 3);
  printf("%s %-32s device %d: %-8s after %.4f s; the peer's all-reduce %s after %.4f s%s\n", behind ? "behind" : "hung  ",
         tried.call, tried.device, returned ? "returned" : "BLOCKED", returned ? tried.took : 2.0,
         launched ? "returned" : "BLOCKED", peer.took, ended ? "" : "; the call still blocks");
}

static const char *kind;
static int stream_count;
static atomic_long enqueued;

static void *flood(void *argument) {
  cudaSetDevice(0);
  for (long i = 0; i < 60000; i++) {
    cudaStream_t stream = many[i % stream_count];
    if (!strcmp(kind, "memset")) CUDA(cudaMemsetAsync(buffers[0], 0, 4, stream));
    if (!strcmp(kind, "record")) CUDA(cudaEventRecord(spare_event, stream));
    if (!strcmp(kind, "wait")) CUDA(cudaStreamWaitEvent(stream, event, 0));
    if (!strcmp(kind, "host")) CUDA(cudaLaunchHostFunc(stream, nothing, NULL));
    if (!strcmp(kind, "copy")) CUDA(cudaMemcpyAsync(pinned[0], buffers[0], 64, cudaMemcpyDeviceToHost, stream));
    if (!strcmp(kind, "peer")) CUDA(cudaMemcpyPeerAsync(memory[1], 1, buffers[0], 0, 64, stream));
    if (!strcmp(kind, "nccl")) NCCL(ncclAllReduce(buffers[0], buffers[0], 1024, ncclFloat, ncclSum, comms[0], stream));
    enqueued++;
  }
  return argument;
}

static void fill_queue(void) {
  hang();
  for (int i = 0; i < stream_count; i++) {
    CUDA(cudaStreamCreateWithFlags(&many[i], cudaStreamNonBlocking));
    CUDA(cudaStreamWaitEvent(many[i], event, 0));
  }
  pthread_t thread;
  pthread_create(&thread, NULL, flood, NULL);
  long before = -1;
  while (enqueued != before) {
    before = enqueued;
    usleep(700000);
  }
  printf("queue  %-8s %2d streams: %ld%s\n", kind, stream_count, (long)enqueued, enqueued == 60000 ? " (all)" : "");
}

static void abort_behind(int depth, size_t count, int revoke) {
  NCCL(ncclGroupStart());
  for (int rank = 0; rank < RANKS; rank++) all_reduce(rank, buffers[rank], count);
  NCCL(ncclGroupEnd());
  for (int rank = RANKS - 1; rank >= 0; rank--) {
    cudaSetDevice(rank);
    CUDA(cudaDeviceSynchronize());
  }
  for (int i = 0; i < depth; i++) all_reduce(0, buffers[0], count);
  usleep(100000);
  const double start_ = now();
  double revoked = 0;
  if (revoke) {
    for (int rank = 0; rank < RANKS; rank++) NCCL(ncclCommRevoke(comms[rank], NCCL_REVOKE_DEFAULT));
    revoked = now() - start_;
  }
  struct attempt aborts[RANKS] = {{.call = "ncclCommAbort", .device = 0}, {.call = "ncclCommAbort", .device = 1}};
  for (int rank = RANKS - 1; rank >= 0; rank--) start(&aborts[rank]);
  while (cudaStreamQuery(streams[0]) == cudaErrorNotReady && now() < start_ + 20) usleep(1000);
  const double drained = now() - start_;
  for (int rank = 0; rank < RANKS; rank++) wait_for(&aborts[rank], 20);
  printf("abort  depth %4d, %7zu floats: revoked %.3f s, drained %.3f s, both aborted %.3f s\n", depth, count, revoked,
         drained, now() - start_);
}

static void sleep_for_2_s(void *data) {
  (void)data;
  sleep(2);
}

static void call_on_both(const char *call) {
  NCCL(ncclGroupStart());
  for (int rank = 0; rank < RANKS; rank++) {
    float *data = buffers[rank];
    const size_t large = MEMORY / sizeof(double);
    if (!strcmp(call, "all_reduce")) all_reduce(rank, data, 1024);
    if (!strcmp(call, "all_reduce_f64"))
      NCCL(ncclAllReduce(data, data, large, ncclDouble, ncclSum, comms[rank], streams[rank]));
    if (!strcmp(call, "broadcast")) NCCL(ncclBroadcast(data, data, 1024, ncclFloat, 0, comms[rank], streams[rank]));
    if (!strcmp(call, "sendrecv") && rank == 0) NCCL(ncclSend(data, 1024, ncclFloat, 1, comms[0], streams[0]));
    if (!strcmp(call, "sendrecv") && rank == 1) NCCL(ncclRecv(data, 1024, ncclFloat, 0, comms[1], streams[1]));
  }
  NCCL(ncclGroupEnd());
}

// A CALL that begins with + is made while the devices are idle. No operation of NCCL comes before the first.
static void first(size_t limit, int count, char **calls) {
  for (int rank = 0; rank < RANKS && limit > 0; rank++) {
    cudaSetDevice(rank);
    CUDA(cudaDeviceSetLimit(cudaLimitStackSize, limit));
  }
  for (int i = 0; i < count; i++) {
    const int alone = calls[i][0] == '+';
    cudaSetDevice(0);
    if (!alone) {
      CUDA(cudaLaunchHostFunc(spare[0], sleep_for_2_s, NULL));
      usleep(100000);
    }
    const double start_ = now();
    call_on_both(calls[i] + alone);
    printf("first  limit %4zu: %-16s %s %.3f s\n", limit, calls[i] + alone, alone ? "on idle devices  " : "beside other work", now() - start_);
    for (int rank = RANKS - 1; rank >= 0; rank--) {
      cudaSetDevice(rank);
      CUDA(cudaDeviceSynchronize());
    }
  }
}

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  setvbuf(stdout, NULL, _IOLBF, 0);
  set_up();
  if (!strcmp(argv[1], "first")) {
    first(strtoul(argv[2], NULL, 10), argc - 3, argv + 3);
    fflush(stdout);
    _exit(0);
  }
  all_reduce_once();
  if (!strcmp(argv[1], "queue") && argc > 3) {
    kind = argv[2];
    stream_count = atoi(argv[3]);
    fill_queue();
  } else if (!strcmp(argv[1], "abort") && argc > 3) {
    abort_behind(atoi(argv[2]), strtoul(argv[3], NULL, 10), argc > 4);
  } else {
    try_call(argv[2], !strcmp(argv[1], "behind"));
  }
  fflush(stdout);
  // What still blocks is left behind.
  _exit(0);
}
