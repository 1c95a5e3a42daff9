/* A stand-in for libnvidia-ml.so.1: two GPUs, and the ways in which a driver can be in trouble.
 * FAKE, or the file that FAKE_FILE names (read at every call, so a test may change it), holds words:
 *   zero lost reset mig noperm unified mismatch nodriver nolib err hang inithang nomem v1 nothrottle
 * FAKE_LOG: a file that gets the process id of everyone who initialises the library.
 * FAKE_PIDS holds the processes of the first GPU, FAKE_PIDS2 of the second (decimal, between spaces).
 * Signatures and structs as in NVIDIA's nvml.h; all figures are made up. Compiled with -DOLD it lacks what
 * drivers before 510 lack. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned long long u64;
typedef struct { u64 total, free_, used; } mem1;
typedef struct { unsigned version; u64 total, reserved, free_, used; } mem2;
typedef struct { unsigned gpu, mem; } util;
typedef struct { unsigned pid; u64 used; unsigned gi, ci; } proc;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, sub; char bus_id[32]; } pci;

enum { OK = 0, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, TOO_SMALL = 7, NO_DRIVER = 9, NO_LIB = 12,
       LOST = 15, RESET = 16, MISMATCH = 18, UNKNOWN = 999 };

static int has(const char *word) {
  static char text[4096];
  const char *file = getenv("FAKE_FILE"), *found = getenv("FAKE");
  if (file) {
    FILE *f = fopen(file, "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f) fclose(f);
    text[n] = 0;
    found = text;
  }
  for (const char *at = found; at && (at = strstr(at, word)); at += 1) {
    char before = at == found ? ' ' : at[-1], after = at[strlen(word)];
    if (strchr(" ,\n", before) && (!after || strchr(" ,\n", after))) return 1;
  }
  return 0;
}

/* Handles: 1 and 2 are GPUs, 11 and 12 the MIG instances of the first. */
static long number(void *handle) { return (long)handle; }
static int bad(void *handle) {
  if (number(handle) == 2 && has("lost")) return LOST;
  if (number(handle) == 2 && has("reset")) return RESET;
  return OK;
}

int nvmlInitWithFlags(unsigned flags) {
  (void)flags;
  FILE *log = getenv("FAKE_LOG") ? fopen(getenv("FAKE_LOG"), "a") : NULL;
  if (log) {
    fprintf(log, "%d\n", (int)getpid());
    fclose(log);
  }
  while (has("inithang")) usleep(20000);
  return has("mismatch") ? MISMATCH : has("nodriver") ? NO_DRIVER : has("nolib") ? NO_LIB : OK;
}
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) {
  return code == MISMATCH ? "Driver/library version mismatch" : code == NO_DRIVER ? "Driver Not Loaded" : "Some Error";
}
int nvmlDeviceGetCount_v2(unsigned *n) { *n = has("zero") ? 0 : 2; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) {
  *h = (void *)(long)(i + 1);
  return i == 1 && has("lost") ? LOST : OK;
}
int nvmlDeviceGetUUID(void *h, char *b, unsigned n) {
  if (number(h) > 10) snprintf(b, n, "MIG-cccc-%ld", number(h)); else snprintf(b, n, "GPU-aaaa-%ld", number(h));
  return OK;
}
int nvmlDeviceGetName(void *h, char *b, unsigned n) {
  snprintf(b, n, number(h) > 10 ? "NVIDIA H200 MIG 1g.18gb" : has("unified") ? "NVIDIA GB10" : "NVIDIA H200");
  return OK;
}
int nvmlDeviceGetPciInfo_v3(void *h, pci *p) {
  memset(p, 0, sizeof *p);
  snprintf(p->bus_id, sizeof p->bus_id, "00000000:%02lX:00.0", 16 * number(h));
  return OK;
}
static int memory(void *h, u64 *total, u64 *used) {
  if (bad(h)) return bad(h);
  if (has("unified")) return NOT_SUPPORTED;
  if (has("noperm") && number(h) < 10) return NO_PERMISSION;
  *total = (number(h) > 10 ? 18000ULL : 143771ULL) << 20;
  *used = (1000ULL * number(h)) << 20;
  return OK;
}
int nvmlDeviceGetMemoryInfo(void *h, mem1 *m) {
  int code = memory(h, &m->total, &m->used);
  if (!code) { m->used += 600ULL << 20; m->free_ = m->total - m->used; }
  return code;
}
#ifndef OLD
int nvmlDeviceGetMemoryInfo_v2(void *h, mem2 *m) {
  if (m->version != (sizeof *m | 2 << 24)) return 25;
  int code = memory(h, &m->total, &m->used);
  if (!code) { m->reserved = 600ULL << 20; m->free_ = m->total - m->used - m->reserved; }
  return code;
}
#endif
int nvmlDeviceGetUtilizationRates(void *h, util *u) {
  if (bad(h)) return bad(h);
  if (has("mig")) return NOT_SUPPORTED;
  u->gpu = 50; u->mem = 20;
  return OK;
}
int nvmlDeviceGetTemperature(void *h, int sensor, unsigned *t) {
  (void)sensor;
  *t = 40;
  return has("err") ? UNKNOWN : bad(h);
}
int nvmlDeviceGetPowerUsage(void *h, unsigned *p) {
  while (has("hang")) usleep(20000);
  *p = 123456;
  return bad(h);
}
int nvmlDeviceGetEnforcedPowerLimit(void *h, unsigned *p) { *p = 700000; return bad(h); }
int nvmlDeviceGetClockInfo(void *h, int kind, unsigned *v) { *v = kind == 1 ? 1980 : 3201; return bad(h); }
int nvmlDeviceGetCurrPcieLinkGeneration(void *h, unsigned *v) { *v = 5; return bad(h); }
int nvmlDeviceGetCurrPcieLinkWidth(void *h, unsigned *v) { *v = 16; return bad(h); }
int nvmlDeviceGetPcieThroughput(void *h, int counter, unsigned *v) {
  usleep(20000);
  *v = (counter ? 2048 : 1024) * number(h); /* 0 is sent, 1 is received */
  return bad(h);
}
#ifndef OLD
int nvmlDeviceGetCurrentClocksEventReasons(void *h, u64 *v) { *v = 1 | 4; return has("nothrottle") ? NOT_SUPPORTED : bad(h); }
#endif
int nvmlDeviceGetCurrentClocksThrottleReasons(void *h, u64 *v) { *v = 8; return bad(h); }
int nvmlDeviceGetCudaComputeCapability(void *h, int *major, int *minor) { *major = 9; *minor = 0; return bad(h); }
int nvmlDeviceGetPersistenceMode(void *h, unsigned *on) { *on = !has("err"); return bad(h); }
int nvmlSystemGetDriverVersion(char *b, unsigned n) { snprintf(b, n, "580.95.05"); return OK; }
int nvmlSystemGetCudaDriverVersion_v2(int *v) { *v = 13000; return OK; }
int nvmlDeviceGetMigMode(void *h, unsigned *c, unsigned *p) { *c = *p = has("mig") && number(h) == 1; return OK; }
int nvmlDeviceGetMaxMigDeviceCount(void *h, unsigned *n) { (void)h; *n = 7; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(void *h, unsigned i, void **m) {
  (void)h;
  *m = (void *)(long)(11 + i);
  return i < 2 ? OK : NOT_FOUND;
}
static int processes(void *h, unsigned *n, proc *p) {
  if (bad(h)) return bad(h);
  if (has("noperm") && number(h) < 10) return NO_PERMISSION;
  const char *pids = getenv(number(h) == 2 ? "FAKE_PIDS2" : "FAKE_PIDS");
  unsigned held = 0;
  char *end;
  for (const char *at = pids ? pids : ""; ; at = end, held++) {
    long pid = strtol(at, &end, 10);
    if (end == at) break;
    if (p && held < *n) {
      p[held].pid = pid; p[held].used = has("nomem") ? ~0ULL : (512ULL + held) << 20; p[held].gi = p[held].ci = ~0u;
    }
  }
  int code = held > *n || (held && !p) ? TOO_SMALL : OK;
  *n = held;
  return code;
}
#ifndef OLD
int nvmlDeviceGetComputeRunningProcesses_v2(void *h, unsigned *n, proc *p) { return processes(h, n, p); }
#endif
int nvmlDeviceGetComputeRunningProcesses_v3(void *h, unsigned *n, proc *p) { return processes(h, n, p); }
int nvmlDeviceGetGraphicsRunningProcesses_v2(void *h, unsigned *n, proc *p) { (void)h; (void)p; *n = 0; return OK; }
