#include "core/backend.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <thread>

namespace primal {
namespace {

/// CPU quota of a Linux container in cores (cgroup v2, then v1), or 0 when there is none.
double cpu_quota() {
  std::ifstream v2("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (v2 >> quota >> period && quota != "max" && period > 0) return std::stod(quota) / period;
  std::ifstream quota_v1("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  std::ifstream period_v1("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  double microseconds = 0;
  if (quota_v1 >> microseconds && period_v1 >> period && microseconds > 0 && period > 0) {
    return microseconds / period;
  }
  return 0;
}

}  // namespace

int usable_cores() {
  int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) cores = std::max(1, CPU_COUNT(&set));
  if (const double quota = cpu_quota(); quota > 0) {
    cores = std::clamp(static_cast<int>(std::ceil(quota)), 1, cores);
  }
  return cores;
}

Backend cpu_backend(int threads) {
  Backend backend;
  backend.memory = std::make_shared<CachingAllocator>(host_memory());
  backend.exec.threads = threads > 0 ? threads : usable_cores();
  backend.op = &cpu_kernels();
  return backend;
}

}  // namespace primal
