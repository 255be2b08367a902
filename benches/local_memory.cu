// What the driver holds up while a kernel gets its local memory; for docs/measurements. Needs one GPU.
//
//   nvcc -O0 -arch=sm_90 -o local_memory benches/local_memory.cu
//   local_memory WAITS BESIDE       a host function occupies a stream for 4 s; one thread calls WAITS, another one BESIDE
//   local_memory graph STEP         the same; the kernel is in a graph, and STEP of it is made meanwhile
#include <cuda_runtime.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <thread>

#include <unistd.h>

#define CUDA(call)                                                                      \
  do {                                                                                  \
    cudaError_t error_ = (call);                                                        \
    if (error_ != cudaSuccess) printf("  %s: %s\n", #call, cudaGetErrorString(error_)); \
  } while (0)

constexpr int BUSY_SECONDS = 4;
constexpr size_t BYTES = 1 << 20;

static cudaStream_t busy, one, other;
static cudaEvent_t event;
static void *memory, *pinned, *target;

__global__ void small(int *out) { *out = 1; }

// 32 kB of local memory a thread.
__global__ void large(int *out, int n) {
  volatile int local[8192];
  for (int i = 0; i < n; i++) local[(i * 37) % 8192] = i;
  *out = local[n % 8192];
}

static void occupy(void *) { std::this_thread::sleep_for(std::chrono::seconds(BUSY_SECONDS)); }

static void make(const std::string &call, cudaStream_t stream) {
  void *p;
  size_t free, total;
  int value;
  cudaEvent_t made;
  cudaStream_t new_stream;
  if (call == "large") large<<<1, 32, 0, stream>>>((int *)target, 100);
  else if (call == "small") small<<<1, 1, 0, stream>>>((int *)target);
  else if (call == "cudaEventRecord") CUDA(cudaEventRecord(event, stream));
  else if (call == "cudaMemsetAsync") CUDA(cudaMemsetAsync(target, 0, 64, stream));
  else if (call == "cudaStreamCreateWithFlags") CUDA(cudaStreamCreateWithFlags(&new_stream, cudaStreamNonBlocking));
  else if (call == "cudaEventCreate") CUDA(cudaEventCreateWithFlags(&made, cudaEventDisableTiming));
  else if (call == "cudaMalloc") CUDA(cudaMalloc(&p, BYTES));
  else if (call == "cudaFree") CUDA(cudaFree(memory));
  else if (call == "cudaFreeHost") CUDA(cudaFreeHost(pinned));
  else if (call == "cudaDeviceSynchronize") CUDA(cudaDeviceSynchronize());
  else if (call == "cudaStreamQuery") cudaStreamQuery(stream);
  else if (call == "cudaEventQuery") cudaEventQuery(event);
  else if (call == "cudaMemGetInfo") CUDA(cudaMemGetInfo(&free, &total));
  else if (call == "cudaDeviceGetAttribute") CUDA(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 0));
  else printf("unknown call %s\n", call.c_str());
}

static double seconds_of(const std::function<void()> &work) {
  auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  setvbuf(stdout, NULL, _IOLBF, 0);
  CUDA(cudaSetDevice(0));
  for (cudaStream_t *stream : {&busy, &one, &other}) CUDA(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
  CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  CUDA(cudaMalloc(&memory, BYTES));
  CUDA(cudaMalloc(&target, BYTES));
  CUDA(cudaMallocHost(&pinned, BYTES));
  small<<<1, 1, 0, one>>>((int *)target);
  CUDA(cudaDeviceSynchronize());

  if (!strcmp(argv[1], "graph")) {
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    const std::string step = argv[2];
    CUDA(cudaStreamBeginCapture(one, cudaStreamCaptureModeThreadLocal));
    make("large", one);
    CUDA(cudaStreamEndCapture(one, &graph));
    auto begin_busy = [&] { CUDA(cudaLaunchHostFunc(busy, occupy, NULL)); std::this_thread::sleep_for(std::chrono::milliseconds(100)); };
    if (step == "instantiate") begin_busy();
    printf("cudaGraphInstantiate %.3f s\n", seconds_of([&] { CUDA(cudaGraphInstantiate(&ready, graph, 0)); }));
    if (step == "upload") begin_busy();
    if (step == "upload") printf("cudaGraphUpload %.3f s\n", seconds_of([&] { CUDA(cudaGraphUpload(ready, one)); }));
    if (step == "launch") begin_busy();
    printf("cudaGraphLaunch %.3f s\n", seconds_of([&] { CUDA(cudaGraphLaunch(ready, one)); }));
    fflush(stdout);
    _exit(0);
  }

  CUDA(cudaLaunchHostFunc(busy, occupy, NULL));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  std::atomic<double> waited{-1}, beside{-1};
  std::thread([&] { CUDA(cudaSetDevice(0)); waited = seconds_of([&] { make(argv[1], one); }); }).detach();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  std::thread([&] { CUDA(cudaSetDevice(0)); beside = seconds_of([&] { make(argv[2], other); }); }).detach();
  std::this_thread::sleep_for(std::chrono::seconds(BUSY_SECONDS + 1));
  printf("%-28s %.3f s; beside it %-28s %.3f s\n", argv[1], waited.load(), argv[2], beside.load());
  fflush(stdout);
  _exit(0);
}
