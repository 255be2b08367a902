// What `gpucomm perf OP --nvshmem` measures, in C++: the same calls in the same order, with the same rows. Run by scripts/compare-nvshmem, beside that.
//
//   c++ -O2 -std=gnu++17 -o nvshmem-twin benches/nvshmem.cpp -I$CUDA_HOME/include -I$NVSHMEM_HOME/include
//     -L$NVSHMEM_HOME/lib -L$CUDA_HOME/lib64 -lnvshmem_host -lcudart
//   nvshmem-twin OP [--issue host|on_stream] [-b BYTES] [-e BYTES] [-f FACTOR] [-n N] [-w N] [--procs N]
//
// OP: put, get, put_signal, barrier, reduce, broadcast, fcollect, alltoall, reducescatter. Collectives are of int, reductions are sums. Nothing is checked: that
// is what the other program does.
#include <cuda_runtime_api.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <string>
#include <utility>
#include <vector>

// The host's part of NVSHMEM. Its types of 16 bits, which are not used here, need headers of CCCL, which an installation may lack: these are the guards of theirs.
#define __CUDA_FP16_H__
#define __CUDA_BF16_H__
#include "../vendor/shim/gpucomm_nvshmem.h"

namespace {

constexpr size_t GUARD = 64, AT_ONCE = 64, LANES = 16 << 20;

[[noreturn]] void fail(const char *what, const char *why) {
  std::fprintf(stderr, "nvshmem-twin: %s: %s\n", what, why);
  _exit(1);
}

void cuda(const char *what, cudaError_t code) {
  if (code != cudaSuccess) fail(what, cudaGetErrorString(code));
}

void nvshmem(const char *what, int code) {
  if (code != 0) fail(what, ("status " + std::to_string(code)).c_str());
}

// What the processes have in common: where they wait for each other outside of what is measured, and the id.
struct Shared {
  std::atomic<int> come{0}, rounds{0};
  std::atomic<bool> failed{false};
  nvshmemx_uniqueid_t id;
};

struct Options {
  std::string operation;
  bool host = false;
  size_t least = 4, most = 4 << 20, factor = 2, iterations = 10, warmup = 5;
  int pes = 0;
  bool of_two() const { return operation == "put" || operation == "get" || operation == "put_signal"; }
};

size_t size_of(const char *text) {
  char *end = nullptr;
  size_t number = std::strtoull(text, &end, 10);
  switch (*end) {
    case 'G': case 'g': return number << 30;
    case 'M': case 'm': return number << 20;
    case 'K': case 'k': return number << 10;
    case '\0': return number;
    default: fail("a size", text);
  }
}

class Pe {
 public:
  Pe(const Options &options, Shared *shared, int me) : options(options), shared(shared), me(me), n(options.pes) {
    int devices = 0;
    cuda("cudaGetDeviceCount", cudaGetDeviceCount(&devices));
    cuda("cudaSetDevice", cudaSetDevice(me % std::max(devices, 1)));
    cuda("cudaStreamCreateWithFlags", cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    cuda("cudaEventCreate", cudaEventCreate(&begin));
    cuda("cudaEventCreate", cudaEventCreate(&end));
    if (me == 0) {
      shared->id = NVSHMEMX_UNIQUEID_INITIALIZER;
      nvshmem("nvshmemx_get_uniqueid", nvshmemx_get_uniqueid(&shared->id));
    }
    meet();
    nvshmemx_init_attr_t attr = NVSHMEMX_INIT_ATTR_INITIALIZER;
    nvshmem("nvshmemx_set_attr_uniqueid_args", nvshmemx_set_attr_uniqueid_args(me, n, &shared->id, &attr));
    nvshmem("nvshmemx_hostlib_init_attr", nvshmemx_hostlib_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &attr));
  }

  void run() {
    if (options.of_two()) {
      pairs();
    } else {
      together();
    }
    nvshmemx_hostlib_finalize();
  }

 private:
  const Options &options;
  Shared *shared;
  int me, n;
  cudaStream_t stream{};
  cudaEvent_t begin{}, end{};
  char *source = nullptr, *dest = nullptr;
  uint64_t *signal = nullptr;
  size_t lanes = 0;

  void meet() {
    int round = shared->rounds.load();
    if (shared->come.fetch_add(1) + 1 == n) {
      shared->come = 0;
      shared->rounds = round + 1;
      return;
    }
    while (shared->rounds.load() == round) {
      if (shared->failed) _exit(1);
      sched_yield();
    }
  }

  void *symmetric(size_t bytes) {
    void *memory = nvshmem_calloc(std::max<size_t>(bytes, 1), 1);
    if (!memory) fail("nvshmem_calloc", "no memory");
    return memory;
  }

  // Seconds of what `calls` does, or enqueues.
  double time(const std::function<void()> &calls) {
    if (options.host) {
      auto start = std::chrono::steady_clock::now();
      calls();
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    float milliseconds = 0;
    cuda("cudaEventRecord", cudaEventRecord(begin, stream));
    calls();
    cuda("cudaEventRecord", cudaEventRecord(end, stream));
    cuda("cudaEventSynchronize", cudaEventSynchronize(end));
    cuda("cudaEventElapsedTime", cudaEventElapsedTime(&milliseconds, begin, end));
    return milliseconds / 1e3;
  }

  // One transfer, which is waited for before the next one begins.
  void once(size_t size) {
    char *to = dest + GUARD;
    if (options.operation == "get") {
      if (options.host) nvshmem_getmem(to, source, size, 1);
      else nvshmemx_getmem_on_stream(to, source, size, 1, stream);
    } else if (options.operation == "put_signal") {
      nvshmemx_putmem_signal_on_stream(to, source, size, signal, 1, NVSHMEM_SIGNAL_ADD, 1, stream);
      // The library has none for the host.
      if (options.host) cuda("cudaStreamSynchronize", cudaStreamSynchronize(stream));
    } else if (options.host) {
      nvshmem_putmem(to, source, size, 1);
    } else {
      nvshmemx_putmem_on_stream(to, source, size, 1, stream);
    }
  }

  // So many side by side, and a wait for all of them.
  size_t several(size_t size, size_t count) {
    char *to = dest + GUARD;
    bool signals = options.operation == "put_signal";
    if (options.operation == "get") {
      count = std::min(count, lanes / std::max<size_t>(size, 1));
      for (size_t at = 0; at < count; at++) {
        if (options.host) nvshmem_getmem_nbi(to + at * size, source, size, 1);
        else nvshmemx_getmem_nbi_on_stream(to + at * size, source, size, 1, stream);
      }
    } else {
      for (size_t at = 0; at < count; at++) {
        if (signals) nvshmemx_putmem_signal_nbi_on_stream(to, source, size, signal, 1, NVSHMEM_SIGNAL_ADD, 1, stream);
        else if (options.host) nvshmem_putmem_nbi(to, source, size, 1);
        else nvshmemx_putmem_nbi_on_stream(to, source, size, 1, stream);
      }
    }
    if (!options.host) {
      nvshmemx_quiet_on_stream(stream);
      return count;
    }
    if (signals) cuda("cudaStreamSynchronize", cudaStreamSynchronize(stream));
    nvshmem_quiet();
    return count;
  }

  void all(size_t size, size_t times) {
    while (times > 0) times -= std::min(times, std::max<size_t>(several(size, std::min(times, AT_ONCE)), 1));
  }

  void pairs() {
    size_t most = options.most;
    if (options.operation == "get") lanes = std::min(LANES, std::min(AT_ONCE, options.iterations) * most);
    lanes = std::max(lanes, most);
    source = static_cast<char *>(symmetric(most));
    dest = static_cast<char *>(symmetric(lanes + 2 * GUARD));
    signal = static_cast<uint64_t *>(symmetric(sizeof(uint64_t)));
    for (size_t size = options.least; size <= most; size *= options.factor) {
      if (me == 0) {
        for (size_t at = 0; at < options.warmup; at++) once(size);
        double one = time([&] {
          for (size_t at = 0; at < options.iterations; at++) once(size);
          if (options.host) nvshmem_quiet();
        });
        all(size, options.warmup);
        double among = time([&] { all(size, options.iterations); });
        double times = static_cast<double>(options.iterations);
        std::printf("%-10zu  %-8s  %-16.6f  %-16.6f  %-6s\n", size, "None", one / times * 1e6,
                    static_cast<double>(size) / 1e9 / (among / times), "N/A");
        std::fflush(stdout);
      }
      meet();
    }
  }

  void collective(size_t from, size_t to) {
    const std::string &name = options.operation;
    auto *given = reinterpret_cast<int32_t *>(source), *result = reinterpret_cast<int32_t *>(dest + GUARD);
    nvshmem_team_t team = NVSHMEM_TEAM_WORLD;
    const size_t bytes = sizeof(int32_t);
    int code = 0;
    if (name == "reduce") {
      code = options.host ? nvshmem_int32_sum_reduce(team, result, given, from)
                          : nvshmemx_int32_sum_reduce_on_stream(team, result, given, from, stream);
    } else if (name == "reducescatter") {
      code = options.host ? nvshmem_int32_sum_reducescatter(team, result, given, to)
                          : nvshmemx_int32_sum_reducescatter_on_stream(team, result, given, to, stream);
    } else if (name == "broadcast") {
      code = options.host ? nvshmem_broadcastmem(team, result, given, from * bytes, 0)
                          : nvshmemx_broadcastmem_on_stream(team, result, given, from * bytes, 0, stream);
    } else if (name == "fcollect") {
      code = options.host ? nvshmem_fcollectmem(team, result, given, from * bytes)
                          : nvshmemx_fcollectmem_on_stream(team, result, given, from * bytes, stream);
    } else if (name == "alltoall") {
      size_t each = from / static_cast<size_t>(n) * bytes;
      code = options.host ? nvshmem_alltoallmem(team, result, given, each)
                          : nvshmemx_alltoallmem_on_stream(team, result, given, each, stream);
    } else {
      code = options.host ? nvshmem_barrier(team) : nvshmemx_barrier_on_stream(team, stream);
    }
    nvshmem(name.c_str(), code);
  }

  // Elements of source and dest.
  std::pair<size_t, size_t> shape(size_t bytes) const {
    size_t count = bytes / sizeof(int32_t), pes = static_cast<size_t>(n), part = count / pes;
    if (options.operation == "fcollect") return {part, part * pes};
    if (options.operation == "alltoall") return {part * pes, part * pes};
    if (options.operation == "reducescatter") return {part * pes, part};
    return {count, count};
  }

  void together() {
    bool barrier = options.operation == "barrier";
    auto most = shape(barrier ? 0 : options.most);
    source = static_cast<char *>(symmetric(most.first * sizeof(int32_t)));
    dest = static_cast<char *>(symmetric(most.second * sizeof(int32_t) + 2 * GUARD));
    size_t last = barrier ? options.least : options.most;
    for (size_t size = options.least; size <= last; size *= options.factor) {
      auto [from, to] = barrier ? std::pair<size_t, size_t>{0, 0} : shape(size);
      size_t bytes = std::max(from, to) * sizeof(int32_t);
      if (bytes == 0 && !barrier) continue;
      for (size_t at = 0; at < options.warmup; at++) collective(from, to);
      cuda("cudaStreamSynchronize", cudaStreamSynchronize(stream));
      meet();
      std::vector<double> each;
      if (barrier) {
        // One behind the other: each is as long as the slowest PE makes it.
        double seconds = time([&] { for (size_t at = 0; at < options.iterations; at++) collective(0, 0); });
        each.push_back(seconds / static_cast<double>(options.iterations));
      } else {
        for (size_t at = 0; at < options.iterations; at++) each.push_back(time([&] { collective(from, to); }));
      }
      double sum = 0;
      for (double one : each) sum += one;
      double mean = sum / static_cast<double>(each.size());
      if (me == 0) {
        auto [least, longest] = std::minmax_element(each.begin(), each.end());
        double algbw = mean > 0 ? static_cast<double>(bytes) / 1e9 / mean : 0;
        double factor = options.operation == "reduce" ? 2.0 * (n - 1) / n : 1.0;
        if (options.operation == "fcollect" || options.operation == "alltoall" || options.operation == "reducescatter")
          factor = static_cast<double>(n - 1) / n;
        std::printf("%-10zu  %-8zu  %-8s  %-8s  %-16.6f  %-16.3f  %-16.3f  %-12.3f  %-12.3f  %-6s\n", bytes,
                    bytes / sizeof(int32_t), barrier ? "None" : "int", factor == 1.0 ? "None" : "sum", mean * 1e6,
                    *least * 1e6, *longest * 1e6, algbw, algbw * factor, "N/A");
        std::fflush(stdout);
      }
      meet();
    }
  }
};

}  // namespace

int main(int argc, char **argv) {
  Options options;
  for (int at = 1; at < argc; at++) {
    std::string name = argv[at];
    if (name[0] != '-') {
      options.operation = name;
      continue;
    }
    if (++at == argc) fail(name.c_str(), "expected a value");
    if (name == "--issue") options.host = std::string(argv[at]) == "host";
    else if (name == "-b") options.least = size_of(argv[at]);
    else if (name == "-e") options.most = size_of(argv[at]);
    else if (name == "-f") options.factor = size_of(argv[at]);
    else if (name == "-n") options.iterations = size_of(argv[at]);
    else if (name == "-w") options.warmup = size_of(argv[at]);
    else if (name == "--procs") options.pes = std::atoi(argv[at]);
    else if (name != "-c") fail(name.c_str(), "not known");
  }
  const std::vector<std::string> known = {"put",  "get",       "put_signal", "barrier",  "reduce",
                                          "broadcast", "fcollect",  "alltoall",   "reducescatter"};
  if (std::find(known.begin(), known.end(), options.operation) == known.end()) fail("OP", "not known");
  if (options.pes <= 0) options.pes = 2;
  if (options.least == 0 || options.factor < 2 || options.iterations == 0) fail("-b, -f, -n", "too small");
  void *place = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (place == MAP_FAILED) fail("mmap", "no memory");
  auto *shared = new (place) Shared;
  // Before anything of CUDA: a process that was forked after it has no devices.
  std::vector<pid_t> children;
  for (int me = 0; me < options.pes; me++) {
    pid_t child = fork();
    if (child < 0) fail("fork", std::strerror(errno));
    if (child == 0) {
      Pe(options, shared, me).run();
      std::fflush(stdout);
      _exit(0);
    }
    children.push_back(child);
  }
  int worst = 0;
  for (size_t at = 0; at < children.size(); at++) {
    int status = 0;
    wait(&status);
    if (status != 0) {
      worst = 1;
      shared->failed = true;
    }
  }
  return worst;
}
