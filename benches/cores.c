// How long a cache line takes from one core to another, and so what it costs at least that ranks on several cores compare what they
// are about to do. gcc -O2 -o cores benches/cores.c -lpthread && ./cores
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 20000, BATCH = 100, PAIRS = 16 };

static struct {
  _Alignas(256) atomic_ulong word;
} line;
static int other;

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1e9 + time.tv_nsec;
}

static void pin(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  sched_setaffinity(0, sizeof set, &set);
}

static void say(unsigned long word) { atomic_store_explicit(&line.word, word, memory_order_release); }

static void await(unsigned long word) {
  while (atomic_load_explicit(&line.word, memory_order_acquire) != word)
    ;
}

static void *answer(void *unused) {
  pin(other);
  for (unsigned long round = 0; round < ROUNDS; round++) {
    await(2 * round + 1);
    say(2 * round + 2);
  }
  return unused;
}

static int less(const void *one, const void *two) {
  double x = *(const double *)one, y = *(const double *)two;
  return (x > y) - (x < y);
}

// The median of one-way times.
static double transfer(int from, int to) {
  double times[ROUNDS / BATCH];
  pthread_t thread;
  say(0);
  other = to;
  pin(from);
  pthread_create(&thread, NULL, answer, NULL);
  for (unsigned long round = 0; round < ROUNDS;) {
    double start = now();
    for (int i = 0; i < BATCH; i++, round++) {
      say(2 * round + 1);
      await(2 * round + 2);
    }
    times[round / BATCH - 1] = (now() - start) / BATCH / 2;
  }
  pthread_join(thread, NULL);
  qsort(times, ROUNDS / BATCH, sizeof *times, less);
  return times[ROUNDS / BATCH / 2];
}

int main(void) {
  cpu_set_t set;
  int cores[CPU_SETSIZE], count = 0;
  sched_getaffinity(0, sizeof set, &set);
  for (int core = 0; core < CPU_SETSIZE; core++)
    if (CPU_ISSET(core, &set)) cores[count++] = core;
  for (int at = 1; at < count; at += count > PAIRS ? count / PAIRS : 1)
    printf("core %d to %d: %.0f ns\n", cores[0], cores[at], transfer(cores[0], cores[at]));
}
