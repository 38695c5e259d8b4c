#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace primal {

/// Runs a program, found as a shell finds it, in `folder` (empty: this process's own) and waits for
/// its end. Its output and errors go to the file `log`, its input is empty. Returns the status of
/// waitpid(). Error when it cannot be started, as when it is not installed.
int run_process(const std::string& program, std::vector<std::string> arguments,
                const std::filesystem::path& log, const std::filesystem::path& folder = {});

}  // namespace primal
