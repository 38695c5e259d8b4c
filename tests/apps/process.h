#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace primal {

/// A program of this build, running with its output in a file.
class Process {
 public:
  /// `file_limit` bytes is as far as any file may grow: the nearest thing to a full disk.
  Process(const std::string& program, std::vector<std::string> arguments,
          const std::filesystem::path& directory, rlim_t file_limit = RLIM_INFINITY)
      : output_(directory / (program + ".out")) {
    arguments.insert(arguments.begin(), std::string(PRIMAL_BINARY_DIR) + "/" + program);
    std::vector<char*> argv;
    for (std::string& a : arguments) argv.push_back(a.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ != 0) return;
    const int out = open(output_.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0644);
    dup2(out, 1);
    dup2(out, 2);
    if (chdir(directory.c_str()) != 0) _exit(126);
    if (file_limit != RLIM_INFINITY) {
      const rlimit limit{file_limit, file_limit};
      setrlimit(RLIMIT_FSIZE, &limit);
    }
    execv(argv[0], argv.data());
    _exit(127);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    if (running_) {
      kill(pid_, SIGKILL);
      wait();
    }
  }

  void send(int signal) { kill(pid_, signal); }
  /// The exit code, or 128 + the signal that killed it.
  int wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    running_ = false;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  /// What it has printed so far.
  std::string text() const {
    std::ifstream file(output_);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  /// Waits until `condition` holds; false when the process ended or a minute passed before.
  bool wait_until(const std::function<bool()>& condition) {
    for (int i = 0; i < 30000; ++i) {
      if (condition()) return true;
      siginfo_t info{};
      if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
          info.si_pid != 0) {
        return condition();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return false;
  }

 private:
  std::filesystem::path output_;
  pid_t pid_ = 0;
  bool running_ = true;
};

struct Finished {
  int code;
  std::string text;
};

inline Finished run_program(const std::string& program, std::vector<std::string> arguments,
                            const std::filesystem::path& directory,
                            rlim_t file_limit = RLIM_INFINITY) {
  Process process(program, std::move(arguments), directory, file_limit);
  const int code = process.wait();
  return {code, process.text()};
}

}  // namespace primal
