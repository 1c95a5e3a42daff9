/* A libnvidia-ml.so.1 with eight GPUs whose figures move each second, for measuring monitors where there is no GPU:
 *     cc -shared -fPIC -o libnvidia-ml.so.1 nvml_eight.c
 * Names, numbers and struct layouts as in NVIDIA's nvml.h. */
#include <stdio.h>
#include <string.h>
#include <time.h>

typedef struct { unsigned long long total, free, used; } memory_v1;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2;
typedef struct { unsigned gpu, memory; } utilization;
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } process;

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3 };
static const unsigned count = 8;
static const unsigned long long total = 97887ULL << 20;

static unsigned at(void *handle) { return (unsigned)(long)handle - 1; }
static unsigned wave(void *handle, unsigned span) { return (unsigned)(time(0) * (7 + at(handle))) % span; }
static unsigned long long used(void *handle) { return (80000ULL + wave(handle, 900)) << 20; }

int nvmlInit_v2(void) { return SUCCESS; }
int nvmlInitWithFlags(unsigned flags) { (void)flags; return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { return code == SUCCESS ? "Success" : "Not Supported"; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { snprintf(text, size, "580.65.06"); return SUCCESS; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 13000; return SUCCESS; }
int nvmlSystemGetCudaDriverVersion(int *version) { *version = 13000; return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = count; return SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    if (index >= count) return INVALID_ARGUMENT;
    *handle = (void *)(long)(index + 1);
    return SUCCESS;
}
int nvmlDeviceGetIndex(void *handle, unsigned *index) { *index = at(handle); return SUCCESS; }
int nvmlDeviceGetUUID(void *handle, char *text, unsigned size) {
    snprintf(text, size, "GPU-00000000-0000-0000-0000-00000000000%u", at(handle));
    return SUCCESS;
}
int nvmlDeviceGetName(void *handle, char *text, unsigned size) {
    (void)handle;
    snprintf(text, size, "NVIDIA RTX PRO 6000 Blackwell");
    return SUCCESS;
}
int nvmlDeviceGetMemoryInfo(void *handle, memory_v1 *memory) {
    memory->total = total;
    memory->used = used(handle);
    memory->free = total - memory->used;
    return SUCCESS;
}
int nvmlDeviceGetMemoryInfo_v2(void *handle, memory_v2 *memory) {
    memory->total = total;
    memory->reserved = 600ULL << 20;
    memory->used = used(handle);
    memory->free = total - memory->used - memory->reserved;
    return SUCCESS;
}
int nvmlDeviceGetUtilizationRates(void *handle, utilization *rates) {
    rates->gpu = 10 + wave(handle, 90);
    rates->memory = 5 + wave(handle, 60);
    return SUCCESS;
}
int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *celsius) {
    (void)sensor;
    *celsius = 50 + wave(handle, 20);
    return SUCCESS;
}
int nvmlDeviceGetPowerUsage(void *handle, unsigned *milliwatts) { *milliwatts = 200000 + wave(handle, 300) * 1000; return SUCCESS; }
int nvmlDeviceGetPowerManagementLimit(void *handle, unsigned *milliwatts) { (void)handle; *milliwatts = 600000; return SUCCESS; }
int nvmlDeviceGetEnforcedPowerLimit(void *handle, unsigned *milliwatts) { (void)handle; *milliwatts = 600000; return SUCCESS; }
int nvmlDeviceGetFanSpeed(void *handle, unsigned *percent) { *percent = 30 + wave(handle, 20); return SUCCESS; }
int nvmlDeviceGetPerformanceState(void *handle, unsigned *state) { (void)handle; *state = 1; return SUCCESS; }
int nvmlDeviceGetPersistenceMode(void *handle, unsigned *mode) { (void)handle; *mode = 1; return SUCCESS; }
int nvmlDeviceGetClockInfo(void *handle, int type, unsigned *mhz) { (void)type; *mhz = 1800 + wave(handle, 200); return SUCCESS; }
int nvmlDeviceGetMaxClockInfo(void *handle, int type, unsigned *mhz) { (void)handle, (void)type; *mhz = 2600; return SUCCESS; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *n, process *list) {
    (void)handle, (void)list;
    *n = 0;
    return SUCCESS;
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *handle, unsigned *n, process *list) {
    (void)handle, (void)list;
    *n = 0;
    return SUCCESS;
}

#define UNSUPPORTED(name) int name(void) { return NOT_SUPPORTED; }
UNSUPPORTED(nvmlDeviceGetPciInfo_v3)
UNSUPPORTED(nvmlDeviceGetEncoderUtilization)
UNSUPPORTED(nvmlDeviceGetDecoderUtilization)
UNSUPPORTED(nvmlDeviceGetDisplayActive)
UNSUPPORTED(nvmlDeviceGetDisplayMode)
UNSUPPORTED(nvmlDeviceGetDriverModel)
UNSUPPORTED(nvmlDeviceGetTotalEccErrors)
UNSUPPORTED(nvmlDeviceGetComputeMode)
UNSUPPORTED(nvmlDeviceGetMigMode)
UNSUPPORTED(nvmlDeviceGetMaxMigDeviceCount)
UNSUPPORTED(nvmlDeviceGetProcessUtilization)
UNSUPPORTED(nvmlDeviceGetCudaComputeCapability)
UNSUPPORTED(nvmlDeviceGetPcieThroughput)
UNSUPPORTED(nvmlDeviceGetCurrPcieLinkGeneration)
UNSUPPORTED(nvmlDeviceGetCurrPcieLinkWidth)
UNSUPPORTED(nvmlDeviceGetCurrentClocksEventReasons)
UNSUPPORTED(nvmlDeviceGetCurrentClocksThrottleReasons)
UNSUPPORTED(nvmlDeviceGetSerial)
UNSUPPORTED(nvmlDeviceGetBAR1MemoryInfo)
UNSUPPORTED(nvmlDeviceGetFieldValues)
UNSUPPORTED(nvmlDeviceIsMigDeviceHandle)
